package core

import (
	"context"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxKeys is how many keys a [MemoryStore] keeps apart unless told otherwise.
const DefaultMaxKeys = 1 << 18

// MemoryStore keeps the logs in this process: exact, on the monotonic clock,
// about 300 bytes a key and 24 to 48 bytes an admitted request. It needs no
// goroutine and nothing to close: takes also look at other keys, a few at a
// time, and forget those that have gone idle.
//
// It keeps at most so many keys apart. A log with live entries is never
// evicted, because then whoever sends enough keys could reset his own. When
// all places are taken, further keys of a policy share some logs: each still within
// its quota, but denied early if those it shares with are busy. [MemoryStore.Shared]
// counts that.
type MemoryStore struct {
	start   time.Time
	maxKeys int64

	mergeable bool // logs keep their keys as they are, however long

	keys   atomic.Int64
	shared atomic.Uint64
	turn   atomic.Uint32 // which shard a full one sweeps next
	shards [shardCount]shard
}

const (
	shardCount    = 64
	sharedLogs    = 16   // of one policy in one shard, where places are short
	sweepPerKey   = 2    // logs looked at for each new key, so that keys leave faster than they come
	sweepWhenFull = 16   // ... where a new key finds no place
	takesPerSweep = 4    // takes for which one log is looked at: each look may miss the cache
	longestSearch = 4096 // entries of a shared log looked through for a key's own
)

type shard struct {
	mu     sync.Mutex
	now    int64 // of who had the lock last: instants never run backwards
	takes  uint32
	hand   int // of the sweep, in logs.places
	logs   table
	shared map[string]*memoryLog // by policy and a part of the key's hash
	lastID uint64                // no log that begins has had one up to this
	_      [48]byte              // no two locks on one cache line
}

// memoryLog is 256 bytes long: two cache lines that takes read, and two that they write.
type memoryLog struct {
	key    kept
	keep   time.Duration // the longest window asked of this log
	fitted int64         // when fit was last called
	varies bool          // windows do
	_      [16]byte
	record
}

func (s *MemoryStore) newLog(sh *shard, k *StorageKey) *memoryLog {
	return &memoryLog{key: k.kept(s.mergeable), fitted: sh.now, record: record{next: sh.lastID + 1}}
}

// MemoryOption changes a [MemoryStore].
type MemoryOption func(*MemoryStore)

// MaxKeys is how many keys have a log of their own at once, at least 1. The
// default is [DefaultMaxKeys].
func MaxKeys(n int) MemoryOption {
	return func(s *MemoryStore) { s.maxKeys = int64(n) }
}

// NewMemoryStore makes a store for one or several limiters of this process.
// Without [WithStore] a limiter makes one for itself.
func NewMemoryStore(opts ...MemoryOption) *MemoryStore {
	s := &MemoryStore{start: time.Now(), maxKeys: DefaultMaxKeys}
	for _, o := range opts {
		if o != nil {
			o(s)
		}
	}
	return s
}

// Keys is how many keys have a log of their own now.
func (s *MemoryStore) Keys() int { return int(s.keys.Load()) }

// Shared is how many takes have drawn from a log that their key shares with others, since the
// store was made. If it grows, more clients are live than [MaxKeys] allows.
func (s *MemoryStore) Shared() uint64 { return s.shared.Load() }

// Validate implements [Store].
func (s *MemoryStore) Validate(Limits) error {
	if s.start.IsZero() {
		return &ConfigError{Option: "MemoryStore", Value: "zero", Reason: "make it with core.NewMemoryStore"}
	}
	if s.maxKeys < 1 {
		return &ConfigError{Option: "MaxKeys", Value: strconv.FormatInt(s.maxKeys, 10), Reason: "keep at least 1 key apart"}
	}
	return nil
}

// Take implements [Store]. It never fails and does not look at ctx.
func (s *MemoryStore) Take(_ context.Context, t Take) (a Answer, err error) {
	s.take(&t.Key, &t, &a)
	return a, nil
}

// take is Take without its copies: t need not have a key. Where it has no ID it is told the one that it gets.
func (s *MemoryStore) take(key *StorageKey, t *Take, a *Answer) {
	sh, i, hash := s.locked(key)
	defer sh.mu.Unlock()
	now, id, mode := sh.now, t.ID, t.Mode
	log, own := sh.logs.at(i), true
	if log == nil {
		log, own = sh.place(s, key, hash, t)
	}
	if log == nil { // a peek at what is not there
		empty.take(now, 0, t, mode, a)
		return
	}
	if !own {
		if t.ID == 0 {
			sh.lastID++
			t.ID = sh.lastID
		}
		id = sharedID(hash, t.ID)
		if mode == ModeChargeDenied {
			mode = ModeCharge // one client's denials must not keep others out
		}
	}
	if log.keep < t.Keep || t.Varies { // a write would take the line from other cores
		log.keep, log.varies = max(log.keep, t.Keep), log.varies || t.Varies
	}
	log.drop(now - int64(log.keep))
	if id = log.take(now, id, t, mode, a); own {
		t.ID = id
	}
	if sh.takes++; sh.takes%takesPerSweep == 0 {
		sh.sweep(s, 1)
	}
}

var empty record // which nothing is added to

// locked is where a key's log is, or -1, with the lock held.
func (s *MemoryStore) locked(k *StorageKey) (sh *shard, i int, hash uint64) {
	hash = k.hash()
	sh = &s.shards[hash%shardCount]
	now := int64(time.Since(s.start)) // not while others wait
	sh.mu.Lock()
	sh.now = max(sh.now, now)
	return sh, sh.logs.find(k, hash), hash
}

// Settle implements [Store].
func (s *MemoryStore) Settle(_ context.Context, t Settle) error {
	sh, i, hash := s.locked(&t.Key)
	defer sh.mu.Unlock()
	if log := sh.logs.at(i); log != nil {
		log.settle(t.ID, t.Cost)
	} else if log := sh.shared[string(t.Key.appendSlot(nil, hash))]; log != nil {
		log.settle(sharedID(hash, t.ID), t.Cost)
	}
	return nil
}

// Log implements [Store]. A key that shares a log sees its own entries of it.
func (s *MemoryStore) Log(_ context.Context, k StorageKey, window time.Duration) ([]Entry, error) {
	sh, i, hash := s.locked(&k)
	defer sh.mu.Unlock()
	log, own := sh.logs.at(i), true
	if log == nil {
		log, own = sh.shared[string(k.appendSlot(nil, hash))], false
	}
	if log == nil {
		return nil, nil
	}
	var entries []Entry
	for i := log.since(sh.now - int64(window)); i < log.count; i++ {
		if own || sharedBy(log.id(i), hash) {
			entries = append(entries, Entry{At: s.start.Add(time.Duration(log.at(i))), Cost: log.cost(i)})
		}
	}
	return entries, nil
}

// Merge implements [Store]. For a key that shares a log, entries become as young as
// that log's youngest.
func (s *MemoryStore) Merge(_ context.Context, m Merge) error {
	sh, i, hash := s.locked(&m.Key)
	defer sh.mu.Unlock()
	log, own, now := sh.logs.at(i), true, sh.now
	if log == nil {
		log, own = sh.place(s, &m.Key, hash, new(Take))
	}
	log.keep = max(log.keep, m.Keep)
	for _, e := range m.Entries {
		switch {
		case own:
			log.insert(now-int64(e.Age), e.ID, e.Cost)
		case !log.holds(sharedID(hash, e.ID), ^uint64(0)):
			log.add(now, sharedID(hash, e.ID), e.Cost)
		}
	}
	return nil
}

// Reset implements [Store]. For a key that shares a log it does nothing: the
// units in there are also others'.
func (s *MemoryStore) Reset(_ context.Context, k StorageKey) error {
	sh, i, _ := s.locked(&k)
	defer sh.mu.Unlock()
	if i >= 0 {
		sh.remove(s, i)
	}
	return nil
}

// Where keys share a log, one half of an entry's id tells whose it is, the other which of theirs.
func sharedID(hash, id uint64) uint64 { return hash&^math.MaxUint32 | id&math.MaxUint32 }

func sharedBy(id, hash uint64) bool { return (id^hash)>>32 == 0 }

// place finds a log for a key that has none, and says whether it is the key's own. For a
// peek it makes none.
func (sh *shard) place(s *MemoryStore, key *StorageKey, hash uint64, t *Take) (log *memoryLog, own bool) {
	var space [64]byte
	slot := key.appendSlot(space[:0], hash)
	common := sh.shared[string(slot)]
	if common != nil {
		common.drop(sh.now - int64(common.keep))
		// A key whose units are in there stays until they have left: a log of
		// its own would be a second quota.
		if common.count > longestSearch || common.holds(hash, math.MaxUint32<<32) {
			if t.Mode != ModePeek {
				s.shared.Add(1)
			}
			return common, false
		}
	}
	if t.Mode == ModePeek {
		return nil, false
	}
	sh.sweep(s, sweepPerKey)
	if s.claim() || s.makeRoom(sh) && s.claim() {
		log := s.newLog(sh, key)
		sh.logs.add(hash, log)
		return log, true
	}
	if common == nil {
		common = new(memoryLog)
		if sh.shared == nil {
			sh.shared = make(map[string]*memoryLog)
		}
		sh.shared[string(slot)] = common
	}
	s.shared.Add(1)
	return common, false
}

// makeRoom looks for idle keys in the shard whose lock is held, and then in
// others whose lock nobody holds, until it has looked at enough of them.
func (s *MemoryStore) makeRoom(sh *shard) bool {
	freed := sh.sweep(s, sweepWhenFull)
	for i, left := 0, sweepWhenFull; i < shardCount && left > 0 && !freed; i++ {
		other := &s.shards[s.turn.Add(1)%shardCount]
		if other == sh || !other.mu.TryLock() {
			continue
		}
		n := min(left, other.logs.used)
		other.now = max(other.now, sh.now)
		freed = other.sweep(s, n)
		left -= n
		other.mu.Unlock()
	}
	return freed
}

// claim takes one of the places for keys.
func (s *MemoryStore) claim() bool {
	if s.keys.Add(1) <= s.maxKeys {
		return true
	}
	s.keys.Add(-1)
	return false
}

// sweep looks at the next n logs, forgets those that are empty and returns
// unused memory of the others. It reports whether a place became free.
func (sh *shard) sweep(s *MemoryStore, n int) (freed bool) {
	for n = min(n, sh.logs.used); n > 0; {
		if sh.hand >= len(sh.logs.places) {
			sh.hand = 0
		}
		log := sh.logs.places[sh.hand].log
		if log == nil {
			sh.hand++
			continue
		}
		n--
		log.drop(sh.now - int64(log.keep))
		if log.count == 0 {
			sh.remove(s, sh.hand)
			freed = true
			continue // another log may have taken its place
		}
		if sh.now-log.fitted > int64(log.keep) {
			log.fit()
			log.fitted = sh.now
		}
		sh.hand++
	}
	return freed
}

func (sh *shard) remove(s *MemoryStore, i int) {
	sh.lastID = max(sh.lastID, sh.logs.places[i].log.next)
	sh.logs.remove(i)
	s.keys.Add(-1)
}

// appendSlot writes which log the key shares with others where places are short.
func (k *StorageKey) appendSlot(b []byte, hash uint64) []byte {
	return append(append(b, k.space.name...), byte(hash/shardCount%sharedLogs))
}
