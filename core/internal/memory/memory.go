// Package memory stores logs in this process, in a sharded hash table with a lock for each log. It is the store behind
// core.MemoryStore, and package guard uses it to decide while another store does not answer.
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

// Store stores logs in this process. [New] makes one.
type Store struct {
	start   time.Time
	maxKeys int64

	keys   atomic.Int64
	shared atomic.Uint64 // takes of shared logs
	swept  atomic.Uint32 // the shard that makeRoom swept last
	shards [shardCount]shard

	prefixCounts atomic.Pointer[prefixCounts]
	sharedLogs   atomic.Int64 // the number of shared logs
	timerAt      atomic.Int64 // when the pending timer fires, on the store's clock, or noTimer
	period       atomic.Int64 // between sweeps by timer: the shortest that any log needs
}

const longestSearch = 4096 // entries of a shared log that are searched for those of one key

// shard is a part of the store's keys. Its lock is held while logs are added and removed. Each log has a lock of its
// own for takes.
type shard struct {
	logs   table
	_      [48]byte // keeps the table, which all takes read, off the lock's cache line
	mu     sync.Mutex
	now    int64  // a new log begins no earlier than this
	hand   int    // the slot that is swept next
	size   int    // of the table, when hand was set
	lastID uint64 // a new log begins with the next ID
	swept  bool   // the hand has reached the end of the table since this was unset
	_      [23]byte
}

// New makes a store with separate logs for up to maxKeys keys. Further keys share logs.
func New(maxKeys int) *Store {
	s := &Store{start: time.Now(), maxKeys: int64(maxKeys)}
	for i := range s.shards {
		s.shards[i].now = math.MinInt64 // the clock of a testing/synctest bubble may be before the store's start
	}
	s.timerAt.Store(noTimer)
	s.period.Store(int64(longestPeriod))
	return s
}

// MaxKeys returns how many keys have a log of their own at most.
func (s *Store) MaxKeys() int { return int(s.maxKeys) }

// HasLedger is for tests. It reports whether key has a log of its own with entries, and whether that has a ledger.
func (s *Store) HasLedger(key *store.Key) (entries, ledger bool) {
	sh, log, own, _ := s.locked(key)
	defer sh.unlock(log)
	if !own || log.Len() == 0 {
		return false, false
	}
	return true, log.HasLedger()
}

// Keys returns how many keys have a log of their own now.
func (s *Store) Keys() int { return int(s.keys.Load()) }

// Shared returns how many takes were decided by a shared log since the store was made. If it grows, more than MaxKeys
// keys are in use, or very many of them are addresses in one prefix.
func (s *Store) Shared() uint64 { return s.shared.Load() }

// Bytes returns how many bytes of memory the keys and their logs take, without what the allocator rounds up. It locks
// each log for a moment.
func (s *Store) Bytes() int {
	total := int(unsafe.Sizeof(*s))
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		table := sh.logs.all()
		total += len(table) * int(unsafe.Sizeof(slot{}))
		for i := range table {
			if log := table[i].log.Load(); log != nil {
				total += log.bytes()
			}
		}
		sh.mu.Unlock()
	}
	return total
}

func (l *keyLog) bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	//nolint:staticcheck // keyLog has a method bytes of its own
	return int(unsafe.Sizeof(*l)) + l.key.Bytes() + l.Log.Bytes()
}

var empty slide.Log // answers peeks at keys without a log; nothing is added to it

func (s *Store) clock() int64 { return int64(time.Since(s.start)) }

// locked returns the log that has the entries of k, or nil, and whether it is the key's own. The log and its shard are
// locked until [shard.unlock].
func (s *Store) locked(k *store.Key) (sh *shard, log *keyLog, own bool, hash uint64) {
	hash = k.Hash()
	sh = &s.shards[hash%shardCount]
	now := s.clock()
	sh.mu.Lock()
	if log = sh.logs.find(k, hash); log == nil {
		log = sh.findShared(s, k, hash)
	} else {
		own = true
	}
	if log != nil {
		log.lock(now)
	}
	return sh, log, own, hash
}

func (sh *shard) unlock(log *keyLog) {
	if log != nil {
		log.mu.Unlock()
	}
	sh.mu.Unlock()
}

// Settle changes the cost of a recorded take.
func (s *Store) Settle(t *store.Settlement) {
	sh, log, own, hash := s.locked(&t.Key)
	defer sh.unlock(log)
	if log == nil {
		return
	}
	id := t.ID
	if !own {
		bucket := s.bucketOf(&t.Key, hash)
		id, hash = sharedID(hash, id), bucket.Hash()
	}
	if log.Settle(id, t.Cost); t.Cost == 0 { // the log may be empty earlier
		sh.logs.all()[sh.logs.index(hash, log)].due = dueAt(log.now, 0)
	}
}

