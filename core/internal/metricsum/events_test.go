package metricsum_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/metricsum"
)

// Each event is counted once for its policy, however many there are at the same time, and again from 0 after the policy
// was forgotten.
func TestEvents(t *testing.T) {
	var events metricsum.Events
	for range 2 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for i := range 1000 {
					e := core.Event{Policy: fmt.Sprint("policy ", i%20), Outcome: event.Outcome(i / 20 % 9)}
					if decided := events.Add(&e); decided != e.Outcome.IsDecision() {
						t.Errorf("%v: a decision %v", e.Outcome, decided)
					}
				}
			})
		}
		all.Wait()
		counted := make(map[string]int)
		events.Report(func(s metricsum.Sample) { counted[s.Policy] += int(s.Value) })
		if len(counted) != 20 {
			t.Errorf("%d policies, want 20", len(counted))
		}
		for policy, n := range counted {
			if events.Forget(policy); n != 8*50 {
				t.Errorf("%s: %d events, want %d", policy, n, 8*50)
			}
		}
	}
	events.Report(func(s metricsum.Sample) { t.Errorf("%+v was not forgotten", s) })
}
