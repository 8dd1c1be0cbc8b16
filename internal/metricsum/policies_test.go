package metricsum_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/internal/metricsum"
)

// observer counts the events of each policy.
type observer struct {
	policies     metricsum.Policies[atomic.Int64]
	begun, ended atomic.Int64
}

func (o *observer) Begin(string) *atomic.Int64 {
	o.begun.Add(1)
	return new(atomic.Int64)
}

func (o *observer) End(*atomic.Int64) { o.ended.Add(1) }

func (o *observer) observe(_ context.Context, e core.Event) {
	if n := o.policies.Of(&e, o); n != nil {
		n.Add(1)
	}
}

// Each policy has one value, which begins once, however many events there are at the same time.
func TestPolicies(t *testing.T) {
	var o observer
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				o.observe(t.Context(), core.Event{Policy: fmt.Sprint("policy ", i%20)})
			}
		})
	}
	wg.Wait()
	for policy, n := range o.policies.All {
		if n != o.policies.Get(policy) || n.Load() != 8*50 {
			t.Errorf("%s: %d, want %d", policy, n.Load(), 8*50)
		}
	}
	if n := len(maps.Collect(o.policies.All)); n != 20 || o.begun.Load() != 20 {
		t.Errorf("%d policies, of which %d have begun, want 20", n, o.begun.Load())
	}
}

// What is kept ends once, when the last limiter of its policy is closed or when it is removed. Late events begin
// nothing.
func TestPoliciesEnd(t *testing.T) {
	var o observer
	ask := func(l *core.Limiter) *atomic.Int64 {
		t.Helper()
		if _, err := l.Allow(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		return o.policies.Get("p")
	}
	open := func() *core.Limiter {
		l, err := core.New(core.PerMinute(100), core.ByIP(), core.WithName("p"), core.WithObserver(o.observe))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first, second := open(), open()
	for i, want := range []int64{0, 1} {
		n := ask(first)
		if ask(second) != n || n.Load() != 2 || o.ended.Load() != want {
			t.Fatalf("%d: %d events, %d ends", i, n.Load(), o.ended.Load())
		}
		o.policies.Remove("p")
		o.policies.Remove("p")
	}
	n := ask(first)
	ask(second)
	first.Close()
	if ask(first) != n || n.Load() != 2 || o.ended.Load() != 2 {
		t.Errorf("%d events after one of two limiters is closed, %d ends", n.Load(), o.ended.Load())
	}
	second.Close()
	if o.ended.Load() != 3 || ask(first) != nil || ask(second) != nil || o.begun.Load() != 3 {
		t.Errorf("%d beginnings and %d ends", o.begun.Load(), o.ended.Load())
	}
}

// What is counted of a policy after its end is in no report, and the policy begins at 0 again.
func TestEventsAfterTheEnd(t *testing.T) {
	var e metricsum.Events
	report := func() (values map[string]float64) {
		values = make(map[string]float64)
		e.Report(func(s metricsum.Sample) { values[fmt.Sprint(s.Policy, s.Prometheus, s.Labels)] = s.Value })
		return values
	}
	open := func() *core.Limiter {
		l, err := core.New(core.PerMinute(1), core.Global(), core.WithName("p"),
			core.WithObserver(func(_ context.Context, of core.Event) { e.Add(&of) }))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Allow(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		return l
	}
	for range 2 {
		l := open()
		if got := report(); got["psash_decisions_total[allowed memory]"] != 1 || got["psash_near_limit_total[]"] != 1 {
			t.Errorf("while it is open: %v", got)
		}
		l.Close()
		if _, err := l.Allow(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if got := report(); len(got) > 0 {
			t.Errorf("after it was closed: %v", got)
		}
	}
}
