// Package memory keeps logs in this process: a hash table of them, sharded, with a lock for each log. It is the store
// behind core.MemoryStore and what decides during an outage of another store.
//
// Its methods take pointers to concrete types, not the interfaces of package store: through an interface a Take and an
// Answer would move to the heap.
package memory

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/slide"
	"github.com/sashlimit/sash/core/store"
)

// Store keeps logs in this process. [New] makes one.
type Store struct {
	start   time.Time
	maxKeys int64

	keys   atomic.Int64
	shared atomic.Uint64
	turn   atomic.Uint32 // the shard that is swept next when all places are taken
	shards [shardCount]shard

	prefixCounts atomic.Pointer[prefixCounts]
	sharedLogs   atomic.Int64 // how many there are
	fires        atomic.Int64 // when the latest timer does, on the store's clock, or noTimer
	period       atomic.Int64 // from one sweep by timer to the next: the shortest that any log has asked for
}

const (
	shardCount    = 64
	longestSearch = 4096 // entries of a shared log looked through for a key's own
)

// shard is a part of the store's keys. Its lock is for those that come and go; a log that is there has its own.
type shard struct {
	logs   table
	_      [48]byte // what all read is not on the lock's cache line
	mu     sync.Mutex
	now    int64 // no log that begins does so before this
	hand   int   // of the sweep, in logs
	lastID uint64
	shared map[string]*keyLog // by policy and a part of the key's hash
	_      [24]byte
}

// keyLog is 192 bytes long: a cache line that takes read, and two that they write.
type keyLog struct {
	key  store.StoredKey
	keep time.Duration // the longest window asked of this log
	slide.Log
	mu     sync.Mutex
	now    int64 // of who had the lock last: instants never run backwards
	takes  uint8
	varies bool // windows do
	gone   bool // it is not in the table any more
}

// lock reports whether the log is still there, and if so locks it. The clock is read before, not while others wait.
func (l *keyLog) lock(now int64) bool {
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		return false
	}
	if l.now < now {
		l.now = now
	}
	return true
}

// New makes a store that keeps so many keys apart.
func New(maxKeys int) *Store {
	s := &Store{start: time.Now(), maxKeys: int64(maxKeys)}
	for i := range s.shards {
		s.shards[i].now = math.MinInt64 // a clock of testing/synctest may be behind that by which the store was made
	}
	s.fires.Store(noTimer)
	s.period.Store(int64(longestPeriod))
	return s
}

// MaxKeys returns how many keys the store keeps apart at most.
func (s *Store) MaxKeys() int { return int(s.maxKeys) }

// HasLedger reports, for tests, whether key has a log of its own with entries, and whether that has a ledger.
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

// Shared is how many takes have drawn from a log that their key shares with others, since the
// store was made. If it grows, more clients are live than the store has places for, or very many have addresses in one prefix.
func (s *Store) Shared() uint64 { return s.shared.Load() }

// Take decides about t into a, which is zero, and records it. The key is an argument because it is large and t need not
// have one. Where t has no ID it gets the one that the log assigns, which saves the log memory.
func (s *Store) Take(key *store.Key, t *store.Take, a *store.Answer) {
	hash := key.Hash()
	sh, now := &s.shards[hash%shardCount], s.clock()
	if log := sh.logs.find(key, hash); log == nil || !log.lock(now) {
		sh.takeNew(s, key, hash, now, t, a)
	} else if log.take(t, a) {
		sh.sweepNow(s, now)
	}
}

// takeNew is take where the key seems to have no log of its own.
func (sh *shard) takeNew(s *Store, key *store.Key, hash uint64, now int64, t *store.Take, a *store.Answer) {
	sh.mu.Lock()
	log, own := sh.place(s, key, hash, now, t.Plan.Keep, t.Mode)
	if own {
		sh.mu.Unlock()
		log.take(t, a)
		return
	}
	defer sh.mu.Unlock()
	if log == nil { // a peek at what is not there
		decide(&empty, now, 0, t, t.Mode, a)
		return
	}
	if t.ID == 0 {
		sh.lastID++
		t.ID = sh.lastID
	}
	log.takeShared(hash, t, a)
}

var empty slide.Log // for peeks at keys without a log; nothing is added to it

func (s *Store) clock() int64 { return int64(time.Since(s.start)) }

// take unlocks the log. It reports whether it is time to look at others.
func (l *keyLog) take(t *store.Take, a *store.Answer) (sweep bool) {
	defer l.mu.Unlock()
	if l.keep < t.Plan.Keep || t.Plan.Varies { // a write would take the line from other cores
		l.keep, l.varies = max(l.keep, t.Plan.Keep), l.varies || t.Plan.Varies
	}
	l.Drop(l.now - int64(l.keep))
	t.ID = decide(&l.Log, l.now, t.ID, t, t.Mode, a)
	l.takes++
	return l.takes%takesPerSweep == 0
}

