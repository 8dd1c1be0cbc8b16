package guard

import (
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

// journal makes the decisions of this process during outages and records them for replay. Its logs decide. They keep
// every entry until it leaves its window, whether it has been replayed or not, so that a store which fails repeatedly
// does not grant a fresh quota each time. Its backlogs hold what is still to be replayed.
type journal struct {
	logs        *memory.Store
	start       time.Time
	maxBacklogs int64
	backlogs    atomic.Int64  // number of backlogs
	entries     atomic.Int64  // number of entries in all backlogs
	lostUnits   atomic.Int64  // units for which there was no backlog left, until they are logged
	lost        atomic.Uint64 // all of these units
	replayed    atomic.Uint64 // entries

	replays bool // decisions are recorded for replay

	unconfirmedSlots sync.Map // IDs of takes of slots that were admitted here and that the store may have recorded too

	shards [journalShards]journalShard
}

type journalShard struct {
	mu       sync.Mutex
	backlogs map[uint64]*backlog // by the key's hash
}

// backlog is what the store does not know yet about one key. The lock of its shard guards it.
type backlog struct {
	key         store.StoredKey
	next        *backlog // of another key with the same hash
	keep        time.Duration
	varies      bool
	entries     []journalEntry // oldest first
	units       int
	corrections int  // entries added for takes that were denied
	run         *run // the replay in progress, or nil
}

// journalEntry is a take that the store does not know, or does not know the cost of. A cost of 0 means that the store
// must remove the take if it has it.
type journalEntry struct {
	at       int64 // since the journal's start
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
	maxPart        = 500  // entries added to a log of the store by one call
	maxCorrections = 1000 // of one key
	compactFrom    = 64   // entries
	journalShards  = 64
)

func newJournal(keys int) *journal {
	return &journal{logs: memory.New(keys), maxBacklogs: 2 * int64(keys), start: time.Now()}
}

func (j *journal) now() int64 { return int64(time.Since(j.start)) }

// take decides a request in this process and records what the store has to be told. The answers must be zero.
func (j *journal) take(r *request, sent delivery) {
	if r.several() {
		takes, answers := r.copies()
		j.logs.Take(takes, answers)
		copy(r.answers, answers)
	} else {
		j.takeOne(r.first, r.answer)
	}
	admitted := r.admitted()
	for i := range r.len() {
		t, a := r.at(i)
		j.note(t, a, admitted || !a.Allowed && countsDenied(t), sent)
	}
}

// takeOne asks the log of t alone.
func (j *journal) takeOne(t *store.Take, a *store.Answer) {
	id := t.ID
	takes, answers := [1]store.Take{*t}, [1]store.Answer{*a}
	j.logs.Take(takes[:], answers[:])
	*t, *a = takes[0], answers[0]
	t.ID = id // the log has replaced it if it recorded nothing
}

// deny records what the store has to be told of a request that is denied because the answers to its known takes deny.
// The other answers must be zero; the logs of this process fill them in.
func (j *journal) deny(r *request, known *[store.MaxLimits]bool, sent delivery) {
	for i := range r.len() {
		t, a := r.at(i)
		if !known[i] {
			peek := *t
			peek.Mode, peek.Cost = store.ModePeek, fitting(t)
			j.takeOne(&peek, a)
		}
		counted := !a.Allowed && countsDenied(t)
		if counted {
			var own store.Answer
			j.takeOne(t, &own)
			a.Retry = max(a.Retry, own.Retry)
		}
		j.note(t, a, counted, sent)
	}
}

// countsDenied reports whether t is recorded although it is denied.
func countsDenied(t *store.Take) bool {
	_, mode := t.Plan.Counted(t.Cost, t.Mode)
	return mode == store.ModeChargeDenied
}

// hold adds slots that the store knows to the log of this process, unless it has them already.
func (j *journal) hold(t *store.Take, ids []uint64) {
	m := store.MergeRequest{Key: t.Key, Keep: t.Plan.Keep}
	for _, id := range ids {
		m.Entries = append(m.Entries, store.Entry{ID: id, Cost: 1})
	}
	j.logs.Merge(&m)
}

// release notes that the store has to be told that a slot was given back, if it may have recorded it. A slot is own if
// it was taken without the store and not renewed.
func (j *journal) release(t *store.Take, own bool) {
	if _, sent := j.unconfirmedSlots.LoadAndDelete(t.ID); own && !sent {
		return
	}
	j.add(t, journalEntry{id: t.ID, delivery: unconfirmed, settled: true})
}

// note records what the store has to be told about a take: that it was counted here, or else that it must not be in
// the store's log. In ModeUpTo the store may have granted another number of units. Algorithms other than the sliding
// log do not know takes, so the store is told nothing about them.
func (j *journal) note(t *store.Take, a *store.Answer, counted bool, sent delivery) {
	if !keepsEntries(t) {
		return
	}
	_, mode := t.Plan.Counted(t.Cost, t.Mode)
	other := mode == store.ModeUpTo && sent != unsent
	switch {
	case mode == store.ModePeek || mode == store.ModeChargeDenied && t.Plan.NeverFits(t.Cost):
	case t.Plan.Slots && counted: // in this process only
		if sent == unconfirmed {
			j.unconfirmedSlots.Store(t.ID, nil)
		}
	case counted && (sent != delivered || other):
		j.add(t, journalEntry{id: t.ID, cost: int32(unitsOf(t, a)), delivery: sent, settled: other})
	case !counted && sent != unsent:
		j.add(t, journalEntry{id: t.ID, delivery: sent, settled: true})
	}
}

func (j *journal) add(t *store.Take, e journalEntry) {
	if !j.replays {
		return
	}
	hash := t.Key.Hash()
	sh, b := j.lock(&t.Key)
	defer sh.mu.Unlock()
	if b == nil {
		if j.backlogs.Add(1) > j.maxBacklogs {
			j.backlogs.Add(-1)
			j.lostUnits.Add(int64(e.cost))
			j.lost.Add(uint64(e.cost))
			return
		}
		b = sh.add(&t.Key, hash)
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

// void reports whether the store need not be told about the entry, because the take was undone and never sent.
func (e *journalEntry) void() bool { return e.cost == 0 && e.delivery == unsent }

// trim drops the oldest units of takes that are recorded whether there is room or not, as the logs do.
func (j *journal) trim(b *backlog, t *store.Take) {
	most := math.MaxInt
	switch t.Mode {
	case store.ModeRecord:
		most = max(store.MaxRecorded, t.Plan.Bound)
	case store.ModeChargeDenied:
		most = t.Plan.Bound
	case store.ModeCharge, store.ModePeek, store.ModeUpTo:
	}
	over := b.units - most
	if over <= 0 {
		return
	}
	n := 0
	for over > 0 {
		e := &b.entries[n]
		if int(e.cost) > over {
			if e.delivery == unsent {
				e.id = newID() // a settlement of the whole take must not find the rest of it
			}
			e.cost -= int32(over)
			b.units -= over
			break
		}
		over -= int(e.cost)
		n++
	}
	j.dropOldest(b, n)
}

// dropOldest removes the oldest n entries.
func (j *journal) dropOldest(b *backlog, n int) {
	for i := range n {
		b.units -= int(b.entries[i].cost)
	}
	b.entries = b.entries[n:]
	j.entries.Add(-int64(n))
}

// removeFunc removes the entries for which remove returns true. Changes that remove makes to other entries persist.
func (j *journal) removeFunc(b *backlog, remove func(*journalEntry) bool) {
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
func (j *journal) expire(b *backlog) {
	cut, n := j.now()-int64(b.keep), 0
	for n < len(b.entries) && b.entries[n].at <= cut {
		n++
	}
	j.dropOldest(b, n)
}

func (sh *journalShard) find(key *store.Key, hash uint64) *backlog {
	for b := sh.backlogs[hash]; b != nil; b = b.next {
		if b.key.Equal(key) {
			return b
		}
	}
	return nil
}

// add adds an empty backlog of a key that has none.
func (sh *journalShard) add(key *store.Key, hash uint64) *backlog {
	if sh.backlogs == nil {
		sh.backlogs = make(map[uint64]*backlog)
	}
	b := &backlog{key: key.Stored(true), next: sh.backlogs[hash]}
	sh.backlogs[hash] = b
	return b
}

// lock locks the shard of a key and returns it with the key's backlog, or nil if the key has none.
func (j *journal) lock(key *store.Key) (*journalShard, *backlog) {
	hash := key.Hash()
	sh := &j.shards[hash%journalShards]
	sh.mu.Lock()
	return sh, sh.find(key, hash)
}

// settle changes the cost of a take. It reports whether the take is in the backlog, so that a replay tells the store.
func (j *journal) settle(s store.Settlement) (later bool) {
	j.logs.Settle(&s)
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

// reset forgets a key. It returns the replay in progress, or nil.
func (j *journal) reset(key store.Key) *run {
	j.logs.Reset(&key)
	sh, b := j.lock(&key)
	defer sh.mu.Unlock()
	if b == nil {
		return nil
	}
	j.dropOldest(b, len(b.entries))
	return b.run
}

// beginReplay returns the replay of a key's backlog, and whether the caller has started it and must run it. Without a
// backlog it returns nil.
func (j *journal) beginReplay(key *store.Key) (b *backlog, r *run, started bool) {
	sh, b := j.lock(key)
	defer sh.mu.Unlock()
	switch {
	case b == nil:
		return nil, nil, false
	case b.run != nil:
		return b, b.run, false
	}
	b.run = &run{done: make(chan struct{})}
	return b, b.run, true
}

// endReplay is called by the caller that has started the replay.
func (j *journal) endReplay(key *store.Key, r *run, err error) {
	hash := key.Hash()
	sh, b := j.lock(key)
	r.err = err
	b.run = nil
	close(r.done)
	if j.expire(b); len(b.entries) == 0 {
		sh.remove(b, hash)
		j.backlogs.Add(-1)
	}
	sh.mu.Unlock()
}

func (sh *journalShard) remove(b *backlog, hash uint64) {
	first := sh.backlogs[hash]
	if first == b {
		first = b.next
	} else {
		for x := first; x != nil; x = x.next {
			if x.next == b {
				x.next = b.next
			}
		}
	}
	if first == nil {
		delete(sh.backlogs, hash)
	} else {
		sh.backlogs[hash] = first
	}
}

// keys returns the keys that have a backlog. No shard is locked while the caller handles a key.
func (j *journal) keys() iter.Seq[*store.Key] {
	return func(yield func(*store.Key) bool) {
		for i := range j.shards {
			for _, key := range j.shards[i].keys() {
				if !yield(key) {
					return
				}
			}
		}
	}
}

func (sh *journalShard) keys() []*store.Key {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	keys := make([]*store.Key, 0, len(sh.backlogs))
	for _, b := range sh.backlogs {
		for ; b != nil; b = b.next {
			key := b.key.Key()
			keys = append(keys, &key)
		}
	}
	return keys
}

// tidy removes the entries that have left their window, and then the backlogs that are empty.
func (j *journal) tidy() {
	for i := range j.shards {
		j.tidyShard(&j.shards[i])
	}
}

func (j *journal) tidyShard(sh *journalShard) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for hash, first := range sh.backlogs {
		for b := first; b != nil; b = b.next {
			if j.expire(b); len(b.entries) == 0 && b.run == nil {
				sh.remove(b, hash)
				j.backlogs.Add(-1)
			}
		}
	}
	if len(sh.backlogs) == 0 {
		sh.backlogs = nil // a map never shrinks
	}
}

// remaining returns what has not been replayed, in units and in takes whose cost has changed, and how long it takes
// until all of it has left its window.
func (j *journal) remaining() (units, corrections int, leaves time.Duration) {
	for i := range j.shards {
		sh := &j.shards[i]
		sh.mu.Lock()
		for _, b := range sh.backlogs {
			for ; b != nil; b = b.next {
				leaves = max(leaves, b.keep)
				u, c := b.remaining()
				units, corrections = units+u, corrections+c
			}
		}
		sh.mu.Unlock()
	}
	return units, corrections, leaves
}

func (b *backlog) remaining() (units, corrections int) {
	for i := range b.entries {
		e := &b.entries[i]
		if e.delivery == delivered || e.cost == 0 && e.delivery == unconfirmed {
			corrections++
		} else {
			units += int(e.cost)
		}
	}
	return units, corrections
}
