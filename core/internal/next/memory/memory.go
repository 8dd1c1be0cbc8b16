// Package memory keeps logs in this process, in a sharded hash table of keys, each with its logs behind one lock. It is
// the store behind core.MemoryStore, and package guard uses it to decide while another store does not answer.
//
// Its methods take pointers to concrete types and not the interfaces of package store: through an interface a Take and
// an Answer would move to the heap.
package memory

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sashlimit/sash/core/internal/next/slide"
	"github.com/sashlimit/sash/core/internal/next/store"
	"github.com/sashlimit/sash/core/internal/next/storedkey"
)

// Store keeps logs in this process. [New] makes one.
type Store struct {
	start   time.Time
	maxKeys int64

	keys    atomic.Int64  // that have a place: logs of their own
	sharing atomic.Int64  // entries that keys without a place share
	shared  atomic.Uint64 // see Shared
	swept   atomic.Uint32 // the shard that makeRoom swept last
	timerAt atomic.Int64  // when the pending timer fires, on the store's clock, or noTimer
	classes storedkey.Classes
	shards  [shardCount]shard
}

// shard is a part of the store's keys. Its lock is held while entries and logs are added and removed. Each entry has a
// lock of its own for takes.
type shard struct {
	entries table
	_       [48]byte // keeps the table, which all takes read, off the lock's cache line
	mu      sync.Mutex
	now     int64         // a new entry begins no earlier than this
	hand    int           // the slot that is swept next
	size    int           // of the table, when hand was set
	lastID  uint64        // a new log begins with the next ID
	swept   bool          // the hand has reached the end of the table since this was unset
	next    time.Duration // until one of the entries that were swept since may be void
	_       [15]byte
}

// New makes a store with places for up to maxKeys keys. Further keys share logs.
func New(maxKeys int) *Store {
	s := &Store{start: time.Now(), maxKeys: int64(maxKeys)}
	for i := range s.shards {
		s.shards[i].now = math.MinInt64 // the clock of a testing/synctest bubble may be before the store's start
	}
	s.timerAt.Store(noTimer)
	return s
}

// MaxKeys returns how many keys have logs of their own at most.
func (s *Store) MaxKeys() int { return int(s.maxKeys) }

// Keys returns how many keys have logs of their own now.
func (s *Store) Keys() int { return int(s.keys.Load()) }

// Shared returns how many requests have drawn from logs that their key shared with others, since the store was made. If
// it grows, more than MaxKeys keys are in use.
func (s *Store) Shared() uint64 { return s.shared.Load() }

// Bytes returns how many bytes of memory the keys and their logs take, without what the allocator rounds up. It locks
// each key for a moment.
func (s *Store) Bytes() int {
	total := int(unsafe.Sizeof(*s))
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		slots := sh.entries.all()
		total += len(slots) * int(unsafe.Sizeof(slot{}))
		for i := range slots {
			if e := slots[i].entry.Load(); e != nil {
				total += e.bytes()
			}
		}
		sh.mu.Unlock()
	}
	return total
}

func (s *Store) clock() int64 { return int64(time.Since(s.start)) }

// locked locks the shard of a key and the entry that has its logs, or nil, and tells whether it is the key's own.
func (s *Store) locked(k *store.Key) (sh *shard, e *entry, own bool, hash uint64) {
	hash = k.Hash()
	sh = &s.shards[hash%shardCount]
	now := s.clock()
	sh.mu.Lock()
	e = sh.entries.find(k, hash)
	if own = e != nil; !own {
		e = sh.findShared(s, k, hash)
	}
	if e != nil {
		e.lock(now)
	}
	return sh, e, own, hash
}

// lockedToAdd is locked, and adds the entry and the log if they are not there.
func (s *Store) lockedToAdd(k *store.Key, limit *store.Limit) (sh *shard, e *entry, l *log, own bool, hash uint64) {
	hash = k.Hash()
	sh = &s.shards[hash%shardCount]
	now := s.clock()
	sh.mu.Lock()
	e, own = sh.findOrAdd(s, k, hash, now, limit, true)
	l = e.findOrAdd(limit, sh.lastID)
	l.drop(e.now)
	return sh, e, l, own, hash
}

