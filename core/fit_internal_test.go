package core

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// What a burst needed is given back two windows later, and not while the burst comes again in each window.
func TestBurstsMemory(t *testing.T) {
	for _, cost := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			const burst = 10_000
			s := NewMemoryStore()
			l, err := New(PerMinute(4*burst), Global(), WithStore(s))
			if err != nil {
				t.Fatal(err)
			}
			ask := func(n int) {
				for range n {
					l.AllowN(t.Context(), "k", cost)
				}
			}
			size := func() (n int) {
				sh, log, _, _ := s.locked(textKey(l.space, "k"))
				defer sh.unlock(log)
				if log.ledger != nil {
					return len(log.ledger.ring)
				}
				return len(log.ring)
			}
			for i := range 10 {
				ask(burst)
				time.Sleep(59 * time.Second)
				for n := range 1000 { // others come, and look at this log
					l.Allow(t.Context(), strconv.Itoa(1000*i+n))
				}
				if n := size(); n < burst {
					t.Errorf("cost %d: a ring of %d after burst %d", cost, n, i)
				}
			}
			for i := range 120 {
				time.Sleep(time.Second)
				ask(1)
				for n := range 100 {
					l.Allow(t.Context(), strconv.Itoa(100*i+n))
				}
			}
			if n := size(); n > 256 {
				t.Errorf("cost %d: a ring of %d two windows after the last burst, for 60 entries", cost, n)
			}
		})
	}
}
