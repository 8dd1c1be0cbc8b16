package memory

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/sashlimit/sash/core/store"
)

// prefixLengths are the lengths, in bytes, of the prefixes whose places are counted. A new key gets no log of its own
// where a prefix of its address holds share times as many places as are free, or more. So a prefix that grows without
// end leaves one place free for each share that it holds, and smaller ones notice nothing. The longer a prefix, the
// smaller its share: what it leaves is first for the rest of the shorter one around it.
var prefixLengths = [...]struct {
	v4, v6 int
	share  int64
}{
	{v6: 6, share: 2},
	{v4: 2, v6: 5, share: 4},
	{v4: 1, v6: 4, share: 8},
	{v6: 3, share: 16},
}

// prefixCounts counts the places that keys hold, by the prefixes of their addresses. Prefixes with equal hashes are
// counted together, which keeps the size fixed. Hashes differ from process to process, so nobody can look for such
// prefixes.
type prefixCounts [len(prefixLengths)][prefixCells]atomic.Int32

const prefixCells = 1 << 10

// address is the address of a key. One of IPv4 is in the last four bytes.
type address struct {
	bytes [16]byte
	v4    bool
}

// seed is this process's own, so that nobody can choose addresses whose hashes are equal.
var seed = maphash.MakeSeed()

func addressOf(k *store.Key) (a address, ok bool) {
	if !k.Addr.IsValid() {
		return a, false
	}
	return address{k.Addr.As16(), k.Addr.Is4()}, true
}

func addressOfStored(k *store.StoredKey) (a address, ok bool) {
	addr, v4 := k.Addr()
	if !addr.IsValid() {
		return a, false
	}
	return address{addr.As16(), v4}, true
}

// prefix is a hash of the first n bytes.
func (a *address) prefix(n int) uint64 {
	if a.v4 {
		return maphash.Bytes(seed, a.bytes[12:12+n])
	}
	return ^maphash.Bytes(seed, a.bytes[:n])
}

// of returns the counters of an address's prefixes, in the order of prefixLengths; nil where a length is not counted.
func (c *prefixCounts) of(a *address) (counts [len(prefixLengths)]*atomic.Int32) {
	for i, length := range prefixLengths {
		n := length.v6
		if a.v4 {
			n = length.v4
		}
		if n > 0 {
			counts[i] = &c[i][a.prefix(n)%prefixCells]
		}
	}
	return counts
}

// prefixes makes the counters with the first key that has an address.
func (s *Store) prefixes() *prefixCounts {
	if c := s.prefixCounts.Load(); c != nil {
		return c
	}
	s.prefixCounts.CompareAndSwap(nil, new(prefixCounts))
	return s.prefixCounts.Load()
}

// claim takes one of the places for a key, unless all are taken or a prefix of its address holds its share of them.
func (s *Store) claim(key *store.Key) bool {
	var counts [len(prefixLengths)]*atomic.Int32
	if a, ok := addressOf(key); ok {
		counts = s.prefixes().of(&a)
		free := s.maxKeys - s.keys.Load()
		for i, count := range counts {
			if count != nil && int64(count.Load()) >= prefixLengths[i].share*free {
				return false
			}
		}
	}
	if s.keys.Add(1) > s.maxKeys {
		s.keys.Add(-1)
		return false
	}
	for _, count := range counts {
		if count != nil {
			count.Add(1)
		}
	}
	return true
}

// release gives back the place of a key.
func (s *Store) release(key *store.StoredKey) {
	s.keys.Add(-1)
	if a, ok := addressOfStored(key); ok {
		for _, count := range s.prefixes().of(&a) {
			if count != nil {
				count.Add(-1)
			}
		}
	}
}

// A policy has so many shared logs in a shard: some for texts, and others for addresses. Of these there is one for so
// many places in the shard, within bounds.
const (
	textSlots          = 16
	fewestAddressSlots = 64
	mostAddressSlots   = 256
	placesPerSlot      = 16
)

// appendSlot writes which log a key shares. The slots of an address depend on its IPv6 /32 or IPv4 /16, and among these
// on its /48 or /24, so that a flood from one of them fills few logs. Texts are spread by their hash.
func (s *Store) appendSlot(b []byte, k *store.Key, hash uint64) []byte {
	slot := hash / shardCount % textSlots
	if a, ok := addressOf(k); ok {
		short, long := 4, 6
		if a.v4 {
			short, long = 2, 3
		}
		slots := uint64(min(max(s.maxKeys/(shardCount*placesPerSlot), fewestAddressSlots), mostAddressSlots))
		each := slots / fewestAddressSlots // of a short prefix
		slot = textSlots + a.prefix(short)%(slots/each)*each + a.prefix(long)%each
	}
	return append(append(b, k.Namespace.Policy()...), byte(slot>>8), byte(slot))
}
