package memory

import (
	"math"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/internal/next/store"
)

// part is one of the takes of a request. It does not refer to the take and its answer, since they would be on the heap
// if something pointed to them that points to logs as well.
type part struct {
	hash  uint64
	shard *shard
	entry *entry // locked, or nil for a peek at a key without one
	log   *log   // or nil for a peek at a log that is not there
	own   bool   // the entry is the key's own
	held  bool   // an earlier part has locked the entry
	room  bool   // the log has room
	mode  store.Mode
	units int // that must fit
	more  int // that earlier parts take from the same log, which their keys share
}

const fewTakes = 8 // that a request has without an allocation

// now reads the clocks, before any lock is waited for. The wall clock takes as long as the rest of a take, so it is
// read only for a counting algorithm.
func (s *Store) now(counts bool) instant {
	if !counts {
		return instant{clock: s.clock()}
	}
	now := time.Now()
	clock := int64(now.Sub(s.start))
	return instant{clock, now.UnixNano() - clock}
}

// Take decides about the takes of one request, of which those of one key follow each other: all are recorded, or none.
// It sets the answers. Takes without an ID get one that their log assigns, which saves the log memory. Nothing is kept
// of the slices.
func (s *Store) Take(takes []store.Take, answers []store.Answer) {
	if len(takes) > 1 || !s.takeOne(&takes[0], &answers[0]) {
		s.takeAll(takes, answers)
	}
}

// takeOne is Take of one log, if the key has it already.
func (s *Store) takeOne(t *store.Take, a *store.Answer) bool {
	now := s.now(t.Limit.Algorithm != store.SlidingLog)
	hash := t.Key.Hash()
	e := s.shards[hash%shardCount].entries.find(&t.Key, hash)
	if e == nil || t.Mode == store.ModeAtMost {
		return false
	}
	e.lock(now.clock)
	l := e.find(t.Limit)
	if l != nil {
		units, mode := t.Limit.Counted(t.Cost, t.Mode)
		t.ID = l.decide(t.Limit, now, e.now, t.ID, units, 0, mode, a)
	}
	e.mu.Unlock()
	return l != nil
}

func (s *Store) takeAll(takes []store.Take, answers []store.Answer) {
	var space [fewTakes]part
	parts := space[:min(len(takes), fewTakes)]
	if len(takes) > fewTakes {
		parts = make([]part, len(takes))
	}
	counts := false
	for i := range takes {
		p, t := &parts[i], &takes[i]
		if counts = counts || t.Limit.Algorithm != store.SlidingLog; i > 0 && t.Key.Equal(&takes[i-1].Key) {
			p.hash, p.shard, p.held = parts[i-1].hash, parts[i-1].shard, true
			continue
		}
		p.hash = t.Key.Hash()
		p.shard = &s.shards[p.hash%shardCount]
	}
	now := s.now(counts)
	if lockOwn(takes, parts, now.clock) {
		decideAll(takes, answers, parts, now)
		unlock(parts)
		return
	}
	s.takeLocked(takes, answers, parts, now)
}

func unlock(parts []part) {
	for i := range parts {
		if p := &parts[i]; p.entry != nil && !p.held {
			p.entry.mu.Unlock()
		}
	}
}

// lockOwn locks the entries if all keys have one of their own, with all logs. It waits for the first one only, so that
// two requests never wait for each other, and fails if another is in use.
func lockOwn(takes []store.Take, parts []part, now int64) bool {
	for i := range parts {
		p := &parts[i]
		switch {
		case p.held:
			p.entry = parts[i-1].entry
		default:
			p.entry = p.shard.entries.find(&takes[i].Key, p.hash)
			if p.entry != nil && i > 0 && !p.entry.mu.TryLock() {
				p.entry = nil
			}
			if p.entry != nil {
				if i == 0 {
					p.entry.mu.Lock()
				}
				p.entry.now = max(p.entry.now, now)
			}
		}
		if p.entry != nil {
			p.log, p.own = p.entry.find(takes[i].Limit), true
		}
		if p.log == nil {
			unlock(parts[:i+1])
			return false
		}
	}
	return true
}

