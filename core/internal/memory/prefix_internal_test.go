package memory

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

func addressKey(sp *store.Namespace, a netip.Addr) *store.Key {
	bits := 64
	if a.Is4() {
		bits = 32
	}
	prefix, _ := a.Prefix(bits)
	return &store.Key{Namespace: sp, Identity: store.Identity{Kind: "ip", Addr: prefix.Addr(), Bits: bits}}
}

// randomAddress returns an address with one of few prefixes of each length, so that many keys have equal ones.
func randomAddress(r *rand.Rand) netip.Addr {
	if r.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{byte(11 + r.IntN(2)), byte(r.IntN(3)), byte(r.IntN(4)), byte(r.IntN(100))})
	}
	a := [16]byte{0: 0x20, 7: byte(r.IntN(100))}
	for i := 2; i < 6; i++ {
		a[i] = byte(r.IntN(2))
	}
	return netip.AddrFrom16(a)
}

// countPlaces counts the places over all keys.
func countPlaces(s *Store) (counts *prefixCounts, keys int) {
	counts = new(prefixCounts)
	for log := range s.logs() {
		keys++
		a := addressOf(&log.key)
		if !a.IsValid() {
			continue
		}
		for _, count := range counts.countersOf(a) {
			if count != nil {
				count.Add(1)
			}
		}
	}
	return counts, keys
}

// checkCounts compares the counters of a store with a count over all keys.
func checkCounts(s *Store) error {
	want, keys := countPlaces(s)
	if keys != s.Keys() {
		return fmt.Errorf("%d keys, want %d", s.Keys(), keys)
	}
	for i := range want {
		for j := range want[i] {
			if got, want := s.prefixes()[i][j].Load(), want[i][j].Load(); got != want {
				return fmt.Errorf("length %d, counter %d is %d, want %d", i, j, got, want)
			}
		}
	}
	return nil
}

// The counters of prefixes equal a count over all keys, and are 0 when all keys have left.
func TestPrefixCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		s := New(1000)
		sp := newSpace("p")
		check := func(step int) {
			if err := checkCounts(s); err != nil {
				t.Fatalf("seed %#x, step %d: %v", seed, step, err)
			}
		}
		for step := range 20_000 {
			k := addressKey(sp, randomAddress(r))
			if r.IntN(4) == 0 {
				k = textKey(sp, fmt.Sprint(r.IntN(300)))
			}
			takeAt(s, k, time.Duration(s.clock()))
			if r.IntN(10) == 0 {
				s.Reset(k)
			}
			if r.IntN(1000) == 0 {
				time.Sleep(time.Duration(r.Int64N(int64(2 * time.Minute))))
			}
			if step%2000 == 0 {
				check(step)
			}
		}
		if s.Shared() < 100 {
			t.Errorf("%d takes of shared logs: this test has tested too little", s.Shared())
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		check(-1)
		for i := range s.shards {
			if sh := &s.shards[i]; s.Keys() != 0 || len(sh.logs.all()) != 0 {
				t.Fatalf("%d keys; shard %d has %d slots", s.Keys(), i, len(sh.logs.all()))
			}
		}
		if n := s.sharedLogs.Load(); n != 0 || s.timerAt.Load() != noTimer {
			t.Errorf("%d shared logs, a timer at %d", n, s.timerAt.Load())
		}
	})
}

// countedApart reports whether no two counted prefixes share a counter. This differs from process to process, as their
// hashes do.
func countedApart(prefixes []netip.Prefix) bool {
	var counts prefixCounts
	holds := make(map[*atomic.Int32]netip.Prefix)
	for _, p := range prefixes {
		unused := 128 - p.Addr().BitLen()
		for length := range prefixLengths {
			n := 8 * prefixLengths[length].v6
			if p.Addr().Is4() {
				n = 8 * prefixLengths[length].v4
			}
			if n == 0 || n > p.Bits()+4 { // there are so many longer ones that two do not matter
				continue
			}
			for part := range 1 << max(n-p.Bits(), 0) {
				a := p.Addr().As16()
				for bit := range max(n-p.Bits(), 0) {
					at := unused + n - 1 - bit
					a[at/8] |= byte(part>>bit&1) << (7 - at%8)
				}
				counted := netip.PrefixFrom(netip.AddrFrom16(a).Unmap(), n).Masked()
				cell := counts.countersOf(netip.AddrFrom16(a).Unmap())[length]
				if other, ok := holds[cell]; ok && other != counted {
					return false
				}
				holds[cell] = counted
			}
		}
	}
	return true
}

