package guard

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/logname"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

const (
	logsPerKey = 2           // backlogs, on average at most
	ageSlack   = time.Second // by how much less than the truth the age of a settlement may be
)

// record knows what the logs of the store lack. What was admitted without the store is in the logs of this process: so
// the record has only the names of these logs, the instant from which on they are to be merged, and which takes are to
// be settled in the store because they may be there in vain, or with another cost.
//
// The logs of this process keep every entry until it leaves its window, whether it was replayed or not, so that a store
// which fails repeatedly does not grant a fresh quota each time.
type record struct {
	*memory.Store // the logs of this process

	added func() // is called while there is something to replay; it takes no lock of the record
	start time.Time

	most     atomic.Int64  // backlogs that are behind
	backlogs atomic.Int64  // how many are
	takes    atomic.Int64  // in all of them
	replayed atomic.Uint64 // entries
	lost     atomic.Uint64 // units for which there was no backlog left
	sent     atomic.Int64  // when a take was last sent that was not answered, or a replay began

	shards [64]shard
}

type shard struct {
	mu   sync.Mutex
	logs map[logname.Name]*backlog
}

// backlog is what the store's log lacks, or what it is being told. The lock of its shard guards all but key and limit.
// Its instants are since the start of the record.
type backlog struct {
	*shard

	key   store.Key
	limit *store.Limit

	since time.Duration    // entries of this process from then on are to be merged, beside those of the run
	takes int              // that were decided here and are not merged
	last  time.Duration    // when something was added
	book  map[uint64]*owed // by the IDs of takes, or nil
	due   int              // of the book, those that are to be settled

	run   *run          // the replay that is under way, or nil
	err   error         // of the last one
	retry time.Duration // no replay before, as err is about this log alone

	counted  int  // takes and due, in the record
	isBehind bool // there is something to replay, or it is being replayed
}

const nothing = math.MaxInt64 // the instant since when there is nothing to merge

func newRecord(keys int, added func()) *record {
	rec := &record{Store: memory.New(keys), start: time.Now(), added: added}
	rec.most.Store(logsPerKey * int64(keys))
	return rec
}

func (rec *record) now() time.Duration { return time.Since(rec.start) }

func (rec *record) shard(k *store.Key) *shard { return &rec.shards[k.Hash()%uint64(len(rec.shards))] }

// change calls f with the backlog of a log, which it makes if there is none. The shard is locked meanwhile.
func (rec *record) change(k *store.Key, l *store.Limit, f func(*backlog)) {
	sh := rec.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := sh.logs[logname.Of(k, l)]
	if b == nil {
		if sh.logs == nil {
			sh.logs = make(map[logname.Name]*backlog)
		}
		b = &backlog{shard: sh, key: k.Clone(), limit: l, since: nothing}
		sh.logs[logname.Of(&b.key, l)] = b
	}
	f(b)
	b.last = rec.now()
	rec.count(b)
}

// changed calls f, which changes a backlog. The shard is locked meanwhile.
func (rec *record) changed(b *backlog, f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	rec.count(b)
}

// count counts what is in a backlog that was changed, and removes it if nothing is. The caller holds the lock.
func (rec *record) count(b *backlog) {
	n := b.takes + b.due
	rec.takes.Add(int64(n - b.counted))
	b.counted = n
	if n > 0 {
		rec.added()
	}
	if behind := n > 0 || b.run != nil; behind != b.isBehind {
		b.isBehind = behind
		rec.backlogs.Add(map[bool]int64{true: 1, false: -1}[behind])
	}
	key := logname.Of(&b.key, b.limit)
	if !b.isBehind && len(b.book) == 0 && b.logs[key] == b {
		if delete(b.logs, key); len(b.logs) == 0 {
			b.logs = nil // a map never shrinks
		}
	}
}

// hasPlace reports whether more may be added to a backlog. The caller holds the lock.
func (rec *record) hasPlace(b *backlog) bool {
	return b.isBehind || rec.backlogs.Load() < rec.most.Load()
}

// behind returns the backlog of a log if something is to be replayed, or nil.
func (rec *record) behind(k *store.Key, l *store.Limit) *backlog {
	sh := rec.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if b := sh.logs[logname.Of(k, l)]; b != nil && b.isBehind {
		return b
	}
	return nil
}

// decided notes that the log of this process has counted units at an instant or later, which the store's log lacks.
func (rec *record) decided(k *store.Key, l *store.Limit, units int, at time.Duration) {
	rec.change(k, l, func(b *backlog) {
		if !rec.hasPlace(b) {
			rec.lost.Add(uint64(units))
			return
		}
		b.since = min(b.since, at-time.Millisecond) // as the instants of logs are rounded
		b.takes = min(b.takes+1, store.MaxRecorded) // the log of this process keeps no more
	})
}

// mayHave reports whether the store may have got a take of that age which was decided here.
func (rec *record) mayHave(age time.Duration) bool {
	return rec.now()-age-ageSlack <= time.Duration(rec.sent.Load())
}

// forget notes that there is nothing to merge. The caller holds the lock.
func (b *backlog) forget() {
	if b.since, b.takes = nothing, 0; b.run != nil {
		b.run.since, b.run.takes = nothing, 0
	}
}

// reset forgets logs of a key, but not what is owed of leases: the store keeps young ones, and a settlement of another
// finds nothing. It returns the replays that are under way.
func (rec *record) reset(key *store.Key, limits []*store.Limit, leases bool) (running []*run) {
	rec.Reset(key, limits, 0)
	for _, l := range limits {
		rec.change(key, l, func(b *backlog) {
			if b.run != nil {
				running = append(running, b.run)
			}
			if b.forget(); !leases {
				b.forgive()
			}
		})
	}
	return running
}

// all returns the backlogs that are behind, from a random shard on, so that those which cannot be replayed do not
// always come before the same others. It removes those of which everything has left the window.
func (rec *record) all() (all []*backlog) {
	first := int(newID() % uint64(len(rec.shards)))
	for i := range rec.shards {
		sh := &rec.shards[(first+i)%len(rec.shards)]
		sh.mu.Lock()
		for _, b := range sh.logs {
			if rec.now()-b.last > b.limit.Window+ageSlack && b.run == nil {
				b.forget()
				b.forgive()
				rec.count(b)
			} else if b.isBehind {
				all = append(all, b)
			}
		}
		sh.mu.Unlock()
	}
	return all
}

// close removes all backlogs for good, and returns what was in them: units that still count, and takes, of which some
// have none.
func (rec *record) close() (units, takes int) {
	rec.most.Store(0)
	for _, b := range rec.all() {
		var since time.Duration
		rec.changed(b, func() {
			if since = b.since; b.run != nil {
				since = min(since, b.run.since)
			}
			takes += b.due
			b.forget()
			b.forgive()
		})
		for _, e := range rec.from(b, since) {
			units, takes = units+e.Cost, takes+1
		}
	}
	return units, takes
}

// from returns the entries of this process from an instant on.
func (rec *record) from(b *backlog, since time.Duration) (entries []store.Entry) {
	if since < nothing {
		entries = rec.Log(&b.key, b.limit)
	}
	for len(entries) > 0 && rec.at(&entries[0]) < since {
		entries = entries[1:]
	}
	return entries
}

// at returns the instant of an entry. Its age tells less, as the clock goes on after the log was read.
func (rec *record) at(e *store.Entry) time.Duration { return e.At.Sub(rec.start) }
