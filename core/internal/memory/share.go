package memory

import (
	"hash/maphash"
	"math"
	"net/netip"

	"github.com/sashlimit/sash/core/internal/slide"
	"github.com/sashlimit/sash/core/store"
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
func (e *entry) isShared() bool { return e.key.class.kind == sharedKind }

// findShared returns the entry that a key without one of its own shares, or nil. The caller holds the shard's lock.
func (sh *shard) findShared(s *Store, k *store.Key, hash uint64) *entry {
	if s.sharing.Load() == 0 { // as mostly
		return nil
	}
	shares := s.sharedKey(k, hash)
	return sh.entries.find(&shares, shares.Hash())
}

// share finds and locks the entry for a key that has none, given the one that it may share, or nil. With add, it adds
// one with the log of a limit: of the key's own if there is a place.
func (s *Store) share(p *part, k *store.Key, limit *store.Limit, add bool) {
	sh, shared := p.shard, p.entry
	if shared != nil {
		shared.lock(sh.now)
		sh.now = shared.now // an entry of the key's own must not begin before what it has in the shared one
	}
	// A key that shares an entry does so until what it has there has left: logs of its own would be a second quota.
	if shared == nil || !shared.mayHold(p) {
		if p.entry = nil; add && s.claim() {
			p.entry, p.own = sh.add(s, k, p.hash, limit), true
		}
		if p.own || !add {
			if shared != nil {
				shared.mu.Unlock()
			}
			return
		}
	}
	if shared == nil {
		shares := s.sharedKey(k, p.hash)
		shared = sh.add(s, &shares, shares.Hash(), limit)
		s.sharing.Add(1)
	}
	p.entry = shared
	if add {
		s.shared.Add(1)
	}
}

// add adds an entry with the log of a limit, and locks it.
func (sh *shard) add(s *Store, k *store.Key, hash uint64, limit *store.Limit) *entry {
	e := &entry{key: s.classes.stored(k), now: sh.now, log: log{limit: limit, Log: slide.New(sh.lastID)}}
	e.mu.Lock()
	sh.entries.add(hash, e, dueAt(sh.now)) // due at once, because the take may record nothing
	s.sweepSoon(sh.now)
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

// mayHold reports whether the entry, which keys share, has anything of the key of a part. It is not known whose the
// numbers of counting algorithms are.
func (e *entry) mayHold(p *part) bool {
	for l := &e.log; l != nil; l = l.next {
		if l.drop(e.now); l.counts() && l.until() > e.now || l.Units() > longestSearch {
			return true
		}
		for of := range l.Entries() {
			if p.holds(of.ID) {
				return true
			}
		}
	}
	return false
}

// id returns the ID that an entry has in the logs of a part. In shared ones its upper half tells the key, and its lower
// half the take.
func (p *part) id(id uint64) uint64 {
	if p.own {
		return id
	}
	return p.hash&^math.MaxUint32 | id&math.MaxUint32
}

// holds reports whether an entry of that ID is of the part's key.
func (p *part) holds(id uint64) bool { return p.own || (id^p.hash)>>32 == 0 }
