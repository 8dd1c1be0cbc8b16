package memory

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Bytes is at most what the heap has grown by, and not much less.
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
	before := heap()
	s := New(100_000)
	for i := range 20_000 {
		for range 1 + i%40 {
			key := store.Key{Namespace: namespace}
			key.Kind, key.Text = "x", fmt.Sprintf("a key whose text is longer than fits into the log %d", i)
			take := store.Take{Plan: plan, Cost: 1 + i%3/2}
			s.Take(&key, &take, new(store.Answer))
		}
	}
	grown, got := heap()-before, s.Bytes()
	if got > grown || got < grown*3/4 {
		t.Errorf("%d bytes, but the heap has grown by %d", got, grown)
	}
	runtime.KeepAlive(s)
}
