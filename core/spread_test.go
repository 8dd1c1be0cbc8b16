package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// herd has clients come at one time and again after RetryAfter until each was admitted once. It returns how many
// requests that took for each admission, and how long until the last one.
func herd(
	t *testing.T, clients int, latency func(int) time.Duration, processes ...*core.Limiter,
) (float64, time.Duration) {
	t.Helper()
	var requests atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for i := range clients {
		wg.Go(func() {
			for n := 0; ; n++ {
				time.Sleep(latency(i + n))
				requests.Add(1)
				d, err := processes[i%len(processes)].Allow(t.Context(), "the herd")
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					return
				}
				time.Sleep(d.RetryAfter)
			}
		})
	}
	wg.Wait()
	return float64(requests.Load()) / float64(clients), time.Since(began)
}

// With WithSpread, clients that obey RetryAfter come little more than twice each, and the quota is used all the same.
// Nothing can be better than 2 - quota/clients requests for each, since all come once at the beginning, and only a
// quota of them is admitted then. Three processes hand out each unit three times.
func TestSpread(t *testing.T) {
	two := core.Limit{Quota: 10, Window: 2 * time.Second}
	type variant struct {
		desc  string
		limit core.Limit
		far   bool
		late  time.Duration // the longest latency
	}
	variants := []variant{{"log", two, false, 0}, {"log", two, false, 20 * time.Millisecond}, {"log", two, true, 0}}
	for name, limit := range algorithmLimits(two) {
		variants = append(variants, variant{name, limit, false, 0})
	}
	for _, c := range variants {
		for _, clients := range []int{20, 60, 120} {
			desc := fmt.Sprintf("%s, far %v, latency %v, %d clients", c.desc, c.far, c.late, clients)
			inBubble(t, desc, func(t *testing.T) {
				latency := func(n int) time.Duration { return c.late * time.Duration(n*7919%97) / 97 }
				on := func(processes int, opts ...core.Option) (all []*core.Limiter) {
					store := core.Store(core.NewMemoryStore())
					if c.far {
						store = &double{Full: core.NewMemoryStore()}
					}
					for range processes {
						l := newLimiter(t, c.limit, append(opts, core.WithStore(store), core.WithName("herd"))...)
						t.Cleanup(func() { l.Close() })
						all = append(all, l)
					}
					return all
				}
				exact, fastest := herd(t, clients, latency, on(1)...)
				one, took := herd(t, clients, latency, on(1, core.WithSpread(0))...)
				three, _ := herd(t, clients, latency, on(3, core.WithSpread(0))...)
				least := 2 - 10/float64(clients)
				t.Logf("requests for each client: exact %.2f, one process %.2f, three %.2f, least %.2f; %v of %v",
					exact, one, three, least, took, fastest)
				if one > 1.2*least || three > exact || clients == 120 && three > exact*2/3 || took > fastest*6/5 {
					t.Error("these are too many, or took too long")
				}
			})
		}
	}
}

// Each denial gets the instant of another unit, and a call that is not denied, or waits, none. A log is listed once a
// second at most, and only if more than one request waits for it.
func TestSpreadWaits(t *testing.T) {
	for _, fails := range []error{nil, errDown} {
		inBubble(t, fmt.Sprint("listing fails: ", fails), func(t *testing.T) {
			var listed atomic.Int64
			on := &double{Full: core.NewMemoryStore()}
			on.log = func(ask func() ([]store.Entry, error)) ([]store.Entry, error) {
				if listed.Add(1); fails != nil {
					return nil, fails
				}
				return ask()
			}
			l := newLimiter(t, core.Limits{core.PerMinute(3), core.PerHour(1000)}, core.WithSpread(150*time.Second),
				core.WithStore(on))
			defer l.Close()
			for range 3 {
				allowed(t, l, "a", true)
				time.Sleep(10 * time.Second)
			}
			wait := func(want ...time.Duration) {
				t.Helper()
				for i, want := range want {
					d, err := l.Allow(t.Context(), "a")
					if err != nil || d.RetryAfter.Round(time.Second) != want {
						t.Errorf("denial %d: %v, %v, want %v", i+1, d.RetryAfter, err, want)
					}
				}
			}
			wait(30 * time.Second)
			if n := listed.Load(); n != 0 {
				t.Errorf("the log was listed %d times for one denial", n)
			}
			if d, err := l.Peek(t.Context(), "a"); err != nil || d.RetryAfter != 30*time.Second {
				t.Errorf("Peek: %v, %v", d, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if d, err := l.Wait(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) || d.RetryAfter != 30*time.Second {
				t.Errorf("Wait: %v, %v", d, err)
			}
			cancel()
			if fails == nil { // three units a minute, and then the first instant again
				wait(40*time.Second, 50*time.Second, 91*time.Second, 101*time.Second, 111*time.Second, 30*time.Second)
			} else { // evenly
				wait(50*time.Second, 70*time.Second, 90*time.Second, 110*time.Second, 130*time.Second, 150*time.Second,
					30*time.Second)
			}
			if n := listed.Load(); n > 1 && fails == nil {
				t.Errorf("the log was listed %d times in a second", n)
			}
			if d, err := l.AllowN(t.Context(), "a", 4); !errors.Is(err, core.ErrCostExceedsQuota) || d.RetryAfter != 0 {
				t.Errorf("a cost that never fits: %v, %v", d, err)
			}
			time.Sleep(1100 * time.Millisecond)
			if d, err := l.AllowN(t.Context(), "a", 2); err != nil || d.RetryAfter <= 30*time.Second {
				t.Errorf("two units: %v, %v", d, err)
			}
			if d, err := l.AllowAtMost(t.Context(), "a", 9); err != nil || d.RetryAfter <= 30*time.Second {
				t.Errorf("at most nine units: %v, %v", d, err)
			}
		})
	}
}