// A prefix gets the documented share of the places.
func TestPrefixShares(t *testing.T) {
	testlen.SkipRace(t)
	const places = 2000
	for _, c := range []struct {
		prefixes []string
		want     int // places left
	}{
		{[]string{"2001:db8:1::/48"}, places / 3},
		{[]string{"2001:db8:aa00::/44"}, places / 5},
		{[]string{"198.51.0.0/16"}, places / 5},
		{[]string{"2001:db8::/32"}, places / 9},
		{[]string{"198.0.0.0/8"}, places / 9},
		{[]string{"2001:db8::/29"}, places / 17},
		{[]string{"198.51.0.0/16", "203.0.0.0/16", "11.1.0.0/16"}, places / 13},
	} {
		s := New(places)
		sp := newSpace("p")
		r := rand.New(rand.NewPCG(1, 2))
		var prefixes []netip.Prefix
		for _, p := range c.prefixes {
			prefixes = append(prefixes, netip.MustParsePrefix(p))
		}
		for !countedApart(prefixes) { // other prefixes of the same lengths serve as well
			for i, p := range prefixes {
				a := p.Addr().As16()
				if p.Addr().Is4() {
					a[12]++
				} else {
					a[1]++
				}
				prefixes[i] = netip.PrefixFrom(netip.AddrFrom16(a).Unmap(), p.Bits())
			}
		}
		for i := range 4 * places {
			p := prefixes[i%len(prefixes)]
			a := p.Addr().As16()
			for bit := p.Bits() + 128 - p.Addr().BitLen(); bit < 128; bit++ {
				a[bit/8] |= byte(r.Uint32()&1) << (7 - bit%8)
			}
			takeAt(s, addressKey(sp, netip.AddrFrom16(a).Unmap()), 0)
		}
		if left := places - s.Keys(); left < c.want*9/10 || left > c.want*11/10 {
			t.Errorf("%v leave %d places of %d, want %d", c.prefixes, left, places, c.want)
		}
	}
}

// A short prefix has few buckets, and none of those of texts.
func TestBucketsOfPrefixes(t *testing.T) {
	sp := newSpace("p")
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ places, buckets, each int }{
		{1, 64, 1},
		{100_000, 97, 1},
		{1 << 18, 256, 4},
		{1 << 30, 256, 4},
	} {
		s := New(c.places)
		texts, all := map[netip.Addr]bool{}, map[netip.Addr]bool{}
		for i := range 2000 {
			k := textKey(sp, fmt.Sprint(i))
			texts[s.bucketOf(k, k.Hash()).Addr] = true
		}
		for i := range 2000 {
			reached := map[netip.Addr]bool{}
			a := [16]byte{0x20, byte(i >> 8), byte(i)}
			for range 30 {
				for j := 4; j < 8; j++ {
					a[j] = byte(r.Uint32())
				}
				k := addressKey(sp, netip.AddrFrom16(a))
				bucket := s.bucketOf(k, k.Hash()).Addr
				reached[bucket], all[bucket] = true, true
				if texts[bucket] {
					t.Fatalf("%d places: address %v shares a log with texts", c.places, k)
				}
			}
			if len(reached) > c.each {
				t.Fatalf("%d places: one /32 has %d buckets of a shard, want %d", c.places, len(reached), c.each)
			}
		}
		if len(all) != c.buckets || len(texts) != textBuckets {
			t.Errorf("%d places: %d buckets for addresses, %d for texts; want %d and %d",
				c.places, len(all), len(texts), c.buckets, textBuckets)
		}
	}
}
