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