// takeShared is take where the key shares the log.
func (l *keyLog) takeShared(hash uint64, t *store.Take, a *store.Answer) {
	defer l.mu.Unlock()
	mode := t.Mode
	l.keep = max(l.keep, t.Plan.Keep)
	l.Drop(l.now - int64(l.keep))
	switch {
	case mode == store.ModeChargeDenied:
		mode = store.ModeCharge // one client's denials must not keep others out
	case mode == store.ModeRecord && l.Units(0)+t.Cost > store.MaxRecorded:
		mode = store.ModePeek // nor must what one records push out what others have used
	}
	decide(&l.Log, l.now, sharedID(hash, t.ID), t, mode, a)
	if t.Mode == store.ModeRecord {
		a.Allowed, a.Retry = true, 0
	}
}

// locked is the log that has key's entries, or nil. It and its shard are locked until [shard.unlock].
func (s *Store) locked(k *store.Key) (sh *shard, log *keyLog, own bool, hash uint64) {
	hash = k.Hash()
	sh = &s.shards[hash%shardCount]
	now := s.clock()
	sh.mu.Lock()
	if log = sh.logs.find(k, hash); log == nil {
		log = sh.shared[string(s.appendSlot(nil, k, hash))]
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
	switch {
	case own:
		log.Settle(t.ID, t.Cost)
		if t.Cost == 0 { // it may be idle earlier than it was
			sh.logs.all()[sh.logs.index(hash, log)].due = dueAt(log.now, 0)
		}
	case log != nil:
		log.Settle(sharedID(hash, t.ID), t.Cost)
	}
}

// Log lists what was recorded within the last window. A key that shares a log sees its own entries of it.
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

// Merge adds entries of another log. For a key that shares a log, entries become as young as
// that log's youngest.
func (s *Store) Merge(m *store.MergeRequest) {
	hash := m.Key.Hash()
	sh, now := &s.shards[hash%shardCount], s.clock()
	sh.mu.Lock()
	log, own := sh.place(s, &m.Key, hash, now, m.Keep, store.ModeRecord)
	defer sh.unlock(log)
	log.keep = max(log.keep, m.Keep)
	for _, e := range m.Entries {
		switch {
		case own:
			log.Insert(log.now-int64(e.Age), e.ID, e.Cost)
		case !log.Holds(sharedID(hash, e.ID), ^uint64(0)):
			log.Add(log.now, sharedID(hash, e.ID), e.Cost)
		}
	}
}

// Reset forgets a log. For a key that shares a log it does nothing: the
// units in there are also others'.
func (s *Store) Reset(k *store.Key) {
	sh, log, own, hash := s.locked(k)
	defer sh.unlock(log)
	if own {
		sh.remove(s, sh.logs.index(hash, log))
	}
}

// Where keys share a log, one half of an entry's id tells whose it is, the other which of theirs.
func sharedID(hash, id uint64) uint64 { return hash&^math.MaxUint32 | id&math.MaxUint32 }

func sharedBy(id, hash uint64) bool { return (id^hash)>>32 == 0 }

// place finds a log for a key that seems to have none and locks it, and says whether it is the key's own. For a
// peek it makes none. The shard is locked, which is also what guards logs that keys share.
func (sh *shard) place(s *Store, key *store.Key, hash uint64, now int64, keep time.Duration, mode store.Mode) (log *keyLog, own bool) {
	sh.now = max(sh.now, now)
	if log = sh.logs.find(key, hash); log != nil {
		log.lock(now)
		return log, true
	}
	var common *keyLog
	var space [64]byte
	if len(sh.shared) > 0 { // mostly there are none
		common = sh.shared[string(s.appendSlot(space[:0], key, hash))]
	}
	if common != nil {
		common.lock(sh.now)
		sh.now = common.now // a key that gets a log of its own does not go back in time
		common.Drop(common.now - int64(common.keep))
		// A key whose units are in there stays until they have left: a log of
		// its own would be a second quota.
		if common.Len() > longestSearch || common.Holds(hash, math.MaxUint32<<32) {
			if mode != store.ModePeek {
				s.shared.Add(1)
			}
			return common, false
		}
		common.mu.Unlock()
	}
	if mode == store.ModePeek {
		return nil, false
	}
	sh.sweep(s, sweepPerKey)
	if s.claim(key) || s.makeRoom(sh) && s.claim(key) {
		log = &keyLog{key: key.Stored(false), now: sh.now, Log: slide.New(sh.lastID)}
		log.lock(now)
		sh.logs.add(hash, log, dueAt(sh.now, 0)) // nothing may ever be recorded in it
		s.sweepWithin(now, keep)
		return log, true
	}
	if common == nil {
		common = &keyLog{now: sh.now}
		if sh.shared == nil {
			sh.shared = make(map[string]*keyLog)
		}
		sh.shared[string(s.appendSlot(nil, key, hash))] = common
		s.sharedLogs.Add(1)
		s.sweepWithin(now, keep)
	}
	common.lock(sh.now)
	s.shared.Add(1)
	return common, false
}
