package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/event"
)

// Again takes what the request has taken, of each limit and unit, without a permit, and tells the observers.
func TestAgain(t *testing.T) {
	inBubble(t, "again", func(t *testing.T) {
		var events []string
		org := core.By(func(r *http.Request) (string, error) { return r.Header.Get("Org"), nil })
		l := newLimiterBy(t, core.Limits{
			core.PerHour(9), core.PerHour(100).Of("tokens").By(org), core.PerMonth(50), core.InFlight(1),
		}, core.ByIP(),
			core.WithCostOf("tokens", func(*http.Request) int { return 30 }),
			core.WithShadow(core.PerHour(2)),
			core.WithDecisionInContext(),
			core.WithSkip(func(r *http.Request) bool { return r.Method == http.MethodHead }),
			core.WithObserver(func(_ context.Context, e core.Event) {
				events = append(events, fmt.Sprint(e.Outcome, " ", e.Key, " ", e.Cost, " ", e.Shadow.Allowed))
			}))
		d := checkOnce(t, l, from("192.0.2.1:1", "Org", "acme"), true)
		ctx, _ := d.Context(t.Context())
		d.Serve(func() int {
			first, _ := core.DecisionFrom(ctx)
			for i := range 2 {
				next, err := first.Again(t.Context())
				if err != nil || !next.Allowed {
					t.Fatal(next, err)
				}
				if i == 0 { // the first one's own units stay
					must(t, next.SettleCosts(t.Context(), core.Costs{"tokens": 40}))
				}
			}
			next, err := first.Again(t.Context())
			if err != nil || next.Allowed || !slices.Equal(next.Violated, []string{"100-tokens-per-hour"}) {
				t.Errorf("40 tokens more than are left: %v, %v", next, err)
			}
			return http.StatusOK
		})
		for _, s := range windowsOf(t, d, 4) {
			want := map[string]int{
				"9-per-hour": 3, "100-tokens-per-hour": 100, "50-per-month": 3, "1-in-flight": 0,
			}[s.Name]
			if s.Used != want {
				t.Errorf("%s: %d used, want %d", s.Name, s.Used, want)
			}
		}
		want := []string{
			"allowed 192.0.2.1 1 true", "allowed 192.0.2.1 1 true", "allowed 192.0.2.1 1 false",
			"denied 192.0.2.1 1 false",
		}
		if !slices.Equal(events, want) {
			t.Errorf("%q, want %q", events, want)
		}

		r := from("192.0.2.1:1")
		r.Method = http.MethodHead
		if next, err := checkOnce(t, l, r, true).Again(t.Context()); err != nil || !next.Allowed {
			t.Errorf("after a request that was skipped: %v, %v", next, err)
		}
		if _, err := (core.Decision{}).Again(t.Context()); !errors.As(err, new(*core.ConfigError)) {
			t.Errorf("of no decision: %v", err)
		}
	})
}

// Overrides that have come and gone since the request apply to what is asked again, and then its own limits again.
func TestAgainWithOverrides(t *testing.T) {
	inBubble(t, "overrides", func(t *testing.T) {
		l := newLimiterBy(t, core.Limits{core.PerHour(9), core.PerDay(20)}, core.ByIP(), core.WithOverrides())
		d := checkOnce(t, l, from("192.0.2.1:1"), true)
		for _, step := range []struct {
			override *core.Override
			want     string
		}{
			{&core.Override{Limits: core.Limits{core.PerHour(2)}}, "2-per-hour 1"},
			{&core.Override{Denied: true}, "override"},
			{nil, "9-per-hour 2, 20-per-day 1"}, // the day's log was not asked under the override
			{&core.Override{Unlimited: true}, ""},
		} {
			if step.override == nil {
				must(t, l.RemoveOverride(t.Context(), "192.0.2.1"))
			} else {
				step.override.Until = time.Now().Add(time.Hour)
				overrideIn(t, l, "192.0.2.1", *step.override)
			}
			time.Sleep(1100 * time.Millisecond) // until all know of it
			next, err := d.Again(t.Context())
			must(t, err)
			if got := told(next); got != step.want {
				t.Errorf("with %+v: %q, want %q", step.override, got, step.want)
			}
			d = next
		}
	})
}

// told is what a decision tells of its limits.
func told(d core.Decision) (text string) {
	if len(d.Limits()) == 0 && !d.Allowed {
		return d.Violated[0]
	}
	for _, s := range d.Limits() {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprint(s.Name, " ", s.Used)
	}
	return text
}

func TestWaitAgain(t *testing.T) {
	inBubble(t, "wait", func(t *testing.T) {
		l := newLimiterBy(t, core.PerMinute(1), core.ByText())
		began := time.Now()
		d, err := l.Allow(t.Context(), "a")
		for i := range 3 {
			if took := time.Since(began); err != nil || !d.Allowed || took != time.Duration(i)*time.Minute {
				t.Fatalf("message %d after %v: %v, %v", i+1, took, d, err)
			}
			d, err = d.WaitAgain(t.Context())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if d, err = d.WaitAgain(ctx); !errors.Is(err, context.DeadlineExceeded) || d.RetryAfter != time.Minute {
			t.Errorf("%v, %v, want the wait that is too long", d, err)
		}
	})
}

// A cost that no longer fits, since an override has come, is an error, so that nobody waits for it.
func TestAgainNeverFits(t *testing.T) {
	inBubble(t, "never", func(t *testing.T) {
		l := newLimiterBy(t, core.PerMinute(9), core.ByText(), core.WithOverrides())
		d, err := l.AllowN(t.Context(), "a", 5)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		overrideIn(t, l, "a", core.Override{Limits: core.Limits{core.PerMinute(4)}, Until: time.Now().Add(time.Hour)})
		time.Sleep(1100 * time.Millisecond)
		for _, again := range []func(context.Context) (core.Decision, error){d.Again, d.WaitAgain} {
			if d, err := again(t.Context()); !errors.Is(err, core.ErrCostExceedsQuota) || d.Allowed {
				t.Errorf("%v, %v", d, err)
			}
		}
	})
}

// Without an answer of the store there is no decision, and an event tells why.
func TestAgainFails(t *testing.T) {
	fake := new(coretest.FakeStore)
	var last core.Event
	l := newLimiterBy(t, core.PerMinute(9), core.ByText(), core.WithStore(fake), core.WithFailure(core.FailClosed),
		core.WithObserver(func(_ context.Context, e core.Event) { last = e }))
	d, err := l.Allow(t.Context(), "a")
	must(t, err)
	fake.Fail(errDown)
	if _, err = d.Again(t.Context()); !errors.As(err, new(*core.StoreError)) || last.Outcome != event.Failed {
		t.Errorf("%v, %v", err, last)
	}
}
