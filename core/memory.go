package core

import (
	"context"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/slide"
)

// DefaultMaxKeys is how many keys a [MemoryStore] keeps apart unless told otherwise.
const DefaultMaxKeys = 1 << 18

// MemoryStore keeps the logs in this process: exact, on the monotonic clock,
// about 230 bytes a key, which hold seven admitted requests, and 8 to 16 bytes each further one: three
// times that where requests cost more than a unit or are corrected.
//
// There is nothing to close. Takes sweep a few other keys each, and while there are keys a timer sweeps all of them,
// in short steps. The memory of a key that has gone idle is given back within two of its longest windows and a
// minute, with or without traffic, and so is what a log that remains needed for a burst. A store that is not referred
// to any more is collected although its timer is pending.
//
// # Places
//
// The store keeps at most so many keys apart; see [MaxKeys]. A log with live entries is never
// evicted, because then whoever sends enough keys could reset his own. When
// all places are taken, further keys of a policy share some logs: each still within
// its quota, but denied early if those it shares with are busy. [MemoryStore.Shared]
// counts that. Logs that are shared are bounded as well: at most 17,408 a policy, and given back when they are idle.
//
// # Floods of addresses
//
// A client with a block of addresses has as many keys. So that a flood of them takes no places from others, a new
// address shares a log, although places are free, where its IPv6 /48 holds twice as many places as are free, its /40
// four times, its /32 or its IPv4 /8 eight times, its /24 sixteen times, or its IPv4 /16 four times as many. A flood
// from one /48 leaves a third of all places to others; from a /44 or an IPv4 /16 a fifth; from a /32 or an IPv4 /8 a
// ninth; from a /29 a seventeenth; and from n IPv4 /16s in n /8s one of 4n+1. While places are free, clients
// elsewhere do not notice.
//
// Addresses also share logs by prefix, and share none with texts. Where a store is full all the same, a flood from
// one /32 or IPv4 /16 fills one in 64 of the logs that addresses share, and denies that part of new clients.
//
// Clients within a prefix that is flooded share logs with the flood, and are denied early. A botnet with addresses in
// so many prefixes that hardly a place is free denies new clients everywhere; a larger MaxKeys is the remedy. Keys
// that are no addresses cannot be told apart by origin: verify a text that clients can choose. And where most clients
// are in one prefix, as in a private network or behind one provider, make MaxKeys larger by the share that they do
// not get.
type MemoryStore struct {
	start   time.Time
	maxKeys int64

	keys   atomic.Int64
	shared atomic.Uint64
	turn   atomic.Uint32 // which shard is swept next where there is no place
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
	shared map[string]*memoryLog // by policy and a part of the key's hash
	_      [24]byte
}

// memoryLog is 192 bytes long: a cache line that takes read, and two that they write.
type memoryLog struct {
	key  kept
	keep time.Duration // the longest window asked of this log
	slide.Log
	mu     sync.Mutex
	now    int64 // of who had the lock last: instants never run backwards
	takes  uint8
	varies bool // windows do
	gone   bool // it is not in the table any more
}

// lock reports whether the log is still there, and if so locks it. The clock is read before, not while others wait.
func (l *memoryLog) lock(now int64) bool {
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

// MemoryOption changes a [MemoryStore].
type MemoryOption func(*MemoryStore)

// MaxKeys is how many keys have a log of their own at once, at least 1. The
// default is [DefaultMaxKeys]. One prefix of addresses gets a part of them; see [MemoryStore].
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
	for i := range s.shards {
		s.shards[i].now = math.MinInt64 // a clock of testing/synctest may be behind that by which the store was made
	}
	s.fires.Store(noTimer)
	s.period.Store(int64(longestPeriod))
	return s
}

// Keys is how many keys have a log of their own now.
func (s *MemoryStore) Keys() int { return int(s.keys.Load()) }

// Shared is how many takes have drawn from a log that their key shares with others, since the
// store was made. If it grows, more clients are live than [MaxKeys] allows, or very many have addresses in one prefix.
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
	hash := key.hash()
	sh, now := &s.shards[hash%shardCount], s.clock()
	if log := sh.logs.find(key, hash); log == nil || !log.lock(now) {
		sh.takeNew(s, key, hash, now, t, a)
	} else if log.take(t, a) {
		sh.sweepNow(s, now)
	}
}

