package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// waiter is a call of WaitN that is under way.
type waiter struct {
	cancel context.CancelFunc
	done   chan struct{}
	at     time.Time // when it returned
	d      core.Decision
	err    error
}

// wait calls WaitN on a goroutine of its own, and returns when that waits or has ended.
func wait(t *testing.T, l *core.Limiter, cost int, timeout ...time.Duration) *waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if len(timeout) > 0 {
		ctx, cancel = context.WithTimeout(t.Context(), timeout[0])
	}
	t.Cleanup(cancel)
	w := &waiter{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.d, w.err = l.WaitN(ctx, "k", cost)
		w.at = time.Now()
	}()
	synctest.Wait()
	return w
}

func (w *waiter) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// admitted waits for w and checks the instant of its admission.
func (w *waiter) admitted(t *testing.T, at time.Time, who ...any) {
	t.Helper()
	<-w.done
	if w.err != nil || !w.d.Allowed || !w.at.Equal(at) {
		t.Errorf("%v: allowed %v at %v, %v; want at %v", fmt.Sprint(who...),
			w.d.Allowed, w.at.Format(time.StampMicro), w.err, at.Format(time.StampMicro))
	}
}

// take fills the log of "k".
func take(t *testing.T, l *core.Limiter, cost int) {
	t.Helper()
	if d, err := l.AllowN(t.Context(), "k", cost); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
}

// oracle is when each of costs is admitted, in turn from now on. It is slow and simple.
func oracle(limits core.Limits, log []core.Entry, now time.Time, costs []int) []time.Time {
	fits := func(at time.Time, cost int) bool {
		for _, l := range limits {
			held := cost
			for _, e := range log {
				if e.At.After(at.Add(-l.Window)) {
					held += e.Cost
				}
			}
			if held > l.Quota {
				return false
			}
		}
		return true
	}
	var admitted []time.Time
	for _, cost := range costs {
		instants := []time.Time{now}
		for _, e := range log {
			for _, l := range limits {
				instants = append(instants, e.At.Add(l.Window))
			}
		}
		slices.SortFunc(instants, time.Time.Compare)
		for _, at := range instants {
			if !at.Before(now) && fits(at, cost) {
				now = at
				break
			}
		}
		log = append(log, core.Entry{At: now, Cost: cost})
		admitted = append(admitted, now)
	}
	return admitted
}

// With random logs, quotas and queues each waiter is admitted at the oracle's instant if its context ends at least a
// nanosecond later. Otherwise it is refused, at some instant.
func TestWaitAgainstOracle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(5, 7))
		counts := map[string]int{}
		for trial := range 3000 {
			limits := core.Limits{{Quota: 1 + rnd.IntN(8), Window: time.Duration(1+rnd.IntN(20)) * time.Second}}
			smallest := limits[0].Quota
			l := newLimiter(t, limits)
			for range rnd.IntN(10) {
				if _, err := l.AllowN(t.Context(), "k", 1+rnd.IntN(smallest)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			}
			log, err := l.Log(t.Context(), "k")
			must(t, err)
			now := time.Now()
			costs := []int{}
			for range 1 + rnd.IntN(12) {
				cost := 1
				if trial%2 == 0 {
					cost = 1 + rnd.IntN(smallest)
				}
				costs = append(costs, cost)
			}
			want := oracle(limits, log, now, costs)
			last := len(costs) - 1
			takes := want[last].Sub(now)
			if takes == 0 {
				continue
			}
			waiters := make([]*waiter, last)
			for i, cost := range costs[:last] {
				waiters[i] = wait(t, l, cost)
			}
			who := fmt.Sprintf("trial %d, %v, %v behind %v", trial, limits, costs, log)
			w := wait(t, l, costs[last], takes+1)
			counts["in time"]++
			if trial%5 == 0 && last > 0 { // one more waiter, which is too late and is refused at some instant
				counts["late"]++
				more := oracle(limits, log, now, append(slices.Clone(costs), 1))[last+1].Sub(now)
				late := wait(t, l, 1, max(more-time.Microsecond, 1))
				<-late.done
				if !errors.Is(late.err, context.DeadlineExceeded) || late.d.Allowed || late.d.RetryAfter > more {
					t.Errorf("%s: one more: %v, Retry-After %v of %v", who, late.err, late.d.RetryAfter, more)
				}
			}
			for i := range waiters {
				waiters[i].admitted(t, want[i], who)
			}
			w.admitted(t, want[last], who)
			if t.Failed() {
				break
			}
		}
		for _, what := range []string{"in time", "late"} {
			if counts[what] < 400 {
				t.Errorf("only %d trials are %s: %v", counts[what], what, counts)
			}
		}
	})
}

func TestWaitMistakesAreToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiterBy(t, core.Limits{core.PerSecond(5), core.PerHour(3)}, core.ByText())
		take(t, l, 3)
		start := time.Now()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		var none *core.Limiter
		for _, queue := range []int{0, 1, 10} { // at the head, and behind others
			var queued []*waiter
			for range queue {
				queued = append(queued, wait(t, l, 1))
			}
			for _, cost := range []int{4, 5, 6, math.MaxInt} {
				d, err := l.WaitN(t.Context(), "k", cost)
				if !errors.Is(err, core.ErrCostExceedsQuota) || d.Allowed || !d.Never() ||
					!slices.Contains(d.Violated, "3-per-hour") {
					t.Errorf("cost %d: %+v, %v", cost, d, err)
				}
			}
			for _, cost := range []int{0, -1, -3, math.MinInt} {
				var mistake *core.ConfigError
				d, err := l.WaitN(t.Context(), "k", cost)
				if !errors.As(err, &mistake) || mistake.Option != "cost" || d.Allowed {
					t.Errorf("cost %d: %v", cost, err)
				}
			}
			if _, err := l.Wait(over, "k"); !errors.Is(err, context.Canceled) {
				t.Errorf("a context that is over: %v", err)
			}
			if _, err := l.Wait(t.Context(), ""); !errors.Is(err, core.ErrNoKey) {
				t.Errorf("no key: %v", err)
			}
			for _, w := range queued {
				w.cancel()
				<-w.done
			}
		}
		asked := 0
		l = newLimiter(t, core.PerHour(1), core.WithObserver(func(_ context.Context, e core.Event) {
			if e.Outcome != event.Failed {
				asked++
			}
		}))
		take(t, l, 1)
		first := wait(t, l, 1)
		asked = 0
		past, cancel := context.WithDeadline(t.Context(), start)
		if _, err := l.Wait(past, "k"); !errors.Is(err, context.DeadlineExceeded) || asked != 0 {
			t.Errorf("a context that is over: %v, and the store was asked %d times", err, asked)
		}
		cancel()
		first.cancel()
		for _, l := range []*core.Limiter{none, new(core.Limiter)} {
			if _, err := l.Wait(t.Context(), "k"); !errors.As(err, new(*core.ConfigError)) {
				t.Errorf("no limiter: %v", err)
			}
		}
		if !time.Now().Equal(start) {
			t.Errorf("%v have passed", time.Since(start))
		}
	})
}

// The first waiter gets the store's error, and the next one asks again.
func TestWaitStoreError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := 0
		logs := &double{Full: core.NewMemoryStore(), take: func(_ []store.Take, ask func() error) error {
			if takes++; takes == 2 {
				return errors.New("once")
			}
			return ask()
		}}
		l := newLimiter(t, core.PerHour(1), core.WithStore(logs), core.WithFailure(core.FailClosed))
		start := time.Now()
		take(t, l, 1)
		first := wait(t, l, 1)
		if !first.ended() || !errors.As(first.err, new(*core.StoreError)) {
			t.Errorf("%v", first.err)
		}
		wait(t, l, 1).admitted(t, start.Add(time.Hour))
	})
}

// A wait is one event, however often it takes from the store, with the time from its beginning to its end.
func TestWaitIsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []core.Event
		observer := core.WithObserver(func(_ context.Context, e core.Event) { events = append(events, e) })
		l := newLimiterBy(t, core.PerHour(1), core.ByText(), observer)
		take(t, l, 1)
		if _, err := l.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err := l.WaitN(t.Context(), "k", 2); !errors.Is(err, core.ErrCostExceedsQuota) {
			t.Fatal(err)
		}
		if _, err := l.Wait(t.Context(), ""); !errors.Is(err, core.ErrNoKey) {
			t.Fatal(err)
		}
		want := []core.Event{
			{Outcome: event.Allowed},
			{Outcome: event.Allowed, Took: time.Hour},
			{Outcome: event.Denied},
			{Outcome: event.Denied, Cost: 2},
			{Outcome: event.NoKey},
		}
		if len(events) != len(want) {
			t.Fatalf("%d events, want %d: %v", len(events), len(want), events)
		}
		for i, e := range events {
			if e.Outcome != want[i].Outcome || e.Took != want[i].Took ||
				e.Cost != max(want[i].Cost, 1) || e.Policy != "1-per-hour" {
				t.Errorf("event %d is %v, want %v", i, e, want[i])
			}
		}
	})
}