func (sh *shard) unlock(e *entry) {
	if e != nil {
		e.mu.Unlock()
	}
	sh.mu.Unlock()
}

// Settle changes the cost of a recorded take.
func (s *Store) Settle(t *store.Settlement) {
	now := s.now(t.Limit.Algorithm != store.SlidingLog)
	if t.Limit.Algorithm == store.TokenBucket && t.Cost > t.Was { // it may have been forgotten, since it was full
		sh, e, l, _, _ := s.lockedToAdd(&t.Key, t.Limit)
		defer sh.unlock(e)
		l.settleCount(t, now, e.now)
		return
	}
	sh, e, own, hash := s.locked(&t.Key)
	defer sh.unlock(e)
	if e == nil {
		return
	}
	l := e.find(t.Limit)
	switch {
	case l == nil:
		return
	case l.counts():
		l.settleCount(t, now, e.now)
		return
	}
	cost := t.Cost
	if t.Limit.Permits {
		cost = min(cost, 1)
	}
	l.drop(e.now)
	if l.Settle(idIn(own, hash, t.ID), cost); l.Units() == 0 {
		sh.dueNow(s, e, own, &t.Key, hash)
	}
}

// dueNow lets the next sweep look at an entry, and soon.
func (sh *shard) dueNow(s *Store, e *entry, own bool, k *store.Key, hash uint64) (slot int) {
	if !own {
		shares := s.sharedKey(k, hash)
		hash = shares.Hash()
	}
	slot = sh.entries.index(hash, e)
	sh.entries.all()[slot].due = dueAt(e.now)
	s.sweepIn(e.now, 0)
	return slot
}

// Renew moves the entries of takes to the end of the log, and adds those that it does not hold.
func (s *Store) Renew(r *store.Renewal) {
	sh, e, l, own, hash := s.lockedToAdd(&r.Key, r.Limit)
	defer sh.unlock(e)
	ids := slices.Clone(r.IDs)
	for i, id := range ids {
		ids[i] = idIn(own, hash, id)
	}
	slices.Sort(ids)
	l.Renew(e.now, slices.Compact(ids))
}

// Log returns the entries of a log, oldest first, with At and Cost, and with ID and Age as in a MergeRequest. Of a log
// that keys share it returns those of this key, whose IDs are not the ones of their takes.
func (s *Store) Log(k *store.Key, limit *store.Limit) (entries []store.Entry) {
	sh, e, own, hash := s.locked(k)
	defer sh.unlock(e)
	if e == nil {
		return nil
	}
	l := e.find(limit)
	if l == nil || l.counts() {
		return nil
	}
	l.drop(e.now)
	for of := range l.Entries() {
		if own || sharedBy(of.ID, hash) {
			entries = append(entries, store.Entry{
				At: s.start.Add(time.Duration(of.At)), Cost: of.Cost, ID: of.ID, Age: time.Duration(e.now - of.At),
			})
		}
	}
	return entries
}

// Merge adds entries of another log.
func (s *Store) Merge(m *store.MergeRequest) {
	sh, e, l, own, hash := s.lockedToAdd(&m.Key, m.Limit)
	defer sh.unlock(e)
	entries := make([]slide.Entry, 0, len(m.Entries))
	for _, of := range m.Entries {
		if of.Age < m.Limit.Window {
			entries = append(entries, slide.Entry{At: e.now - int64(of.Age), ID: idIn(own, hash, of.ID), Cost: of.Cost})
		}
	}
	l.Merge(entries)
}

// Reset removes what the logs of a key hold, except the entries younger than young. Of logs that keys share it removes
// the entries of this key; numbers of counting algorithms stay there, since other keys count in them too.
func (s *Store) Reset(k *store.Key, limits []*store.Limit, young time.Duration) {
	sh, e, own, hash := s.locked(k)
	defer sh.unlock(e)
	if e == nil {
		return
	}
	for _, limit := range limits {
		l := e.find(limit)
		switch {
		case l == nil:
		case own && l.counts():
			clear(l.Spare()[:])
		case own:
			l.Drop(e.now - int64(young))
		default:
			l.reset(hash, e.now-int64(young))
		}
	}
	sh.tidy(s, sh.dueNow(s, e, own, k, hash))
}
