package memory

import (
	"hash/maphash"
	"math"
	"net/netip"
	"slices"

	"github.com/sashlimit/sash/core/internal/next/slide"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// When all places are taken, further keys of a namespace share entries: in each shard, those whose addresses have the
// same prefix, and texts by their hash. A flood of addresses from one prefix so fills few of them.
const (
	sharedTexts     = 16 // entries of a namespace in a shard
	sharedAddresses = 64
	sharedKind      = "(shared)" // which no other key has: see store.Identity

	// The prefixes whose addresses share an entry, in bytes: what a provider has, since it is from a whole one that a
	// flood may come.
	prefixIPv4 = 2
	prefixIPv6 = 4
)

// seed is random, so that clients cannot choose addresses with equal hashes.
var seed = maphash.MakeSeed()

// sharedKey returns the key of the entry that a key without a place shares.
func (s *Store) sharedKey(k *store.Key, hash uint64) store.Key {
	number := hash / shardCount % sharedTexts
	if k.Addr.IsValid() {
		a := k.Addr.As16()
		prefix := a[:prefixIPv6]
		if k.Addr.Is4() {
			prefix = a[12 : 12+prefixIPv4]
		}
		number = sharedTexts + maphash.Bytes(seed, prefix)%sharedAddresses
	}
	return store.Key{
		Namespace: k.Namespace,
		Identity:  store.Identity{Kind: sharedKind, Addr: netip.AddrFrom4([4]byte{3: byte(number)})},
	}
}

// isShared reports whether keys share the entry.
func (e *entry) isShared() bool { return e.key.Kind() == sharedKind }

// findShared returns the entry that a key without one of its own shares, or nil. The caller holds the shard's lock.
func (sh *shard) findShared(s *Store, k *store.Key, hash uint64) *entry {
	if s.sharing.Load() == 0 { // as mostly
		return nil
	}
	shares := s.sharedKey(k, hash)
	return sh.entries.find(&shares, shares.Hash())
}

// findOrAdd returns the entry for a key, locked, and whether it is the key's own. If there is none, it adds one with the
// log of a limit or, without a limit, returns nil. The caller holds the shard's lock, without which no shared entry is
// locked. With sweep, other entries are swept first; the caller must then hold the lock of no entry.
func (sh *shard) findOrAdd(
	s *Store, k *store.Key, hash uint64, now int64, limit *store.Limit, sweep bool,
) (e *entry, own bool) {
	sh.now = max(sh.now, now)
	if e = sh.entries.find(k, hash); e != nil {
		e.lock(now)
		return e, true
	}
	shared := sh.findShared(s, k, hash)
	if shared != nil {
		shared.lock(sh.now)
		sh.now = shared.now // an entry of the key's own must not begin before what it has in the shared one
		// The key stays until its entries have left: logs of its own would be a second quota.
		if shared.mayHold(hash) {
			if limit != nil {
				s.shared.Add(1)
			}
			return shared, false
		}
		shared.mu.Unlock()
	}
	if limit == nil {
		return nil, false
	}
	if sweep {
		sh.sweep(s, sweepPerKey)
	}
	if s.claim() || sweep && s.makeRoom(sh) && s.claim() {
		e = sh.add(s, k, hash, limit)
		e.lock(now)
		return e, true
	}
	if shared == nil || shared.limit == nil { // removed by the sweep
		shares := s.sharedKey(k, hash)
		shared = sh.add(s, &shares, shares.Hash(), limit)
		s.sharing.Add(1)
	}
	shared.lock(sh.now)
	s.shared.Add(1)
	return shared, false
}

// add adds an entry with the log of a limit.
func (sh *shard) add(s *Store, k *store.Key, hash uint64, limit *store.Limit) *entry {
	e := &entry{key: s.classes.Stored(k), now: sh.now, log: log{limit: limit, Log: slide.New(sh.lastID)}}
	sh.entries.add(hash, e, dueAt(sh.now)) // due at once, because the take may record nothing
	s.sweepIn(sh.now, limit.Window)
	return e
}

// claim takes a place, unless there is none.
func (s *Store) claim() bool {
	if s.keys.Add(1) <= s.maxKeys {
		return true
	}
	s.keys.Add(-1)
	return false
}

const longestSearch = 4096 // entries of a shared log that are searched for those of one key

// mayHold reports whether shared logs hold anything of the key with that hash. It is not known whose the numbers of
// counting algorithms are.
func (e *entry) mayHold(hash uint64) bool {
	for l := &e.log; l != nil; l = l.next {
		if l.drop(e.now); l.counts() && l.until() > e.now || l.Units() > longestSearch {
			return true
		}
		for of := range l.Entries() {
			if sharedBy(of.ID, hash) {
				return true
			}
		}
	}
	return false
}

// idIn returns the ID of an entry in a log. In a shared one its upper half tells the key, and its lower half the take.
func idIn(own bool, hash, id uint64) uint64 {
	if own {
		return id
	}
	return hash&^math.MaxUint32 | id&math.MaxUint32
}

// sharedBy reports whether an entry of a shared log is of the key with that hash.
func sharedBy(id, hash uint64) bool { return (id^hash)>>32 == 0 }

// reset removes the entries of a key from a shared log, up to instant cut.
func (l *log) reset(hash uint64, cut int64) {
	for _, of := range slices.Collect(l.Entries()) {
		if of.At <= cut && sharedBy(of.ID, hash) {
			l.Settle(of.ID, 0)
		}
	}
}
