package metricsum_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sashlimit/sash/core/internal/metricsum"
)

// Each policy has one value, which begins once, however many events there are at the same time, and again after it was
// forgotten.
func TestPolicies(t *testing.T) {
	var policies metricsum.Policies[atomic.Int64]
	var begun atomic.Int64
	begin := func(string) *atomic.Int64 {
		begun.Add(1)
		return new(atomic.Int64)
	}
	count := func() {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for i := range 1000 {
					policies.Of(fmt.Sprint("policy ", i%20), begin).Add(1)
				}
			})
		}
		all.Wait()
	}
	for round := range int64(2) {
		count()
		known := policies.All()
		if len(known) != 20 || begun.Load() != 20*(round+1) {
			t.Errorf("%d policies, of which %d have begun, want 20", len(known), begun.Load())
		}
		for policy, n := range known {
			if n != policies.Get(policy) || n.Load() != 8*50 {
				t.Errorf("%s: %d, want %d", policy, n.Load(), 8*50)
			}
			if policies.Forget(policy) != n || policies.Forget(policy) != nil {
				t.Errorf("%s was not forgotten", policy)
			}
		}
	}
}
