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

// journal is what this process has decided by itself. Its logs decide: they hold every entry until it leaves its window,
// whether it has been replayed or not, so that a store that comes and goes gives no fresh quota each time. Its backlogs
// hold what the store is still to be told.
type journal struct {
	logs  *memory.Store
	start time.Time
	most  int64        // backlogs
	keys  atomic.Int64 // that have one
	count atomic.Int64 // of the entries in all backlogs
	lost  atomic.Int64 // units for which there was no room

	replays bool // entries are kept for the store

	shards [journalShards]journalShard
}

type journalShard struct {
	mu   sync.Mutex
	logs map[uint64]*backlog // by the key's hash
}

// backlog is what the store does not know yet of one key. Its shard's lock guards it.
type backlog struct {
	key         store.StoredKey
	next        *backlog // of another key with the same hash
	keep        time.Duration
	varies      bool
	entries     []unreplayed // oldest first
	units       int
	corrections int  // that were added after a denial
	run         *run // the replay that is under way, or nil
}

// unreplayed is a take that the store is to be told of, or one whose cost has changed since it was.
type unreplayed struct {
	at   int64 // since the journal's start
	id   uint64
	cost int32
	fate fate
	set  bool // the cost was settled, so that the store may have another
}

// fate is what has become of a take at the store.
type fate uint8

const (
	fateUnsent fate = iota
	fateSent        // and nobody knows
	fateStored
)

// run is one replay of a backlog.
type run struct {
	done chan struct{} // closed when it has ended
	err  error         // why it has not come to the end
}

const (
	maxCorrections = 1000 // of one key, for takes that were denied here and may be in the store
	compactFrom    = 64   // entries
	journalShards  = 64
)

func newJournal(keys int) *journal {
	return &journal{logs: memory.New(keys), most: 2 * int64(keys), start: time.Now()}
}

func (j *journal) now() int64 { return int64(time.Since(j.start)) }

// take decides, and notes what the store is to be told.
func (j *journal) take(t *store.Take, a *store.Answer, sent fate) {
	id := t.ID
	j.logs.Take(&t.Key, t, a)
	t.ID = id // which a log in memory has replaced where it recorded nothing
	recorded := t.Mode != store.ModePeek && (a.Allowed || t.Mode == store.ModeChargeDenied && !t.Plan.NeverFits(t.Cost))
	switch {
	case !recorded:
		j.denied(t, sent)
	case sent != fateStored:
		j.add(t, unreplayed{id: t.ID, cost: int32(t.Cost), fate: sent})
	}
}

// denied notes that a take was denied which the store may have admitted.
func (j *journal) denied(t *store.Take, sent fate) {
	if t.Mode == store.ModeCharge && sent != fateUnsent {
		j.add(t, unreplayed{id: t.ID, fate: sent, set: true})
	}
}

func (j *journal) add(t *store.Take, e unreplayed) {
	if !j.replays {
		return
	}
	hash := t.Key.Hash()
	sh := &j.shards[hash%journalShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := sh.find(&t.Key, hash)
	if b == nil {
		if j.keys.Add(1) > j.most {
			j.keys.Add(-1)
			j.lost.Add(int64(e.cost))
			return
		}
		if sh.logs == nil {
			sh.logs = make(map[uint64]*backlog)
		}
		b = &backlog{key: t.Key.Stored(true), next: sh.logs[hash]}
		sh.logs[hash] = b
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
			j.remove(b, func(e *unreplayed) bool { return e.cost == 0 && e.fate == fateUnsent })
		}
	}
	e.at = j.now()
	b.entries = append(b.entries, e)
	b.units += int(e.cost)
	j.count.Add(1)
	j.trim(b, t)
}

// trim drops the oldest units where takes are recorded whatever the limits say, as the logs do.
func (j *journal) trim(b *backlog, t *store.Take) {
	most := math.MaxInt
	switch t.Mode {
	case store.ModeRecord:
		most = max(store.MaxRecorded, t.Plan.Bound)
	case store.ModeChargeDenied:
		most = t.Plan.Bound
	case store.ModeCharge, store.ModePeek:
	}
	over := b.units - most
	if over <= 0 {
		return
	}
	n := 0
	for over > 0 {
		e := &b.entries[n]
		if int(e.cost) > over {
			if e.fate == fateUnsent {
				e.id = newID(time.Now()) // it cannot be settled any more
			}
			e.cost -= int32(over)
			b.units -= over
			break
		}
		over -= int(e.cost)
		n++
	}
	j.drop(b, n)
}

