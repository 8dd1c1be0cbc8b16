package guard

import (
	"math"
	"sync"
	"testing"
)

// Ids are unique, increase and are not 0, however many goroutines make them.
func TestIDsAreUnique(t *testing.T) {
	const callers, each = 8, 5000
	s := newIDs()
	s.last.Store(math.MaxUint64 - 1) // it wraps around
	if a, b := s.next(), s.next(); a != math.MaxUint64 || b != 1 {
		t.Errorf("ids %d and %d", a, b)
	}
	var all [callers][]uint64
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for range each {
				all[i] = append(all[i], s.next())
			}
		})
	}
	wg.Wait()
	seen := map[uint64]bool{}
	for _, own := range all {
		for n, id := range own {
			if n > 0 && id <= own[n-1] {
				t.Fatalf("id %#x follows %#x", id, own[n-1])
			}
			if id == 0 || seen[id] {
				t.Fatalf("id %#x is 0 or a duplicate", id)
			}
			seen[id] = true
		}
	}
}

// Processes begin at different ids.
func TestIDsBeginAtRandom(t *testing.T) {
	if a, b := newIDs().next(), newIDs().next(); a == b {
		t.Errorf("both begin at %#x", a)
	}
}

func BenchmarkNewID(b *testing.B) {
	for b.Loop() {
		newID()
	}
}
