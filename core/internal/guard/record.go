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
	logsPerKey  = 2   // backlogs, on average at most
	logsInAPage = 256 // at least

	mostOwed = 10_000      // takes of one log that are to be removed from it
	ageSlack = time.Second // by how much less than the truth the age of a settlement may be
)

// record knows what the logs of the store lack. What was admitted without the store is in the logs of this process: so
// the record has only the names of these logs, the instant from which on they are to be merged, and which takes are to
// be settled in the store because they may be there in vain, or with another cost.
//
// The logs of this process keep every entry until it leaves its window, whether it was replayed or not, so that a store
// which fails repeatedly does not grant a fresh quota each time.
type record struct {
	*memory.Store // the logs of this process

	flights flights
	settles bool   // the store can settle takes; otherwise nothing is owed
	added   func() // is called when there is something more to replay; it takes no lock of the record
	start   time.Time

	most     atomic.Int64  // backlogs
	backlogs atomic.Int64  // how many there are
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

// backlog is what the store's log lacks. The lock of its shard guards all but key and limit. Its instants are since the
// start of the record.
type backlog struct {
	*shard

	key   store.Key
	limit *store.Limit

	since   time.Duration // entries of this process from then on are to be merged
	added   time.Duration // the earliest of the entries that were added since a replay has begun
	last    time.Duration // when something was added
	owed    map[uint64]owed
	takes   int // decided here and not merged, and owed
	changes int

	run   *run          // the replay that is under way, or nil
	err   error         // of the last one
	retry time.Duration // no replay before, as err is about this log alone
}

const nothing = math.MaxInt64 // the instant since when there is nothing to merge

// owed is a settlement of a take that the store has not got.
type owed struct {
	was, cost int
	at        time.Duration // of the take
	vain      bool          // it has never counted here, so no replay has added it
	again     int           // how often it was owed again
}

func newRecord(keys int, settles bool, added func()) *record {
	rec := &record{Store: memory.New(keys), start: time.Now(), settles: settles, added: added}
	rec.most.Store(logsPerKey * int64(keys))
	return rec
}

func (rec *record) now() time.Duration { return time.Since(rec.start) }

// lock locks the shard of a key, and returns it with the backlog of a log, or nil if there is none.
func (rec *record) lock(k *store.Key, l *store.Limit) (*shard, *backlog) {
	sh := &rec.shards[k.Hash()%uint64(len(rec.shards))]
	sh.mu.Lock()
	return sh, sh.logs[logname.Of(k, l)]
}

// lockToAdd is lock, but adds a backlog. It returns nil if there is no place for it.
func (rec *record) lockToAdd(k *store.Key, l *store.Limit) (*shard, *backlog) {
	sh, b := rec.lock(k, l)
	switch {
	case b != nil:
		return sh, b
	case rec.backlogs.Add(1) > rec.most.Load():
		rec.backlogs.Add(-1)
		return sh, nil
	case sh.logs == nil:
		sh.logs = make(map[logname.Name]*backlog)
	}
	b = &backlog{shard: sh, key: k.Clone(), limit: l, since: nothing}
	sh.logs[logname.Of(&b.key, l)] = b
	return sh, b
}

// remove removes a backlog, unless that was done. The caller holds the lock.
func (rec *record) remove(b *backlog) {
	key := logname.Of(&b.key, b.limit)
	if b.logs[key] != b {
		return
	}
	rec.backlogs.Add(-1)
	rec.takes.Add(-int64(b.takes))
	b.owed, b.takes = nil, 0 // Close does not wait for a replay
	if delete(b.logs, key); len(b.logs) == 0 {
		b.logs = nil // a map never shrinks
	}
}

// removeIfDone removes a backlog in which nothing is left. The caller holds the lock.
func (rec *record) removeIfDone(b *backlog) {
	if !b.isBehind() && b.run == nil {
		rec.remove(b)
	}
}

// isBehind reports whether there is something to replay. The caller holds the lock.
func (b *backlog) isBehind() bool { return b.since < nothing || len(b.owed) > 0 }

// behind returns the backlog of a log if something is to be replayed, or nil.
func (rec *record) behind(k *store.Key, l *store.Limit) *backlog {
	sh, b := rec.lock(k, l)
	defer sh.mu.Unlock()
	if b == nil || !b.isBehind() {
		return nil
	}
	return b
}

// changed notes that takes were added to a backlog. The caller holds the lock.
func (rec *record) changed(b *backlog, takes int) {
	b.changes++
	b.last = rec.now()
	takes = min(takes, max(store.MaxRecorded-b.takes, 0)) // the log of this process keeps no more
	b.takes += takes
	rec.takes.Add(int64(takes))
	rec.added()
}

// decided notes that the log of this process has counted units at an instant or later, which the store's log lacks.
func (rec *record) decided(k *store.Key, l *store.Limit, units int, at time.Duration) {
	sh, b := rec.lockToAdd(k, l)
	defer sh.mu.Unlock()
	if b == nil {
		rec.lost.Add(uint64(units))
		return
	}
	at -= time.Millisecond // as the instants of logs are rounded
	b.since, b.added = min(b.since, at), min(b.added, at)
	rec.changed(b, 1)
}

func (rec *record) owedOf(s *store.Settlement) owed {
	return owed{was: s.Was, cost: s.Cost, at: rec.now() - s.Age}
}

// owe notes that a take, which the store may have, is to be settled there, after the calls about it that are under way.
func (rec *record) owe(s *store.Settlement, vain bool) {
	o := rec.owedOf(s)
	o.vain = vain
	if rec.settles && !rec.flights.owe(flightOf(s.ID, &s.Key, s.Limit), o) {
		rec.add(s.ID, &s.Key, s.Limit, o)
	}
}

// add adds what is owed of a take, or changes it. It returns the backlog, or nil if there is no place.
func (rec *record) add(id uint64, k *store.Key, l *store.Limit, o owed) *backlog {
	sh, b := rec.lockToAdd(k, l)
	defer sh.mu.Unlock()
	if b == nil {
		return nil
	}
	old, again := b.owed[id]
	switch {
	case again:
		if old.cost > 0 { // what was undone stays undone
			old.cost = o.cost
		}
		old.again++
		b.owed[id] = old
		rec.changed(b, 0)
		return b
	case o.cost == 0 && len(b.owed) >= mostOwed:
		return b
	case b.owed == nil:
		b.owed = make(map[uint64]owed)
	}
	b.owed[id] = o
	rec.changed(b, 1)
	return b
}

// forgive removes what is owed of a take. The caller holds the lock.
func (rec *record) forgive(b *backlog, id uint64) {
	delete(b.owed, id)
	b.takes--
	rec.takes.Add(-1)
}

// mayHave reports whether the store may have got a take of that age which was decided here.
func (rec *record) mayHave(age time.Duration) bool {
	return rec.now()-age-ageSlack <= time.Duration(rec.sent.Load())
}

// settle is about a take whose cost was changed in the log of this process, if it is here. It reports whether the store
// is told later, so that nobody else has to.
func (rec *record) settle(s *store.Settlement, degraded, isHere bool) (later bool) {
	o := rec.owedOf(s)
	if rec.backlogs.Load() == 0 {
		return false
	}
	sh, b := rec.lock(&s.Key, s.Limit)
	if b == nil {
		sh.mu.Unlock()
		return false
	}
	_, isOwed := b.owed[s.ID]
	theirs := !degraded || o.at+ageSlack < b.since // the store has it
	if isHere && b.run != nil {                    // it may be about to merge it with the cost that it had
		theirs = false
	}
	ours := !rec.mayHave(s.Age) && b.run == nil
	if !isOwed && !theirs && ours {
		rec.changed(b, 0)
	}
	sh.mu.Unlock()
	if isOwed || !theirs && !ours {
		rec.add(s.ID, &s.Key, s.Limit, o)
	}
	return isOwed || !theirs
}

// reset forgets logs of a key, but not what is owed of leases: the store keeps young ones, and a settlement of another
// finds nothing. It returns the replays that are under way.
func (rec *record) reset(key *store.Key, limits []*store.Limit, leases bool) (running []*run) {
	rec.Reset(key, limits, 0)
	for _, l := range limits {
		sh, b := rec.lock(key, l)
		if b != nil {
			if b.run != nil {
				running = append(running, b.run)
			}
			if !leases {
				b.owed = nil
			}
			rec.takes.Add(int64(len(b.owed) - b.takes))
			b.since, b.takes = nothing, len(b.owed)
			b.changes++
			rec.removeIfDone(b)
		}
		sh.mu.Unlock()
	}
	return running
}

// pages calls yield with some backlogs after the other that are behind, from a random shard on, so that those which
// cannot be replayed do not always come before the same others. No shard is locked meanwhile. Backlogs of which
// everything has left the window are removed.
func (rec *record) pages(yield func([]*backlog) bool) {
	first := int(newID() % uint64(len(rec.shards)))
	var page []*backlog
	for i := range rec.shards {
		sh := &rec.shards[(first+i)%len(rec.shards)]
		sh.mu.Lock()
		for _, b := range sh.logs {
			if rec.now()-b.last > b.limit.Window+ageSlack && b.run == nil {
				rec.remove(b)
			} else if b.isBehind() {
				page = append(page, b)
			}
		}
		sh.mu.Unlock()
		if len(page) >= logsInAPage || i == len(rec.shards)-1 {
			if !yield(page) {
				return
			}
			page = nil
		}
	}
}

// close removes all backlogs for good, and returns what was in them: units that still count, and takes, of which some
// have none.
func (rec *record) close() (units, takes int) {
	rec.most.Store(0)
	for page := range rec.pages {
		for _, b := range page {
			b.mu.Lock()
			since := b.since
			takes += len(b.owed)
			rec.remove(b)
			b.mu.Unlock()
			for _, e := range rec.from(b, since) {
				units, takes = units+e.Cost, takes+1
			}
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