// drop takes the oldest n entries out.
func (j *journal) drop(b *backlog, n int) {
	for i := range n {
		b.units -= int(b.entries[i].cost)
	}
	b.entries = b.entries[n:]
	j.count.Add(-int64(n))
}

// remove takes entries out.
func (j *journal) remove(b *backlog, out func(*unreplayed) bool) {
	kept := b.entries[:0]
	for i := range b.entries {
		e := b.entries[i]
		if out(&e) {
			b.units -= int(e.cost)
			j.count.Add(-1)
		} else {
			kept = append(kept, e)
		}
	}
	b.entries = kept
}

// expire takes out what has left its window: the store need not know.
func (j *journal) expire(b *backlog) {
	cut, n := j.now()-int64(b.keep), 0
	for n < len(b.entries) && b.entries[n].at <= cut {
		n++
	}
	j.drop(b, n)
}

func (sh *journalShard) find(key *store.Key, hash uint64) *backlog {
	for b := sh.logs[hash]; b != nil; b = b.next {
		if b.key.Equal(key) {
			return b
		}
	}
	return nil
}

// locked is a key's backlog, or nil, and the shard, which is locked.
func (j *journal) locked(key *store.Key) (*journalShard, *backlog) {
	hash := key.Hash()
	sh := &j.shards[hash%journalShards]
	sh.mu.Lock()
	return sh, sh.find(key, hash)
}

// settle changes what a take has cost. It reports whether the store will be told so when what it does not know is replayed.
func (j *journal) settle(s store.Settlement) (later bool) {
	j.logs.Settle(&s)
	sh, b := j.locked(&s.Key)
	defer sh.mu.Unlock()
	if b == nil {
		return false
	}
	for i := len(b.entries) - 1; i >= 0; i-- {
		if e := &b.entries[i]; e.id == s.ID {
			if e.cost == 0 { // what was undone stays undone
				return true
			}
			b.units += s.Cost - int(e.cost)
			e.cost, e.set = int32(s.Cost), true
			return true
		}
	}
	return false
}

// reset forgets a key, and returns the replay that is under way.
func (j *journal) reset(key store.Key) *run {
	j.logs.Reset(&key)
	sh, b := j.locked(&key)
	defer sh.mu.Unlock()
	if b == nil {
		return nil
	}
	j.drop(b, len(b.entries))
	return b.run
}

// waiting is what the store does not know of a key, and whether it is to be told anything of it.
func (j *journal) waiting(key *store.Key) (w backlogState, told bool) {
	sh, b := j.locked(key)
	defer sh.mu.Unlock()
	if b == nil {
		return w, false
	}
	j.expire(b)
	w.units = b.units
	if w.units > replayedAtOnce {
		return w, true
	}
	now := j.now()
	for i := range b.entries {
		e := &b.entries[i]
		w.entries = append(w.entries, store.Entry{Age: time.Duration(now - e.at), Cost: int(e.cost)})
	}
	return w, len(b.entries) > 0
}

// backlogState is a backlog at one instant.
type backlogState struct {
	units   int
	entries []store.Entry // oldest first, unless there are more units than are replayed at once
}

