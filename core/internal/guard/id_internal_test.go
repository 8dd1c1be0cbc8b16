package guard

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

// clone returns the source as a clone of the process has it.
func (s *idSource) clone() *idSource {
	c := &idSource{start: s.start}
	c.last.Store(s.last.Load())
	c.jump.Store(s.jump.Load())
	return c
}

// Ids are unique, increase and are not 0, whatever the clocks do and however many goroutines make them.
func TestIDsAreUnique(t *testing.T) {
	const callers, each = 8, 5000
	s := newIDSource()
	s.last.Store(math.MaxUint64 - 1) // it wraps around
	if a, b := s.next(0, 0), s.next(0, 0); a == 0 || b == 0 || a == b {
		t.Errorf("ids %d and %d", a, b)
	}
	s.last.Store(1)
	var all [callers][]uint64
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for n := range int64(each) {
				clock := n * int64(time.Millisecond) / 100 * int64(i)
				all[i] = append(all[i], s.next(clock, clock*int64(1+i%2)))
			}
		})
	}
	wg.Wait()
	seen := make(map[uint64]bool)
	for _, ids := range all {
		if !slices.IsSorted(ids) {
			t.Error("ids decrease")
		}
		for _, id := range ids {
			if id == 0 || seen[id] {
				t.Fatalf("id %#x is 0 or a duplicate", id)
			}
			seen[id] = true
		}
	}
}

// The counter skips 0.
func TestIDsAreNotZero(t *testing.T) {
	s := newIDSource()
	s.last.Store(math.MaxUint64)
	s.jump.Store(&idJump{to: math.MaxUint64})
	if id := s.next(0, 0); id != 1 {
		t.Errorf("id %d, want 1", id)
	}
}

// Clones of a process make different ids as soon as their clocks show that they are clones.
func TestIDsOfClones(t *testing.T) {
	const idle, busy = time.Second, 10 * time.Millisecond
	for _, c := range []struct {
		name      string
		mono, set time.Duration // since the last id; by how much the wall clock was set
		ids, same int           // of each clone; how many of them may be another's
	}{
		{"of an idle process", idle, 0, 2000, 0},
		{"whose wall clocks are set", busy, time.Minute, 2000, 0},
		{"whose wall clocks are set back", busy, -time.Minute, 2000, 0},
		{"of a busy process", busy, 0, 2000, jumpIDs},
		{"whose monotonic clocks go back", -idle, 0, 2000, 0},
	} {
		s := newIDSource()
		wall := time.Now().UnixNano()
		s.next(int64(time.Hour), wall)
		seen := make(map[uint64]int)
		for clone := range 4 {
			copied := s.clone()
			for n := range c.ids {
				passed := int64(c.mono) + int64(n)*int64(time.Microsecond)
				// Their kernels may give equal random numbers, but not at the same nanosecond.
				seen[copied.next(int64(time.Hour)+passed, wall+passed+int64(c.set)+int64(clone))]++
			}
		}
		same := 4*c.ids - len(seen)
		if same > 3*c.same || c.same > 0 && same == 0 {
			t.Errorf("clones %s: %d of %d ids are another clone's, want at most %d",
				c.name, same, 4*c.ids, 3*c.same)
		}
	}
}

// deduping is a store that takes equal ids for one take which was sent twice, as stores outside the process do.
type deduping struct {
	store.Store

	logs    *memory.Store
	answers map[uint64]store.Answer
}

func (s deduping) Take(_ context.Context, t store.Take) (a store.Answer, err error) {
	a, ok := s.answers[t.ID]
	if !ok {
		s.logs.Take(&t.Key, &t, &a)
		s.answers[t.ID] = a
	}
	return a, nil
}

// Four clones of a process that was idle share one quota.
func TestClonesShareOneQuota(t *testing.T) {
	const quota = 5
	deduping := deduping{nil, memory.New(10), make(map[uint64]store.Answer)}
	g := New(Config{Store: deduping, Failure: Closed, Timeout: time.Minute})
	plan := planOf(quota, time.Hour)
	original := ids
	defer func() { ids = original }()
	last := *ids.jump.Load()
	last.mono -= int64(time.Second)
	ids.jump.Store(&last)
	snapshot := ids.clone()
	admitted := 0
	for range 4 {
		ids = snapshot.clone()
		for range 2 * quota {
			var a store.Answer
			take := &store.Take{Key: store.NewKey("p", "k"), Plan: plan, Cost: 1}
			if _, err := g.Take(t.Context(), take, &a); err != nil {
				t.Fatal(err)
			}
			if a.Allowed {
				admitted++
			}
		}
	}
	if admitted != quota {
		t.Errorf("%d of %d are admitted", admitted, quota)
	}
}

func BenchmarkNewID(b *testing.B) {
	now := time.Now()
	for b.Loop() {
		newID(now)
	}
}
