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

	"github.com/sashlimit/sash/core/internal/slide"
	"github.com/sashlimit/sash/core/store"
)

// Store keeps logs in this process. [New] makes one.
type Store struct {
	start   time.Time
	maxKeys int64

	keys    atomic.Int64  // that have a place: logs of their own
	sharing atomic.Int64  // entries that keys without a place share
	shared  atomic.Uint64 // see Shared
	hand    atomic.Uint32 // where makeRoom has swept last
	timerAt atomic.Int64  // when the pending timer fires, on the store's clock, or noTimer
	classes classes
	shards  [shardCount]shard
}

// shard is a part of the store's keys. Its lock is held while entries and logs are added and removed. Each entry has a
// lock of its own for takes.
type shard struct {
	entries table
	_       [48]byte // keeps the table, which all takes read, off the lock's cache line
	mu      sync.Mutex
	now     int64  // a new entry begins no earlier than this
	lastID  uint64 // a new log begins with the next ID
	_       [40]byte
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

// lock locks the logs of a key and their shard, and finds one of the logs. With add, it adds what is not there.
func (s *Store) lock(k *store.Key, limit *store.Limit, add bool) part {
	hash := k.Hash()
	p := part{hash: hash, shard: &s.shards[hash%shardCount], at: s.clock()}
	p.shard.mu.Lock()
	if add {
		s.makeRoom(&p, k)
	}
	s.find(&p, nil, k, limit, add)
	if p.log != nil {
		p.log.drop(p.at)
	}
	return p
}

func (p *part) unlock() {
	if p.entry != nil {
		p.entry.mu.Unlock()
	}
	p.shard.mu.Unlock()
}

// Settle changes the cost of a recorded take. It reports whether a log of entries has it.
func (s *Store) Settle(t *store.Settlement) (found bool) {
	l, cost := t.Limit, t.Cost
	now := s.now(l.Algorithm != store.SlidingLog)
	p := s.lock(&t.Key, l, l.Algorithm == store.TokenBucket && cost > t.Was) // a full bucket may have been forgotten
	defer p.unlock()
	switch {
	case p.log == nil:
		return false
	case p.log.counts():
		if v := p.log.view(l, now, p.at); v.Settle(t.Period, t.Was, cost) {
			p.log.keep(&v, p.at)
		}
		return false
	case l.Permits:
		cost = min(cost, 1)
	}
	if found = p.log.Settle(p.id(t.ID), cost); p.log.Units() == 0 {
		s.dueNow(&p, &t.Key)
	}
	return found
}

// dueNow lets the next sweep look at an entry, and soon. It returns the slot.
func (s *Store) dueNow(p *part, k *store.Key) int {
	hash := p.hash
	if !p.own {
		shares := s.sharedKey(k, hash)
		hash = shares.Hash()
	}
	slot := p.shard.entries.index(hash, p.entry)
	p.shard.entries.all()[slot].due = dueAt(p.at)
	s.sweepSoon(p.at)
	return slot
}

// Renew moves the entries of takes to the end of the log, and adds those that it does not hold.
func (s *Store) Renew(r *store.Renewal) {
	p := s.lock(&r.Key, r.Limit, true)
	defer p.unlock()
	ids := slices.Clone(r.IDs)
	for i, id := range ids {
		ids[i] = p.id(id)
	}
	slices.Sort(ids)
	p.log.Renew(p.at, slices.Compact(ids))
}

// Log returns the entries of a log, oldest first, with At and Cost, and with ID and Age as in a MergeRequest. Of a log
// that keys share it returns those of this key, whose IDs are not the ones of their takes.
func (s *Store) Log(k *store.Key, limit *store.Limit) (entries []store.Entry) {
	p := s.lock(k, limit, false)
	defer p.unlock()
	if p.log == nil || p.log.counts() {
		return nil
	}
	for e := range p.log.Entries() {
		if p.holds(e.ID) {
			entries = append(entries, store.Entry{
				At: s.start.Add(time.Duration(e.At)), Cost: e.Cost, ID: e.ID, Age: time.Duration(p.at - e.At),
			})
		}
	}
	return entries
}

// Merge adds entries of another log.
func (s *Store) Merge(m *store.MergeRequest) {
	p := s.lock(&m.Key, m.Limit, true)
	defer p.unlock()
	entries := make([]slide.Entry, 0, len(m.Entries))
	for _, e := range m.Entries {
		if e.Age < m.Limit.Window {
			entries = append(entries, slide.Entry{At: p.at - int64(e.Age), ID: p.id(e.ID), Cost: e.Cost})
		}
	}
	p.log.Merge(entries)
}

// Reset removes what the logs of a key hold, except the entries younger than young. Of logs that keys share it removes
// the entries of this key; numbers of counting algorithms stay there, since other keys count in them too.
func (s *Store) Reset(k *store.Key, limits []*store.Limit, young time.Duration) {
	p := s.lock(k, limits[0], false)
	defer p.unlock()
	if p.entry == nil {
		return
	}
	for _, limit := range limits {
		l := p.entry.find(limit)
		switch {
		case l == nil:
		case p.own && l.counts():
			clear(l.Spare()[:])
		case p.own:
			l.Drop(p.at - int64(young))
		default:
			for _, e := range slices.Collect(l.Entries()) {
				if e.At <= p.at-int64(young) && p.holds(e.ID) {
					l.Settle(e.ID, 0)
				}
			}
		}
	}
	p.shard.tidy(s, s.dueNow(&p, k))
}