// If requests pass uncounted while the store fails, no waiter waits for those ahead of it.
func TestWaitWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := atomic.Bool{}
		l := newLimiter(t, core.Limit{Quota: 1, Window: 10 * time.Second},
			core.WithFailure(core.FailOpen), core.WithDenyCache(0),
			core.WithStore(&double{Full: core.NewMemoryStore(), take: func(_ []store.Take, ask func() error) error {
				if broken.Load() {
					return errors.New("away")
				}
				return ask()
			}}))
		start := time.Now()
		take(t, l, 1)
		first, second := wait(t, l, 1), wait(t, l, 1)
		broken.Store(true)
		third := wait(t, l, 1, 15*time.Second)
		for _, w := range []*waiter{first, second, third} {
			w.admitted(t, start.Add(10*time.Second))
		}
	})
}

// inBubbles returns how many goroutines there are in testing/synctest bubbles. The runtime starts others when it likes.
func inBubbles() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte(", synctest bubble "))
}

// A reset lifts the ban that a call waits for before it wakes the call.
func TestResetWakesWaitOfABan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.PerSecond(1), core.WithBan(1, time.Minute, time.Hour),
			core.WithStore(&double{Full: core.NewMemoryStore(), reset: func(ask func() error) error {
				time.Sleep(time.Millisecond) // other calls come first
				return ask()
			}}))
		take(t, l, 1)
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Banned {
			t.Fatalf("%+v, %v", d, err)
		}
		first := wait(t, l, 1)
		time.Sleep(time.Minute)
		must(t, l.Reset(t.Context(), "k"))
		first.admitted(t, time.Now())
	})
}

func TestWaitStartsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.PerHour(1))
		before := inBubbles()
		waiters := make([]*waiter, 20)
		for i := range waiters {
			waiters[i] = wait(t, l, 1, 100*time.Hour)
		}
		if n := inBubbles() - before; n != len(waiters)-1 { // the first was admitted
			t.Errorf("%d goroutines for %d waiters", n, len(waiters)-1)
		}
		for _, w := range waiters {
			w.cancel()
		}
	})
}

// A crowd that comes and goes: no window is ever over its quota, none is left behind, and what is not admitted
// leaves no unit.
func TestWaitCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := core.Limit{Quota: 20, Window: time.Second}
		l := newLimiter(t, limit)
		type admission struct {
			at   time.Time
			cost int
		}
		var mu sync.Mutex
		var log []admission
		var gone int
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(1, uint64(i)))
				time.Sleep(time.Duration(rnd.IntN(60_000)) * time.Millisecond)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				switch rnd.IntN(3) {
				case 0:
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rnd.IntN(10_000))*time.Millisecond)
					defer cancel()
				case 1:
					time.AfterFunc(time.Duration(rnd.IntN(10_000))*time.Millisecond, cancel)
				}
				cost := 1 + rnd.IntN(3)
				_, err := l.WaitN(ctx, "k", cost)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					log = append(log, admission{time.Now(), cost})
				case ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("%v", err)
				default:
					gone++
				}
			})
		}
		wg.Wait()
		for i, first := range log {
			sum := 0
			for _, a := range log[i:] {
				if a.at.Sub(first.at) < limit.Window {
					sum += a.cost
				}
			}
			if sum > limit.Quota {
				t.Fatalf("%d units within a window from %v on", sum, first.at)
			}
		}
		if gone < 100 || len(log) < 500 {
			t.Errorf("%d admitted, %d not: the test proves little", len(log), gone)
		}
		time.Sleep(limit.Window)
		wait(t, l, limit.Quota).admitted(t, time.Now(), "who comes after the crowd")
	})
}
