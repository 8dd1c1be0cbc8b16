package classes_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sashlimit/sash/core/internal/classes"
)

// Each name has one value, which is made once, however many ask for it at the same time.
func TestNames(t *testing.T) {
	var names classes.Names[atomic.Int64]
	var made atomic.Int64
	create := func(string) *atomic.Int64 {
		made.Add(1)
		return new(atomic.Int64)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				names.Of(fmt.Sprint("policy ", i%20), create).Add(1)
			}
		})
	}
	wg.Wait()
	for i := range 20 {
		if n := names.Of(fmt.Sprint("policy ", i), create).Load(); n != 8*50 {
			t.Errorf("policy %d: %d, want %d", i, n, 8*50)
		}
	}
	if made.Load() != 20 {
		t.Errorf("%d values were made, want 20", made.Load())
	}
}

// A name whose value is nil stays new, and one that was removed gets another value.
func TestNamesAreRemoved(t *testing.T) {
	var names classes.Names[int]
	if names.Of("a", func(string) *int { return nil }) != nil || names.Get("a") != nil || len(names.All()) > 0 {
		t.Errorf("%v", names.All())
	}
	first := names.Of("a", func(string) *int { return new(int) })
	ended := 0
	for _, v := range []*int{new(int), first, first} {
		names.Remove("a", v, func() { ended++ })
	}
	if second := names.Of("a", func(string) *int { return new(int) }); second == first || ended != 1 {
		t.Errorf("the same value again, %d removals", ended)
	}
}
