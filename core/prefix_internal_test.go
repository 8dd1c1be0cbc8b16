package core

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func addressKey(sp *space, a netip.Addr) *StorageKey {
	m := prefixes{v4: 32, v6: 64}
	return &StorageKey{space: sp, identity: m.identity(a)}
}

// randomAddress is one of few prefixes of any length, so that many keys meet in them.
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

// The counters of prefixes are what a count of all keys gives, and 0 when all keys have left.
func TestPrefixCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		s := NewMemoryStore(MaxKeys(1000))
		sp := newSpace("p", nil)
		check := func(step int) {
			var want prefixCounts
			n := 0
			for i := range s.shards {
				places := s.shards[i].logs.all()
				for j := range places {
					log := places[j].log.Load()
					if log == nil {
						continue
					}
					n++
					if a, ok := log.key.address(); ok {
						for _, count := range want.of(&a) {
							if count != nil {
								count.Add(1)
							}
						}
					}
				}
			}
			if n != s.Keys() {
				t.Fatalf("seed %#x, step %d: %d keys, want %d", seed, step, s.Keys(), n)
			}
			for i := range want {
				for j := range want[i] {
					if got, want := s.prefixes()[i][j].Load(), want[i][j].Load(); got != want {
						t.Fatalf("seed %#x, step %d: length %d, counter %d is %d, want %d", seed, step, i, j, got, want)
					}
				}
			}
		}
		for step := range 20_000 {
			k := addressKey(sp, randomAddress(r))
			if r.IntN(4) == 0 {
				k = textKey(sp, fmt.Sprint(r.IntN(300)))
			}
			takeAt(s, k, time.Duration(s.clock()))
			if r.IntN(10) == 0 {
				s.Reset(t.Context(), *k)
			}
			if r.IntN(1000) == 0 {
				time.Sleep(time.Duration(r.Int64N(int64(2 * time.Minute))))
			}
			if step%2000 == 0 {
				check(step)
			}
		}
		if s.Shared() < 100 {
			t.Errorf("%d takes share a log: this test has tested too little", s.Shared())
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		check(-1)
		for i := range s.shards {
			if sh := &s.shards[i]; s.Keys() != 0 || sh.shared != nil || len(sh.logs.all()) != 0 {
				t.Fatalf("%d keys; shard %d has %d places and %d shared logs", s.Keys(), i, len(sh.logs.all()), len(sh.shared))
			}
		}
		if n := s.sharedLogs.Load(); n != 0 || s.fires.Load() != noTimer {
			t.Errorf("%d shared logs, a timer at %d", n, s.fires.Load())
		}
	})
}

// A prefix may hold the share of the places that the documentation says.
func TestPrefixShares(t *testing.T) {
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
		s := NewMemoryStore(MaxKeys(places))
		sp := newSpace("p", nil)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 4 * places {
			p := netip.MustParsePrefix(c.prefixes[i%len(c.prefixes)])
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

// A short prefix reaches few of the shared logs, and none of those of texts.
func TestSlotsOfPrefixes(t *testing.T) {
	sp := newSpace("p", nil)
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ places, slots, each int }{
		{1, 64, 1},
		{100_000, 97, 1},
		{DefaultMaxKeys, 256, 4},
		{1 << 30, 256, 4},
	} {
		s := NewMemoryStore(MaxKeys(c.places))
		texts, all := map[string]bool{}, map[string]bool{}
		for i := range 2000 {
			k := textKey(sp, fmt.Sprint(i))
			texts[string(s.appendSlot(nil, k, k.hash()))] = true
		}
		for i := range 2000 {
			reached := map[string]bool{}
			a := [16]byte{0x20, byte(i >> 8), byte(i)}
			for range 30 {
				for j := 4; j < 8; j++ {
					a[j] = byte(r.Uint32())
				}
				k := addressKey(sp, netip.AddrFrom16(a))
				slot := string(s.appendSlot(nil, k, k.hash()))
				reached[slot], all[slot] = true, true
				if texts[slot] {
					t.Fatalf("%d places: address %v shares a log with texts", c.places, k)
				}
			}
			if len(reached) > c.each {
				t.Fatalf("%d places: one /32 reaches %d logs of a shard, want %d", c.places, len(reached), c.each)
			}
		}
		if len(all) != c.slots || len(texts) != textSlots {
			t.Errorf("%d places: %d logs are shared by addresses, %d by texts; want %d and %d", c.places, len(all), len(texts), c.slots, textSlots)
		}
	}
}
