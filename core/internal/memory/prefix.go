package memory

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"

	"github.com/sashlimit/sash/core/store"
)

// A place is room for one of the store's maxKeys logs. prefixLengths lists the lengths, in bytes, of the prefixes whose
// places are counted. A new key gets no log of its own if a prefix of its address holds at least share times as many
// places as are free. So a prefix with any number of keys leaves one place free for every share places that it holds.
// The longer a prefix, the smaller its share, so that the other keys of the shorter prefix around it get places first.
var prefixLengths = [...]struct {
	v4, v6 int
	share  int64
}{
	{v6: 6, share: 2},
	{v4: 2, v6: 5, share: 4},
	{v4: 1, v6: 4, share: 8},
	{v6: 3, share: 16},
}

// prefixCounts counts the places by the prefixes of the keys' addresses. Prefixes with equal hashes are counted
// together, so that the size is fixed. Hashes differ from process to process, so clients cannot find such prefixes.
type prefixCounts [len(prefixLengths)][prefixCells]atomic.Int32

const prefixCells = 1 << 10

// seed is random, so that clients cannot choose addresses with equal hashes.
var seed = maphash.MakeSeed()

// addressOf returns the address of a key, which is not valid for a text.
func addressOf(key *store.StoredKey) netip.Addr {
	a, v4 := key.Addr()
	if v4 {
		return a.Unmap()
	}
	return a
}

// prefix returns a hash of the first n bytes of an address.
func prefix(a netip.Addr, n int) uint64 {
	b := a.As16()
	if a.Is4() {
		return maphash.Bytes(seed, b[12:12+n])
	}
	return ^maphash.Bytes(seed, b[:n])
}

// countersOf returns the counters of an address's prefixes, in the order of prefixLengths; nil where a length is not
// counted.
func (c *prefixCounts) countersOf(a netip.Addr) (counters [len(prefixLengths)]*atomic.Int32) {
	for i, length := range prefixLengths {
		n := length.v6
		if a.Is4() {
			n = length.v4
		}
		if n > 0 {
			counters[i] = &c[i][prefix(a, n)%prefixCells]
		}
	}
	return counters
}

// prefixes returns the counters. It makes them when the first key with an address needs them.
func (s *Store) prefixes() *prefixCounts {
	if c := s.prefixCounts.Load(); c != nil {
		return c
	}
	s.prefixCounts.CompareAndSwap(nil, new(prefixCounts))
	return s.prefixCounts.Load()
}

// claim takes a place for a key, unless there is none or a prefix of its address has used its share.
func (s *Store) claim(key *store.Key) bool {
	var counters [len(prefixLengths)]*atomic.Int32
	if key.Addr.IsValid() {
		counters = s.prefixes().countersOf(key.Addr)
		free := s.maxKeys - s.keys.Load()
		for i, count := range counters {
			if count != nil && int64(count.Load()) >= prefixLengths[i].share*free {
				return false
			}
		}
	}
	if s.keys.Add(1) > s.maxKeys {
		s.keys.Add(-1)
		return false
	}
	for _, count := range counters {
		if count != nil {
			count.Add(1)
		}
	}
	return true
}

// release frees the place of a key.
func (s *Store) release(key *store.StoredKey) {
	s.keys.Add(-1)
	if a := addressOf(key); a.IsValid() {
		for _, count := range s.prefixes().countersOf(a) {
			if count != nil {
				count.Add(-1)
			}
		}
	}
}

// Keys without a place share the log of their bucket. A policy has textBuckets buckets for texts in each shard, and one
// bucket for addresses for every placesPerBucket places of the shard, within bounds.
const (
	textBuckets       = 16
	minAddressBuckets = 64
	maxAddressBuckets = 256
	placesPerBucket   = 16

	sharedKind = "(shared)" // which no other key has: see store.Identity
)

// bucketOf returns the key of the log that a key without a place shares: it has the key's policy, and the number of its
// bucket as an address. The IPv6 /32 or IPv4 /16 of an address selects a group of buckets and its /48 or /24 one of the
// group, so that a flood from one prefix fills few logs. Texts are distributed by hash.
func (s *Store) bucketOf(k *store.Key, hash uint64) store.Key {
	bucket := hash / shardCount % textBuckets
	if a := k.Addr; a.IsValid() {
		short, long := 4, 6
		if a.Is4() {
			short, long = 2, 3
		}
		buckets := uint64(min(max(s.maxKeys/(shardCount*placesPerBucket), minAddressBuckets), maxAddressBuckets))
		each := buckets / minAddressBuckets // in the group of a short prefix
		bucket = textBuckets + prefix(a, short)%(buckets/each)*each + prefix(a, long)%each
	}
	number := netip.AddrFrom4([4]byte{2: byte(bucket >> 8), 3: byte(bucket)})
	return store.Key{Namespace: k.Namespace, Identity: store.Identity{Kind: sharedKind, Addr: number}}
}
