package memory

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Bytes is about what the heap has grown by.
func TestBytes(t *testing.T) {
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 1000, Window: time.Hour}}})
	namespace := store.NewNamespace("p", nil)
	for _, cost := range []int{1, 2} { // logs are kept in another way if requests cost more than a unit
		before := heap()
		s := New(100_000)
		for i := range 5000 {
			key := store.Key{Namespace: namespace}
			key.Kind, key.Text = "x", fmt.Sprintf("a key whose text is longer than fits into the log %d", i)
			for range i % 100 {
				take := store.Take{Plan: plan, Cost: cost}
				s.takeOne(&key, &take, new(store.Answer))
			}
		}
		grown, got := heap()-before, s.Bytes()
		if got > grown+grown/20 || got < grown*9/10 {
			t.Errorf("cost %d: %d bytes, but the heap has grown by %d", cost, got, grown)
		}
		runtime.KeepAlive(s)
	}
}
