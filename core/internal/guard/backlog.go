package guard

import (
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// backlogs are the changes that the store's logs lack, by key.
type backlogs struct {
	replays bool // entries are recorded for replay
	settles bool // so are corrections, which are entries without units
	start   time.Time
	most    int64         // backlogs
	count   atomic.Int64  // of backlogs
	entries atomic.Int64  // in all backlogs
	lost    atomic.Uint64 // units for which there was no backlog left

	shards [64]backlogShard
}

type backlogShard struct {
	mu   sync.Mutex
	keys map[logKey]*backlog
}

// logKey is a comparable store.Key.
type logKey struct {
	policy   string
	identity store.Identity
}

func logKeyOf(k *store.Key) logKey { return logKey{k.Namespace.Policy(), k.Identity} }

// backlog is the changes that the store's log of one key lacks. The lock of its shard guards it, except the key.
type backlog struct {
	key         store.Key
	keep        time.Duration
	varies      bool
	entries     []journalEntry // oldest first
	units       int
	corrections int  // entries added for takes that were denied
	run         *run // the replay in progress, or nil
}

// journalEntry is a take that the store does not have, or may have with another cost. A cost of 0 means that the store
// must remove the take if it has it.
type journalEntry struct {
	at       int64 // since the start of the backlogs
	id       uint64
	cost     int32
	delivery delivery
	settled  bool // the cost has changed, so the store may have another
}

// delivery says whether the store has a take.
type delivery uint8

const (
	unsent      delivery = iota // the store does not have it
	unconfirmed                 // it was sent, but there was no answer
	delivered                   // the store has it
)

// run is one replay of a backlog.
type run struct {
	done chan struct{} // closed at the end
	err  error         // why the replay ended early, once done is closed
}

const (
	maxPart        = 500    // entries added to a log of the store by one call
	maxCorrections = 10_000 // of one key
	compactFrom    = 64     // entries
)

func (j *backlogs) now() int64 { return int64(time.Since(j.start)) }

// lock locks the shard of a key and returns it with the key's backlog, or nil if the key has none.
func (j *backlogs) lock(key *store.Key) (*backlogShard, *backlog) {
	sh := &j.shards[key.Hash()%uint64(len(j.shards))]
	sh.mu.Lock()
	return sh, sh.keys[logKeyOf(key)]
}

// create adds an empty backlog of a key that has none, or returns nil if there are too many.
func (j *backlogs) create(sh *backlogShard, key *store.Key) *backlog {
	if j.count.Add(1) > j.most {
		j.count.Add(-1)
		return nil
	}
	if sh.keys == nil {
		sh.keys = make(map[logKey]*backlog)
	}
	b := &backlog{key: cloneKey(key)}
	sh.keys[logKeyOf(&b.key)] = b
	return b
}

// removeIfEmpty removes a backlog that has no entries and is not replayed.
func (j *backlogs) removeIfEmpty(sh *backlogShard, b *backlog) {
	if j.expire(b); len(b.entries) == 0 && b.run == nil {
		delete(sh.keys, logKeyOf(&b.key))
		j.count.Add(-1)
	}
}

// add adds an entry of t to the backlog of its key.
func (j *backlogs) add(t *store.Take, e journalEntry) {
	if !j.settles || e.cost > 0 && !j.replays {
		return
	}
	sh, b := j.lock(&t.Key)
	defer sh.mu.Unlock()
	if b == nil {
		if b = j.create(sh, &t.Key); b == nil {
			j.lost.Add(uint64(e.cost))
			return
		}
	}
	if e.cost == 0 {
		if b.corrections++; b.corrections > maxCorrections {
			return
		}
	}
	b.keep, b.varies = max(b.keep, t.Plan.Keep), b.varies || t.Plan.Varies
	if len(b.entries) == cap(b.entries) {
		j.expire(b)
		if len(b.entries) >= compactFrom {
			j.removeFunc(b, (*journalEntry).void)
		}
	}
	e.at = j.now()
	b.entries = append(b.entries, e)
	b.units += int(e.cost)
	j.entries.Add(1)
	j.trim(b, t)
}

// void reports whether there is nothing to replay, because the take was undone and never sent.
func (e *journalEntry) void() bool { return e.cost == 0 && e.delivery == unsent }

// trim drops the oldest units of takes that are recorded whether there is room or not, as the logs do.
func (j *backlogs) trim(b *backlog, t *store.Take) {
	most := math.MaxInt
	switch t.Mode {
	case store.ModeRecord:
		most = max(store.MaxRecorded, t.Plan.Bound)
	case store.ModeChargeDenied:
		most = t.Plan.Bound
	case store.ModeCharge, store.ModePeek, store.ModeUpTo:
	}
	for over := b.units - most; over > 0; over = b.units - most {
		e := &b.entries[0]
		if int(e.cost) <= over {
			j.dropOldest(b, 1)
			continue
		}
		if e.delivery == unsent {
			e.id = newID() // a settlement of the take must not find the rest of it
		}
		e.cost -= int32(over)
		b.units -= over
	}
}

// dropOldest removes the oldest n entries.
func (j *backlogs) dropOldest(b *backlog, n int) {
	for i := range n {
		b.units -= int(b.entries[i].cost)
	}
	b.entries = b.entries[n:]
	j.entries.Add(-int64(n))
}

// removeFunc removes the entries for which remove returns true. Changes that remove makes to other entries persist.
func (j *backlogs) removeFunc(b *backlog, remove func(*journalEntry) bool) {
	kept := b.entries[:0]
	for i := range b.entries {
		e := b.entries[i]
		if remove(&e) {
			b.units -= int(e.cost)
			j.entries.Add(-1)
		} else {
			kept = append(kept, e)
		}
	}
	b.entries = kept
}

// expire removes the entries that have left their window, since they no longer count in the store.
func (j *backlogs) expire(b *backlog) {
	cut, n := j.now()-int64(b.keep), 0
	for n < len(b.entries) && b.entries[n].at <= cut {
		n++
	}
	j.dropOldest(b, n)
}

// settle changes the cost of a take, and reports whether there is an entry of it.
func (j *backlogs) settle(s *store.Settlement) (found bool) {
	sh, b := j.lock(&s.Key)
	defer sh.mu.Unlock()
	if b == nil {
		return false
	}
	for i := len(b.entries) - 1; i >= 0; i-- {
		if e := &b.entries[i]; e.id == s.ID {
			if e.cost == 0 { // a take that was undone cannot be settled again
				return true
			}
			b.units += s.Cost - int(e.cost)
			e.cost, e.settled = int32(s.Cost), true
			return true
		}
	}
	return false
}

// reset removes the entries of a key. It returns the replay in progress, or nil.
func (j *backlogs) reset(key *store.Key) *run {
	sh, b := j.lock(key)
	defer sh.mu.Unlock()
	if b == nil {
		return nil
	}
	j.dropOldest(b, len(b.entries))
	return b.run
}

// backlogSnapshot is a backlog at one instant.
type backlogSnapshot struct {
	replay  bool          // there is something to replay
	long    bool          // there are more than maxPart entries
	lowers  bool          // the store may have more units of a take than it is to have; not set if long
	entries []store.Entry // oldest first; empty if long
}

// snapshots fills in the backlogs of a request's keys. It reports whether one of them has something to replay, and
// whether one of them is long.
func (j *backlogs) snapshots(r *request, snapshots *[store.MaxLimits]backlogSnapshot) (replay, long bool) {
	for i := range r.takes {
		s := &snapshots[i]
		*s = j.snapshot(&r.takes[i].Key)
		replay, long = replay || s.replay, long || s.long
	}
	return replay, long
}

func (j *backlogs) snapshot(key *store.Key) (s backlogSnapshot) {
	sh, b := j.lock(key)
	defer sh.mu.Unlock()
	if b == nil {
		return s
	}
	j.expire(b)
	s.replay, s.long = len(b.entries) > 0, len(b.entries) > maxPart
	if s.long {
		return s
	}
	now := j.now()
	for i := range b.entries {
		e := &b.entries[i]
		s.lowers = s.lowers || e.settled || e.cost == 0
		s.entries = append(s.entries, store.Entry{Age: time.Duration(now - e.at), Cost: int(e.cost)})
	}
	return s
}

// addTo adds the entries to the states of an answer from a store that does not have them.
func (s *backlogSnapshot) addTo(t *store.Take, a *store.Answer) {
	for i := range t.Plan.Limits {
		window, state := t.Plan.Limits[i].Window, &a.State[i]
		for n := range s.entries {
			e := &s.entries[n]
			if e.Cost == 0 || e.Age >= window {
				continue
			}
			if reset := window - e.Age; state.Reset == 0 || reset < state.Reset {
				state.Reset = reset
			}
			state.Used += e.Cost
		}
	}
}

// beginReplay returns the replay of a key's backlog, and the backlog if the caller has started the replay and must run
// it. Without a backlog it returns nil.
func (j *backlogs) beginReplay(key *store.Key) (started *backlog, r *run) {
	sh, b := j.lock(key)
	defer sh.mu.Unlock()
	switch {
	case b == nil:
		return nil, nil
	case b.run != nil:
		return nil, b.run
	}
	b.run = &run{done: make(chan struct{})}
	return b, b.run
}

// endReplay is called by the caller that has started the replay.
func (j *backlogs) endReplay(b *backlog, err error) {
	sh, _ := j.lock(&b.key)
	defer sh.mu.Unlock()
	b.run.err = err
	close(b.run.done)
	b.run = nil
	j.removeIfEmpty(sh, b)
}

// part is the part of a backlog that is replayed next.
type part struct {
	keep    time.Duration
	varies  bool
	entries []journalEntry
}

// nextPart returns the oldest entries, maxPart at most. They are unconfirmed from now on.
func (j *backlogs) nextPart(b *backlog) (p part) {
	sh, _ := j.lock(&b.key)
	defer sh.mu.Unlock()
	j.expire(b)
	j.removeFunc(b, (*journalEntry).void)
	p = part{b.keep, b.varies, slices.Clone(b.entries[:min(len(b.entries), maxPart)])}
	for i := range p.entries {
		if e := &b.entries[i]; e.cost > 0 && e.delivery == unsent {
			e.delivery = unconfirmed
		}
	}
	return p
}

// markMerged records that the store has a part. Entries that were settled meanwhile remain, since the store has
// their former cost.
func (j *backlogs) markMerged(b *backlog, p part) {
	stored := make(map[uint64]bool, len(p.entries))
	for i := range p.entries {
		if p.entries[i].cost > 0 {
			stored[p.entries[i].id] = true
		}
	}
	sh, _ := j.lock(&b.key)
	defer sh.mu.Unlock()
	j.removeFunc(b, func(e *journalEntry) bool {
		if stored[e.id] {
			e.delivery = delivered
		}
		return e.delivery == delivered && !e.settled
	})
}

// markSettled records that the store has the cost of an entry, unless it has changed again.
func (j *backlogs) markSettled(b *backlog, sent journalEntry) {
	sh, _ := j.lock(&b.key)
	defer sh.mu.Unlock()
	j.removeFunc(b, func(e *journalEntry) bool { return e.id == sent.id && e.cost == sent.cost })
}

// all returns the backlogs, of which only the keys may be read. No shard is locked meanwhile.
func (j *backlogs) all() iter.Seq[*backlog] {
	return func(yield func(*backlog) bool) {
		for i := range j.shards {
			sh := &j.shards[i]
			sh.mu.Lock()
			all := slices.Collect(maps.Values(sh.keys))
			sh.mu.Unlock()
			for _, b := range all {
				if !yield(b) {
					return
				}
			}
		}
	}
}

// tidy removes the entries that have left their window, and then the backlogs that are empty.
func (j *backlogs) tidy() {
	for i := range j.shards {
		sh := &j.shards[i]
		sh.mu.Lock()
		for _, b := range sh.keys {
			j.removeIfEmpty(sh, b)
		}
		if len(sh.keys) == 0 {
			sh.keys = nil // a map never shrinks
		}
		sh.mu.Unlock()
	}
}

// remaining returns what has not been replayed, in units and in takes whose cost has changed, and how long it takes
// until all of it has left its window.
func (j *backlogs) remaining() (units, corrections int, leaves time.Duration) {
	for b := range j.all() {
		sh, _ := j.lock(&b.key)
		leaves = max(leaves, b.keep)
		for i := range b.entries {
			e := &b.entries[i]
			if e.delivery == delivered || e.cost == 0 && e.delivery == unconfirmed {
				corrections++
			} else {
				units += int(e.cost)
			}
		}
		sh.mu.Unlock()
	}
	return units, corrections, leaves
}