// takeLocked is takeAll under the locks of the shards of all keys, which it locks in the order of the table. There is no
// deadlock: a goroutine that has locked an entry waits for another one only if it has locked both shards before.
func (s *Store) takeLocked(takes []store.Take, answers []store.Answer, parts []part, now instant) {
	var space [fewTakes]uint64
	numbers := space[:0] // of the shards, each once
	keys := 0
	for i := range parts {
		p := &parts[i]
		if p.entry, p.log, p.own = nil, nil, false; !p.held {
			keys++
			numbers = append(numbers, p.hash%shardCount)
		}
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	for _, number := range numbers {
		s.shards[number].mu.Lock()
	}
	for i := range parts {
		if p := &parts[i]; keys > 1 && p.shard.entries.find(&takes[i].Key, p.hash) == nil {
			p.shard.sweep(s, sweepPerKey) // before entries are locked, because it locks entries as well
		}
	}
	for i := range parts {
		s.findPart(&takes[i], parts, i, now.clock, keys == 1)
	}
	decideAll(takes, answers, parts, now)
	unlock(parts)
	for _, number := range numbers {
		s.shards[number].mu.Unlock()
	}
}

// findPart finds the log of part i, adds it if there is none, and locks its entry unless an earlier part has. With
// sweep, other entries are swept first; none may be locked then.
func (s *Store) findPart(t *store.Take, parts []part, i int, now int64, sweep bool) {
	p, limit := &parts[i], t.Limit
	if t.Mode == store.ModePeek {
		limit = nil
	}
	switch {
	case p.held:
		p.entry, p.own = parts[i-1].entry, parts[i-1].own
	case s.isHeld(p, &t.Key, parts[:i]):
		s.shared.Add(1)
	default:
		p.entry, p.own = p.shard.findOrAdd(s, &t.Key, p.hash, now, limit, sweep)
	}
	if p.entry != nil && limit == nil {
		p.log = p.entry.find(t.Limit)
	} else if p.entry != nil {
		p.log = p.entry.findOrAdd(limit, p.shard.lastID)
	}
}

// isHeld finds the entry of a part if its key shares it with that of an earlier part, which has locked it.
func (s *Store) isHeld(p *part, k *store.Key, earlier []part) bool {
	for i := range earlier {
		e := &earlier[i]
		if e.entry != nil && !e.own && e.shard == p.shard && p.shard.entries.find(k, p.hash) == nil &&
			p.shard.findShared(s, k, p.hash) == e.entry {
			p.entry, p.held = e.entry, true
			return true
		}
	}
	return false
}

// at returns the instant of a part.
func (p *part) at(now instant) int64 {
	if p.entry == nil {
		return now.clock
	}
	return p.entry.now
}

// used returns how many units of the log are in use, those that earlier parts take included.
func (p *part) used(limit *store.Limit, now instant) int {
	switch {
	case limit.Algorithm != store.SlidingLog:
		v := p.log.view(limit, now, p.at(now))
		return v.Used() + p.more
	case p.log == nil:
		return p.more
	}
	p.log.drop(p.at(now))
	return p.log.Units() + p.more
}

// decideAll decides about all parts, whose entries are locked.
func decideAll(takes []store.Take, answers []store.Answer, parts []part, now instant) {
	mode, granted := takes[0].Mode, 0
	for i := range parts {
		parts[i].units, parts[i].mode = takes[i].Limit.Counted(takes[i].Cost, mode)
	}
	if mode == store.ModeAtMost {
		granted = grant(takes, parts, now)
	}
	admitted := true
	for i := range parts {
		p, limit := &parts[i], takes[i].Limit
		for j := range parts[:i] {
			if p.log != nil && parts[j].log == p.log {
				p.more += parts[j].units
			}
		}
		p.room = limit.HasRoom(p.used(limit, now), p.units)
		admitted = admitted && p.room
	}
	admitted = admitted || mode == store.ModeRecord
	for i := range parts {
		p, a := &parts[i], &answers[i]
		if !admitted && (p.room || p.mode != store.ModeChargeDenied) {
			p.mode = store.ModePeek
		}
		before := p.more
		if admitted && mode != store.ModePeek { // earlier parts have recorded these by now
			p.more = 0
		}
		p.decide(&takes[i], now, a)
		a.Used, a.Granted = a.Used-(before-p.more), granted
	}
}

// grant sets how many units must fit in ModeAtMost: as many as all logs have room for, or 1 if one of them has no room.
// It returns that number, or 0. Keys that share a log need room for all of them. Permits do not count: a take needs one
// of them.
func grant(takes []store.Take, parts []part, now instant) int {
	least := math.MaxInt
	for i := range parts {
		p, limit, sharers := &parts[i], takes[i].Limit, 1
		for j := range parts[:i] {
			if p.log != nil && parts[j].log == p.log {
				sharers++
			}
		}
		left := math.MaxInt
		if !limit.Unlimited {
			left = (limit.Quota - p.used(limit, now)) / sharers
		}
		if !limit.Permits || left < 1 {
			least = min(least, takes[i].Grant(left))
		}
	}
	if least == math.MaxInt { // permits only
		least = takes[0].Grant(math.MaxInt)
	}
	for i := range parts {
		if parts[i].mode = store.ModeCharge; !takes[i].Limit.Permits {
			parts[i].units = max(least, 1)
		}
	}
	return least
}

// decide decides about a part in its mode.
func (p *part) decide(t *store.Take, now instant, a *store.Answer) {
	if p.own || p.log == nil || p.log.counts() {
		t.ID = p.log.decide(t.Limit, now, p.at(now), t.ID, p.units, p.more, p.mode, a)
		return
	}
	if t.ID == 0 { // the shard is locked
		p.shard.lastID++
		t.ID = p.shard.lastID
	}
	admits := p.mode == store.ModeRecord
	switch {
	case p.mode == store.ModeChargeDenied:
		p.mode = store.ModeCharge // the denied takes of one key must not deny others
	case (admits || t.Limit.Unlimited) && p.log.Units()+p.units > store.MaxRecorded:
		p.mode = store.ModePeek // the recorded takes of one key must not trim those of others
	}
	p.log.decide(t.Limit, now, p.entry.now, idIn(false, p.hash, t.ID), p.units, p.more, p.mode, a)
	if admits {
		a.Allowed, a.Retry = true, 0
	}
}
