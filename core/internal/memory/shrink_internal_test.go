package memory

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// The memory of a burst is freed two windows after it, but not while each window has such a burst.
func TestBurstsMemory(t *testing.T) {
	for cost, each := range map[int]int{1: 8, 2: 24} { // bytes of an entry
		synctest.Test(t, func(t *testing.T) {
			const burst = 10_000
			s := New(1 << 18)
			l := newPolicy(s, "p", 4*burst, time.Minute)
			take := func(n int) {
				for range n {
					l.take("k", cost, store.ModeCharge)
				}
			}
			size := func() (n int) {
				sh, log, _, _ := s.locked(textKey(l.ns, "k"))
				defer sh.unlock(log)
				return log.Bytes() / each
			}
			for i := range 10 {
				take(burst)
				time.Sleep(59 * time.Second)
				for n := range 1000 { // new keys sweep this log
					l.allow(strconv.Itoa(1000*i + n))
				}
				if n := size(); n < burst {
					t.Errorf("cost %d: a ring of %d after burst %d", cost, n, i)
				}
			}
			for i := range 120 {
				time.Sleep(time.Second)
				take(1)
				for n := range 100 {
					l.allow(strconv.Itoa(100*i + n))
				}
			}
			if n := size(); n > 256 {
				t.Errorf("cost %d: a ring of %d two windows after the last burst, for 60 entries", cost, n)
			}
		})
	}
}

// The memory of a burst is freed while the key is still in use.
func TestStoreFreesMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1 << 18)
		l := newPolicy(s, "p", 10_000, time.Minute)
		size := func() (n int) {
			for log := range s.logs() {
				n += log.Bytes() / 8
			}
			return n
		}
		for range 10_000 {
			l.allow("k")
		}
		if n := size(); n != 16384 {
			t.Fatalf("a ring of %d after the burst", n)
		}
		for range 20 * 10 {
			time.Sleep(6 * time.Second)
			l.allow("k")
		}
		if n := size(); n > 64 {
			t.Errorf("a ring of %d for 10 entries a window", n)
		}
	})
}