// add adds the entries to an answer of a store that does not know them.
func (w *backlogState) add(t *store.Take, a *store.Answer) {
	for i := range t.Plan.Limits {
		window, state := t.Plan.Limits[i].Window, &a.State[i]
		for n := range w.entries {
			e := &w.entries[n]
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

// begin is the replay of a key's backlog, and whether the caller is to run it. Without a backlog there is none.
func (j *journal) begin(key *store.Key) (b *backlog, r *run, started bool) {
	sh, b := j.locked(key)
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

// end is called when a replay has.
func (j *journal) end(key *store.Key, r *run, err error) {
	hash := key.Hash()
	sh, b := j.locked(key)
	r.err = err
	b.run = nil
	close(r.done)
	if j.expire(b); len(b.entries) == 0 {
		sh.forget(b, hash)
		j.keys.Add(-1)
	}
	sh.mu.Unlock()
}

func (sh *journalShard) forget(b *backlog, hash uint64) {
	first := sh.logs[hash]
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
		delete(sh.logs, hash)
	} else {
		sh.logs[hash] = first
	}
}

// part is what to replay next: entries of up to so many units, which may be in the store from now on.
type part struct {
	key     *store.Key
	keep    time.Duration
	varies  bool
	entries []unreplayed
}

func (j *journal) part(key *store.Key, b *backlog, most int) (p part) {
	sh, _ := j.locked(key)
	defer sh.mu.Unlock()
	j.expire(b)
	p.key, p.keep, p.varies = key, b.keep, b.varies
	j.remove(b, func(e *unreplayed) bool { return e.cost == 0 && e.fate == fateUnsent })
	units := 0
	for i := range b.entries {
		e := &b.entries[i]
		if units += max(int(e.cost), 1); units > most && i > 0 {
			break
		}
		p.entries = append(p.entries, *e)
		if e.cost > 0 && e.fate == fateUnsent {
			e.fate = fateSent
		}
	}
	return p
}

// merged notes that a part is in the store. What was settled since has to be told as well.
func (j *journal) merged(b *backlog, p part) {
	stored := make(map[uint64]bool, len(p.entries))
	for i := range p.entries {
		if p.entries[i].cost > 0 {
			stored[p.entries[i].id] = true
		}
	}
	sh, _ := j.locked(p.key)
	defer sh.mu.Unlock()
	j.remove(b, func(e *unreplayed) bool {
		if stored[e.id] {
			e.fate = fateStored
		}
		return e.fate == fateStored && !e.set
	})
}

// settled notes that the store knows what an entry has cost after all, unless that has changed again.
func (j *journal) settled(key *store.Key, b *backlog, told unreplayed) {
	sh, _ := j.locked(key)
	defer sh.mu.Unlock()
	j.remove(b, func(e *unreplayed) bool { return e.id == told.id && e.cost == told.cost })
}

// backlogs are the keys that have one.
func (j *journal) backlogs() iter.Seq[*store.Key] {
	return func(yield func(*store.Key) bool) {
		for i := range j.shards {
			sh := &j.shards[i]
			sh.mu.Lock()
			keys := make([]*store.Key, 0, len(sh.logs))
			for _, b := range sh.logs {
				for ; b != nil; b = b.next {
					key := b.key.Key()
					keys = append(keys, &key)
				}
			}
			sh.mu.Unlock()
			for _, key := range keys {
				if !yield(key) {
					return
				}
			}
		}
	}
}

// tidy forgets what has left its window, and keys of which nothing is left.
func (j *journal) tidy() {
	for i := range j.shards {
		sh := &j.shards[i]
		sh.mu.Lock()
		for hash, first := range sh.logs {
			for b := first; b != nil; b = b.next {
				if j.expire(b); len(b.entries) == 0 && b.run == nil {
					sh.forget(b, hash)
					j.keys.Add(-1)
				}
			}
		}
		if len(sh.logs) == 0 {
			sh.logs = nil // a map keeps the memory that it once needed
		}
		sh.mu.Unlock()
	}
}

// left is what the store has not been told: units, and takes whose cost has changed. After so long all has left its window.
func (j *journal) left() (units, corrections int, leaves time.Duration) {
	for i := range j.shards {
		sh := &j.shards[i]
		sh.mu.Lock()
		for _, b := range sh.logs {
			for ; b != nil; b = b.next {
				leaves = max(leaves, b.keep)
				for i := range b.entries {
					switch e := &b.entries[i]; {
					case e.fate == fateStored || e.cost == 0 && e.fate == fateSent:
						corrections++
					default:
						units += int(e.cost)
					}
				}
			}
		}
		sh.mu.Unlock()
	}
	return units, corrections, leaves
}
