package memory

import (
	"slices"

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
}

// TakeAll decides about the takes of one request, which have different keys: all are recorded, or none. It sets the
// answers, which must be zero. Each take must have an ID.
//
// It locks the shards of all keys in the order of the table, so that two calls never wait for each other, and only then
// their logs. Takes of one key lock no shard while they hold a log.
func (s *Store) TakeAll(takes []store.Take, answers []store.Answer) {
	var buf [store.MaxLimits]part
	parts := buf[:0]
	for i := range takes {
		hash := takes[i].Key.Hash()
		parts = append(parts, part{
			take: &takes[i], answer: &answers[i], hash: hash, shard: &s.shards[hash%shardCount],
		})
	}
	now := s.clock()
	locked := lockShards(s, parts)
	for i := range parts {
		parts[i].shard.sweep(s, sweepPerKey) // before logs are locked, because it locks logs as well
	}
	for i := range parts {
		parts[i].find(s, parts[:i], now)
	}
	if mode, room := takes[0].Mode, hasRoom(parts, now); room || mode == store.ModeRecord {
		for i := range parts {
			parts[i].decide(now, mode)
		}
	} else {
		for i := range parts {
			p := &parts[i]
			if mode == store.ModeChargeDenied && !p.answer.Allowed {
				p.decide(now, mode)
			} else {
				p.decide(now, store.ModePeek)
			}
		}
	}
	for i := range parts {
		if p := &parts[i]; p.log != nil && !p.held {
			p.log.mu.Unlock()
		}
	}
	for _, i := range slices.Backward(locked) {
		s.shards[i].mu.Unlock()
	}
}

// lockShards locks the shards of all parts and returns their numbers, in the order in which they were locked.
func lockShards(s *Store, parts []part) []int {
	numbers := make([]int, 0, store.MaxLimits)
	for i := range parts {
		if n := int(parts[i].hash % shardCount); !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		s.shards[n].mu.Lock()
	}
	return numbers
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

// hasRoom reports whether all logs have room. It sets Allowed of each answer. Keys that share one log need room for all
// of them.
func hasRoom(parts []part, now int64) bool {
	all := true
	for i := range parts {
		p := &parts[i]
		cost := 0
		for j := range parts[:i] {
			if p.log != nil && parts[j].log == p.log {
				cost += parts[j].take.Cost
			}
		}
		p.answer.Allowed = p.fits(now, cost)
		all = all && p.answer.Allowed
	}
	return all
}

// fits reports whether the log has room for the take and so many units more.
func (p *part) fits(now int64, more int) bool {
	log, at := &empty, now
	if p.log != nil {
		log, at = &p.log.Log, p.log.now
	}
	for _, l := range p.take.Plan.Deciding() {
		if used, _ := log.View(at, l.Window); used+p.take.Cost+more > l.Quota {
			return false
		}
	}
	return true
}

// decide decides the take of a part in a mode, without unlocking its log.
func (p *part) decide(now int64, mode store.Mode) {
	t := *p.take
	t.Mode = mode
	*p.answer = store.Answer{}
	switch {
	case p.log == nil:
		decide(&empty, now, 0, &t, mode, p.answer)
	case p.own:
		p.log.decide(&t, p.answer)
	default:
		p.log.decideShared(p.hash, &t, p.answer)
	}
}
