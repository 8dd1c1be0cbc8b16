package memory

import (
	"math"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// part is the log that one of the takes of a request draws from. It does not refer to the take and its answer, since
// they would be on the heap if something pointed to them that points to logs as well.
type part struct {
	hash  uint64
	shard *shard
	log   *keyLog // locked, or nil for a peek without a log
	own   bool    // the log is the key's own
	held  bool    // an earlier part has locked this log, which both keys share
	more  int     // units that earlier parts take from the same log
	cost  int     // units that must fit: those of the take, or in ModeUpTo the most that fit into all logs
}

// now reads the clocks, before any lock is waited for. The wall clock takes as long as the rest of a take, so it is
// read only for plans that need it.
func (s *Store) now(takes []store.Take) instant {
	for i := range takes {
		if isCounter(takes[i].Plan) {
			now := time.Now()
			clock := int64(now.Sub(s.start))
			return instant{clock, now.UnixNano() - clock}
		}
	}
	return instant{clock: s.clock()}
}

// Take decides about the takes of one request, which have different keys: all are recorded, or none. It sets the
// answers, which must be zero. Takes without an ID get one that their log assigns, which saves the log memory; it is 0
// where nothing is recorded. Nothing is kept of the slices.
func (s *Store) Take(takes []store.Take, answers []store.Answer) {
	now := s.now(takes)
	if len(takes) > 1 || !s.takeOwn(&takes[0], &answers[0], now) {
		s.takeParts(takes, answers, now)
	}
}

// takeOwn is Take for one key that has a log of its own. It returns false if the key has none.
func (s *Store) takeOwn(t *store.Take, a *store.Answer, now instant) bool {
	hash := t.Key.Hash()
	sh := &s.shards[hash%shardCount]
	log := sh.logs.find(&t.Key, hash)
	if log == nil || !log.lock(now.clock) {
		return false
	}
	log.decide(t, t.Cost, t.Mode, now, a)
	if log.unlock() {
		sh.sweepNow(s, now.clock)
	}
	return true
}

func (s *Store) takeParts(takes []store.Take, answers []store.Answer, now instant) {
	var buf [store.MaxLimits]part
	parts := buf[:len(takes)]
	for i := range parts {
		p := &parts[i]
		p.hash = takes[i].Key.Hash()
		p.shard = &s.shards[p.hash%shardCount]
	}
	if !lockOwn(takes, parts, now.clock) {
		s.takeLocked(takes, answers, parts, now)
		return
	}
	decideAll(takes, answers, parts, now)
	var due *shard
	for i := range parts {
		if p := &parts[i]; p.log.unlock() {
			due = p.shard
		}
	}
	if due != nil { // only now, because a sweep locks logs
		due.sweepNow(s, now.clock)
	}
}

// lockOwn locks the logs if all keys have one of their own. It waits for the first one only, so that two requests never
// wait for each other, and fails if another is in use.
func lockOwn(takes []store.Take, parts []part, now int64) bool {
	for i := range parts {
		p := &parts[i]
		log := p.shard.logs.find(&takes[i].Key, p.hash)
		if log == nil || i == 0 && !log.lock(now) || i > 0 && !log.tryLock(now) {
			for j := range parts[:i] {
				parts[j].log.mu.Unlock()
				parts[j].log, parts[j].own = nil, false
			}
			return false
		}
		p.log, p.own = log, true
	}
	return true
}

// takeLocked is takeParts under the locks of the shards of all keys, which it locks in the order of the table. There is
// no deadlock: a goroutine that has locked a log waits for another log only if it has locked both shards before.
func (s *Store) takeLocked(takes []store.Take, answers []store.Answer, parts []part, now instant) {
	var buf [store.MaxLimits]uint64
	numbers := buf[:0] // of the shards, each once
	for i := range parts {
		numbers = append(numbers, parts[i].hash%shardCount)
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	for _, number := range numbers {
		s.shards[number].mu.Lock()
	}
	for i := range parts {
		if p := &parts[i]; len(parts) > 1 && p.shard.logs.find(&takes[i].Key, p.hash) == nil {
			p.shard.sweep(s, sweepPerKey) // before logs are locked, because it locks logs as well
		}
	}
	for i := range parts {
		parts[i].find(s, &takes[i], parts[:i], now.clock, len(parts) == 1)
	}
	decideAll(takes, answers, parts, now)
	for i := range parts {
		if p := &parts[i]; p.log != nil && !p.held {
			p.log.mu.Unlock()
		}
	}
	for _, number := range numbers {
		s.shards[number].mu.Unlock()
	}
}

// decideAll decides the takes of all parts, whose logs are locked.
func decideAll(takes []store.Take, answers []store.Answer, parts []part, now instant) {
	mode, granted := takes[0].Mode, 0
	if len(parts) == 1 {
		parts[0].cost = takes[0].Cost
		parts[0].decide(&takes[0], &answers[0], now, mode)
		return
	}
	for i := range takes {
		parts[i].cost, _ = takes[i].Plan.Counted(takes[i].Cost, mode)
	}
	if mode == store.ModeUpTo {
		granted = fitCost(takes, parts, now)
	}
	if hasRoom(takes, answers, parts, now) || mode == store.ModeRecord {
		for i := range parts {
			parts[i].decide(&takes[i], &answers[i], now, mode)
			answers[i].Granted = granted
		}
		return
	}
	for i := range parts {
		p, t, a := &parts[i], &takes[i], &answers[i]
		room := a.Allowed
		if mode == store.ModeUpTo && room { // where slots deny, the others were to record more than one unit
			p.cost, p.more = 1, 0
		}
		if mode == store.ModeChargeDenied && !room {
			p.decide(t, a, now, mode)
		} else {
			p.decide(t, a, now, store.ModePeek)
		}
		if a.Allowed && !room {
			p.deny(t.Plan, a, now)
		}
	}
}

// find finds the log of a part, adds it if there is none, and locks it unless an earlier part has. With sweep, other
// logs are swept first; no log may be locked then.
func (p *part) find(s *Store, t *store.Take, earlier []part, now int64, sweep bool) {
	for i := range earlier {
		e := &earlier[i]
		if e.log != nil && !e.own && e.shard == p.shard && p.shard.logs.find(&t.Key, p.hash) == nil &&
			p.shard.findShared(s, &t.Key, p.hash) == e.log {
			p.log, p.held = e.log, true
			s.shared.Add(1)
			return
		}
	}
	p.log, p.own = p.shard.findOrAdd(s, &t.Key, p.hash, now, t.Plan.Keep, t.Mode, sweep)
}

// fitCost lowers the costs to the most units for which all logs have room, or to 1 if they have none, and returns that
// number. Keys that share one log need room for all of them. Slots do not count: a take needs one of them.
func fitCost(takes []store.Take, parts []part, now instant) int {
	most := store.MostGranted(takes)
	for i := range parts {
		p, plan, sharers := &parts[i], takes[i].Plan, 1
		if plan.Slots {
			continue
		}
		for j := range parts[:i] {
			if p.log != nil && parts[j].log == p.log {
				sharers++
			}
		}
		most = min(most, p.left(plan, now)/sharers)
	}
	most = max(most, 1)
	for i := range parts {
		if !takes[i].Plan.Slots {
			parts[i].cost = most
		}
	}
	return most
}

// left returns how many units the limits that decide have room for.
func (p *part) left(plan *store.Plan, now instant) int {
	left, limits := math.MaxInt, plan.Deciding()
	if isCounter(plan) && len(limits) > 0 {
		v := p.log.look(plan, p.log.wallTime(now))
		return limits[0].Quota - v.Used()
	}
	log, clock := &empty, now.clock
	if p.log != nil {
		log, clock = &p.log.Log, p.log.now
	}
	for i := range limits {
		used, _ := log.View(clock, limits[i].Window)
		left = min(left, limits[i].Quota-used)
	}
	return left
}

// hasRoom reports whether all logs have room. It sets Allowed of each answer. Keys that share one log need room for all
// of them.
func hasRoom(takes []store.Take, answers []store.Answer, parts []part, now instant) bool {
	all := true
	for i := range parts {
		p := &parts[i]
		for j := range parts[:i] {
			if p.log != nil && parts[j].log == p.log {
				p.more += parts[j].cost
			}
		}
		answers[i].Allowed = p.cost+p.more <= p.left(takes[i].Plan, now)
		all = all && answers[i].Allowed
	}
	return all
}

// deny denies a take that has room in its log by itself, but not with the earlier ones of the same log.
func (p *part) deny(plan *store.Plan, a *store.Answer, now instant) {
	cost := p.cost + p.more
	a.Allowed = false
	for i, l := range plan.Deciding() {
		if a.State[i].Used+cost <= l.Quota {
			continue
		}
		a.Denied |= 1 << i
		switch {
		case cost > l.Quota: // until a key has a log of its own
			a.Retry = max(a.Retry, l.Window)
		case isCounter(plan):
			v := p.log.look(plan, p.log.wallTime(now))
			a.Retry = v.Until(l.Quota - cost)
		default:
			a.Retry = max(a.Retry, p.log.Wait(p.log.now, l.Window, l.Quota, cost))
		}
	}
}

// decide decides the take of a part in a mode, without unlocking its log.
func (p *part) decide(t *store.Take, a *store.Answer, now instant, mode store.Mode) {
	*a = store.Answer{}
	switch {
	case p.own:
		p.log.decide(t, p.cost, mode, now, a)
	case isCounter(t.Plan):
		p.log.count(t.Plan, p.log.wallTime(now), p.cost, mode, a)
	case p.log == nil:
		decide(&empty, now.clock, 0, t.Plan, p.cost, mode, a)
	default:
		if t.ID == 0 { // the shard is locked
			p.shard.lastID++
			t.ID = p.shard.lastID
		}
		p.log.decideShared(p.hash, t, p.cost, mode, a)
	}
}