// takeNew is take where the key seems to have no log of its own.
func (sh *shard) takeNew(s *MemoryStore, key *StorageKey, hash uint64, now int64, t *Take, a *Answer) {
	sh.mu.Lock()
	log, own := sh.place(s, key, hash, now, t)
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

func (s *MemoryStore) clock() int64 { return int64(time.Since(s.start)) }

// take unlocks the log. It reports whether it is time to look at others.
func (l *memoryLog) take(t *Take, a *Answer) (sweep bool) {
	defer l.mu.Unlock()
	if l.keep < t.Keep || t.Varies { // a write would take the line from other cores
		l.keep, l.varies = max(l.keep, t.Keep), l.varies || t.Varies
	}
	l.Drop(l.now - int64(l.keep))
	t.ID = decide(&l.Log, l.now, t.ID, t, t.Mode, a)
	l.takes++
	return l.takes%takesPerSweep == 0
}

// takeShared is take where the key shares the log.
func (l *memoryLog) takeShared(hash uint64, t *Take, a *Answer) {
	defer l.mu.Unlock()
	mode := t.Mode
	l.keep = max(l.keep, t.Keep)
	l.Drop(l.now - int64(l.keep))
	switch {
	case mode == ModeChargeDenied:
		mode = ModeCharge // one client's denials must not keep others out
	case mode == ModeRecord && l.Units(0)+t.Cost > MaxRecorded:
		mode = ModePeek // nor must what one records push out what others have used
	}
	decide(&l.Log, l.now, sharedID(hash, t.ID), t, mode, a)
	if t.Mode == ModeRecord {
		a.Allowed, a.Retry = true, 0
	}
}

// locked is the log that has key's entries, or nil. It and its shard are locked until [shard.unlock].
func (s *MemoryStore) locked(k *StorageKey) (sh *shard, log *memoryLog, own bool, hash uint64) {
	hash = k.hash()
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

func (sh *shard) unlock(log *memoryLog) {
	if log != nil {
		log.mu.Unlock()
	}
	sh.mu.Unlock()
}

// Settle implements [Store].
func (s *MemoryStore) Settle(_ context.Context, t Settle) error {
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
	return nil
}

// Log implements [Store]. A key that shares a log sees its own entries of it.
func (s *MemoryStore) Log(_ context.Context, k StorageKey, window time.Duration) ([]Entry, error) {
	sh, log, own, hash := s.locked(&k)
	defer sh.unlock(log)
	if log == nil {
		return nil, nil
	}
	var entries []Entry
	for i := log.Since(log.now - int64(window)); i < log.Len(); i++ {
		if own || sharedBy(log.ID(i), hash) {
			entries = append(entries, Entry{At: s.start.Add(time.Duration(log.At(i))), Cost: log.Cost(i)})
		}
	}
	return entries, nil
}

// Merge implements [Store]. For a key that shares a log, entries become as young as
// that log's youngest.
func (s *MemoryStore) Merge(_ context.Context, m Merge) error {
	hash := m.Key.hash()
	sh, now := &s.shards[hash%shardCount], s.clock()
	sh.mu.Lock()
	log, own := sh.place(s, &m.Key, hash, now, &Take{Keep: m.Keep})
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
	return nil
}

// Reset implements [Store]. For a key that shares a log it does nothing: the
// units in there are also others'.
func (s *MemoryStore) Reset(_ context.Context, k StorageKey) error {
	sh, log, own, hash := s.locked(&k)
	defer sh.unlock(log)
	if own {
		sh.remove(s, sh.logs.index(hash, log))
	}
	return nil
}

// Where keys share a log, one half of an entry's id tells whose it is, the other which of theirs.
func sharedID(hash, id uint64) uint64 { return hash&^math.MaxUint32 | id&math.MaxUint32 }

func sharedBy(id, hash uint64) bool { return (id^hash)>>32 == 0 }

// place finds a log for a key that seems to have none and locks it, and says whether it is the key's own. For a
// peek it makes none. The shard is locked, which is also what guards logs that keys share.
func (sh *shard) place(s *MemoryStore, key *StorageKey, hash uint64, now int64, t *Take) (log *memoryLog, own bool) {
	sh.now = max(sh.now, now)
	if log = sh.logs.find(key, hash); log != nil {
		log.lock(now)
		return log, true
	}
	var common *memoryLog
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
			if t.Mode != ModePeek {
				s.shared.Add(1)
			}
			return common, false
		}
		common.mu.Unlock()
	}
	if t.Mode == ModePeek {
		return nil, false
	}
	sh.sweep(s, sweepPerKey)
	if s.claim(key) || s.makeRoom(sh) && s.claim(key) {
		log = &memoryLog{key: key.kept(false), now: sh.now, Log: slide.New(sh.lastID)}
		log.lock(now)
		sh.logs.add(hash, log, dueAt(sh.now, 0)) // nothing may ever be recorded in it
		s.sweepWithin(now, t.Keep)
		return log, true
	}
	if common == nil {
		common = &memoryLog{now: sh.now}
		if sh.shared == nil {
			sh.shared = make(map[string]*memoryLog)
		}
		sh.shared[string(s.appendSlot(nil, key, hash))] = common
		s.sharedLogs.Add(1)
		s.sweepWithin(now, t.Keep)
	}
	common.lock(sh.now)
	s.shared.Add(1)
	return common, false
}