// lockedToAdd is locked for entries that are kept for some time. It adds a log if there is none.
func (s *Store) lockedToAdd(k *store.Key, keep time.Duration) (sh *shard, log *keyLog, own bool, hash uint64) {
	hash = k.Hash()
	sh = &s.shards[hash%shardCount]
	now := s.clock()
	sh.mu.Lock()
	log, own = sh.findOrAdd(s, k, hash, now, keep, store.ModeRecord, true)
	log.keep = max(log.keep, keep)
	return sh, log, own, hash
}

// Renew moves the entries of takes to the end of the log, and adds those that it does not hold.
func (s *Store) Renew(r *store.Renewal) {
	sh, log, own, hash := s.lockedToAdd(&r.Key, r.Keep)
	defer sh.unlock(log)
	ids := slices.Clone(r.IDs)
	if !own {
		for i, id := range ids {
			ids[i] = sharedID(hash, id)
		}
	}
	slices.Sort(ids)
	log.Drop(log.now - int64(log.keep))
	log.Renew(log.now, slices.Compact(ids))
}

// Log returns the entries of a key in the last window. Of a shared log it returns only those of this key.
func (s *Store) Log(k *store.Key, window time.Duration) (entries []store.Entry) {
	sh, log, own, hash := s.locked(k)
	defer sh.unlock(log)
	if log == nil {
		return nil
	}
	for i := log.Since(log.now - int64(window)); i < log.Len(); i++ {
		if own || sharedBy(log.ID(i), hash) {
			entries = append(entries, store.Entry{At: s.start.Add(time.Duration(log.At(i))), Cost: log.Cost(i)})
		}
	}
	return entries
}

// Merge adds entries of another log. In a shared log they get the instant of the merge, as entries are in order, unless
// they have left all windows.
func (s *Store) Merge(m *store.MergeRequest) {
	sh, log, own, hash := s.lockedToAdd(&m.Key, m.Keep)
	defer sh.unlock(log)
	for _, e := range m.Entries {
		switch {
		case own:
			log.Insert(log.now-int64(e.Age), e.ID, e.Cost)
		case e.Age < m.Keep && !log.Holds(sharedID(hash, e.ID), ^uint64(0)):
			log.Add(log.now, sharedID(hash, e.ID), e.Cost)
		}
	}
}

// Reset removes the log of a key. It does nothing if the key shares a log, because other keys use it too.
func (s *Store) Reset(k *store.Key) {
	sh, log, own, hash := s.locked(k)
	defer sh.unlock(log)
	if own {
		sh.remove(s, sh.logs.index(hash, log))
	}
}

// findShared returns the log that a key without one of its own shares, or nil. The caller holds the shard's lock.
func (sh *shard) findShared(s *Store, key *store.Key, hash uint64) *keyLog {
	if s.sharedLogs.Load() == 0 { // as mostly
		return nil
	}
	bucket := s.bucketOf(key, hash)
	return sh.logs.find(&bucket, bucket.Hash())
}

// findOrAdd returns a log for a key, locked, and whether it is the key's own. If there is none, it adds one, or for a
// peek returns nil. The caller holds the shard's lock, without which no shared log is locked. With sweep, other logs
// are swept first; the caller must then hold the lock of no log.
func (sh *shard) findOrAdd(
	s *Store, key *store.Key, hash uint64, now int64, keep time.Duration, mode store.Mode,
	sweep bool,
) (log *keyLog, own bool) {
	sh.now = max(sh.now, now)
	if log = sh.logs.find(key, hash); log != nil {
		log.lock(now)
		return log, true
	}
	shared := sh.findShared(s, key, hash)
	if shared != nil {
		shared.lock(sh.now)
		sh.now = shared.now // a log of the key's own must not begin before the shared log's entries
		shared.Drop(shared.now - int64(shared.keep))
		// The key keeps sharing the log until its entries have left: a log of its own would be a second quota.
		// It is not known whose numbers of another algorithm are, so all keys do.
		counting := shared.Len() == 0 && !shared.isVoid()
		if counting || shared.Len() > longestSearch || shared.Holds(hash, math.MaxUint32<<32) {
			if mode != store.ModePeek {
				s.shared.Add(1)
			}
			return shared, false
		}
		shared.mu.Unlock()
	}
	if mode == store.ModePeek {
		return nil, false
	}
	if sweep {
		sh.sweep(s, sweepPerKey)
	}
	if s.claim(key) || sweep && s.makeRoom(sh) && s.claim(key) {
		log = &keyLog{key: key.Stored(false), now: sh.now, Log: slide.New(sh.lastID)}
		log.lock(now)
		sh.logs.add(hash, log, dueAt(sh.now, 0)) // due at once, because the take may record nothing
		s.sweepWithin(now, keep)
		return log, true
	}
	if shared == nil || shared.removed { // by the sweep
		bucket := s.bucketOf(key, hash)
		shared = &keyLog{key: bucket.Stored(false), now: sh.now, shared: true}
		sh.logs.add(bucket.Hash(), shared, dueAt(sh.now, 0))
		s.sharedLogs.Add(1)
		s.sweepWithin(now, keep)
	}
	shared.lock(sh.now)
	s.shared.Add(1)
	return shared, false
}
