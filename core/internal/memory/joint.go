package memory

import (
	"slices"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// part is one take of a joint decision and the log that it draws from.
type part struct {
	take   *store.Take
	answer *store.Answer
	hash   uint64
	shard  *shard
	log    *keyLog // locked, or nil for a peek without a log
	own    bool    // the log is the key's own
	held   bool    // an earlier part has locked this log, which both keys share
	more   int     // units that earlier parts take from the same log
	wall   int64   // the instant by the wall clock, if the limit is of another algorithm than the sliding log
	cost   int     // units that must fit: those of the take, or in ModeUpTo the most that fit into all logs
}

// TakeAll decides about the takes of one request, which have different keys: all are recorded, or none. It sets the
// answers, which must be zero. Takes without an ID get one that their log assigns, as in [Store.Take].
func (s *Store) TakeAll(takes []store.Take, answers []store.Answer) {
	var buf [store.MaxLimits]part
	parts := buf[:len(takes)]
	for i := range parts {
		p := &parts[i]
		p.take, p.answer, p.hash = &takes[i], &answers[i], takes[i].Key.Hash()
		p.cost, _ = takes[i].Plan.Counted(takes[i].Cost, takes[i].Mode)
		p.shard = &s.shards[p.hash%shardCount]
		if counts(p.take.Plan) {
			p.wall = time.Now().UnixMicro()
		}
	}
	now := s.clock()
	if !lockOwn(parts, now) {
		s.takeAllLocked(parts, now)
		return
	}
	decideAll(parts, now)
	var due *shard
	for i := range parts {
		p := &parts[i]
		if p.log.takes++; p.log.takes%takesPerSweep == 0 {
			due = p.shard
		}
		p.log.mu.Unlock()
	}
	if due != nil { // only now, because a sweep locks logs
		due.sweepNow(s, now)
	}
}

// lockOwn locks the logs if all keys have one of their own. It waits for the first one only, so that two requests never
// wait for each other, and fails if another is in use.
func lockOwn(parts []part, now int64) bool {
	for i := range parts {
		p := &parts[i]
		log := p.shard.logs.find(&p.take.Key, p.hash)
		if log == nil || i == 0 && !log.lock(now) || i > 0 && !log.tryLock(now) {
			unlockOwn(parts[:i])
			return false
		}
		p.log, p.own = log, true
	}
	return true
}

func unlockOwn(parts []part) {
	for i := range parts {
		parts[i].log.mu.Unlock()
		parts[i].log, parts[i].own = nil, false
	}
}

// takeAllLocked is TakeAll under the locks of the shards of all keys, which it locks in the order of the table. There
// is no deadlock: a goroutine that has locked a log waits for another log only if it has locked both shards before.
func (s *Store) takeAllLocked(parts []part, now int64) {
	shards, n := shardsOf(parts)
	for _, number := range shards[:n] {
		s.shards[number].mu.Lock()
	}
	for i := range parts {
		if p := &parts[i]; p.shard.logs.find(&p.take.Key, p.hash) == nil {
			p.shard.sweep(s, sweepPerKey) // before logs are locked, because it locks logs as well
		}
	}
	for i := range parts {
		parts[i].find(s, parts[:i], now)
	}
	decideAll(parts, now)
	for i := range parts {
		if p := &parts[i]; p.log != nil && !p.held {
			p.log.mu.Unlock()
		}
	}
	for _, number := range shards[:n] {
		s.shards[number].mu.Unlock()
	}
}

// shardsOf returns the numbers of the parts' shards in ascending order, each once, and how many they are.
func shardsOf(parts []part) (shards [store.MaxLimits]int, n int) {
	for i := range parts {
		number := int(parts[i].hash % shardCount)
		at, found := slices.BinarySearch(shards[:n], number)
		if found {
			continue
		}
		copy(shards[at+1:n+1], shards[at:n])
		shards[at] = number
		n++
	}
	return shards, n
}

// decideAll decides the takes of all parts, whose logs are locked.
func decideAll(parts []part, now int64) {
	mode, granted := parts[0].take.Mode, 0
	if mode == store.ModeUpTo {
		granted = fitCost(parts, now)
	}
	if hasRoom(parts, now) || mode == store.ModeRecord {
		for i := range parts {
			parts[i].decide(now, mode)
			parts[i].answer.Granted = granted
		}
		return
	}
	for i := range parts {
		p := &parts[i]
		room := p.answer.Allowed
		if mode == store.ModeUpTo && room { // where slots deny, the others were to record more than one unit
			p.cost, p.more = 1, 0
		}
		if mode == store.ModeChargeDenied && !room {
			p.decide(now, mode)
		} else {
			p.decide(now, store.ModePeek)
		}
		if p.answer.Allowed && !room {
			p.deny()
		}
	}
}

// find finds the log of a part, adds it if there is none, and locks it unless an earlier part has.
func (p *part) find(s *Store, earlier []part, now int64) {
	t := p.take
	for i := range earlier {
		e := &earlier[i]
		if e.log != nil && !e.own && e.shard == p.shard && p.shard.logs.find(&t.Key, p.hash) == nil &&
			p.shard.shared[string(s.appendBucket(nil, &t.Key, p.hash))] == e.log {
			p.log, p.held = e.log, true
			s.shared.Add(1)
			return
		}
	}
	p.log, p.own = p.shard.findOrAdd(s, &t.Key, p.hash, now, t.Plan.Keep, t.Mode, false)
}

// fitCost lowers the costs to the most units for which all logs have room, or to 1 if they have none, and returns that
// number. Keys that share one log need room for all of them. Slots do not count: a take needs one of them.
func fitCost(parts []part, now int64) int {
	most := parts[0].take.Cost
	for i := range parts {
		p, takes := &parts[i], 1
		if p.take.Plan.Slots {
			continue
		}
		for j := range parts[:i] {
			if p.log != nil && parts[j].log == p.log {
				takes++
			}
		}
		used := p.used(now)
		for i, l := range p.take.Plan.Deciding() {
			most = min(most, (l.Quota-used[i])/takes)
		}
	}
	most = max(most, 1)
	for i := range parts {
		if !parts[i].take.Plan.Slots {
			parts[i].cost = most
		}
	}
	return most
}

// used returns how many units each limit that decides has in its window.
func (p *part) used(now int64) (used [store.MaxLimits]int) {
	if counts(p.take.Plan) {
		v := p.log.look(p.take.Plan, p.wall)
		used[0] = v.Used()
		return used
	}
	log := &empty
	if p.log != nil {
		log, now = &p.log.Log, p.log.now
	}
	for i, l := range p.take.Plan.Deciding() {
		used[i], _ = log.View(now, l.Window)
	}
	return used
}

// hasRoom reports whether all logs have room. It sets Allowed of each answer. Keys that share one log need room for all
// of them.
func hasRoom(parts []part, now int64) bool {
	all := true
	for i := range parts {
		p := &parts[i]
		for j := range parts[:i] {
			if p.log != nil && parts[j].log == p.log {
				p.more += parts[j].cost
			}
		}
		p.answer.Allowed = p.fits(now)
		all = all && p.answer.Allowed
	}
	return all
}

// fits reports whether the log has room for the take, and for earlier ones of the same log.
func (p *part) fits(now int64) bool {
	used := p.used(now)
	for i, l := range p.take.Plan.Deciding() {
		if used[i]+p.cost+p.more > l.Quota {
			return false
		}
	}
	return true
}

// deny denies a take that has room in its log by itself, but not with the earlier ones of the same log.
func (p *part) deny() {
	a, cost := p.answer, p.cost+p.more
	a.Allowed = false
	for i, l := range p.take.Plan.Deciding() {
		if a.State[i].Used+cost <= l.Quota {
			continue
		}
		a.Denied |= 1 << i
		switch {
		case cost > l.Quota: // until a key has a log of its own
			a.Retry = max(a.Retry, l.Window)
		case counts(p.take.Plan):
			v := p.log.look(p.take.Plan, p.wall)
			a.Retry = v.Until(l.Quota - cost)
		default:
			a.Retry = max(a.Retry, p.log.Wait(p.log.now, l.Window, l.Quota, cost))
		}
	}
}

// decide decides the take of a part in a mode, without unlocking its log.
func (p *part) decide(now int64, mode store.Mode) {
	t := *p.take
	t.Mode, t.Cost = mode, p.cost
	*p.answer = store.Answer{}
	switch {
	case counts(t.Plan) && p.log == nil:
		decideWithout(&t, p.wall, p.cost, p.answer)
	case counts(t.Plan):
		p.log.count(&t, p.wall, p.cost, mode, p.answer)
	case p.log == nil:
		decide(&empty, now, 0, &t, mode, p.answer)
	case p.own:
		p.log.decide(&t, p.answer)
		p.take.ID = t.ID
	default:
		if t.ID == 0 { // the shard is locked
			p.shard.lastID++
			t.ID = p.shard.lastID
			p.take.ID = t.ID
		}
		p.log.decideShared(p.hash, &t, p.answer)
	}
}
