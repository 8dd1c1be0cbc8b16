package core

import (
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"
)

// Exchanges that meet in few places, each its own goroutine's: it is new the first time, and no longer until it ends.
func TestOnce(t *testing.T) {
	var o once
	memory := make([]byte, 1<<16)
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			mine := unsafe.Pointer(&memory[(g%4)<<12+g]) // four places
			for range 5000 {
				if !o.enter(mine) {
					t.Errorf("exchange %d has ended, and is not new", g)
					return
				}
				for range rand.IntN(3) {
					if o.enter(mine) {
						t.Errorf("exchange %d has not ended, and is new", g)
						return
					}
				}
				o.leave(mine)
			}
		})
	}
	all.Wait()
	for i := range o {
		if o[i].first != nil || len(o[i].more) > 0 || o[i].many.Load() != 0 {
			t.Errorf("place %d still has %v, %v", i, o[i].first, o[i].more)
		}
	}
	for range 2 {
		if !o.enter(nil) {
			t.Error("what cannot be told from others is always new")
		}
	}
}
