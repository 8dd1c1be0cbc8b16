package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// allowAtMost asks for up to cost units, and compares what is granted.
func allowAtMost(ctx context.Context, t *testing.T, l *core.Limiter, cost, granted int) core.Decision {
	t.Helper()
	d, err := l.AllowAtMost(ctx, "k", cost)
	if err != nil || d.Granted != granted || d.Allowed != (granted > 0) {
		t.Errorf("AllowAtMost(%d): %v, %v; want %d granted", cost, d, err, granted)
	}
	return d
}

// Each kind of decision tells what was granted, and events tell it beside the cost.
func TestGranted(t *testing.T) {
	ctx := t.Context()
	var heard core.Event
	observe := core.WithObserver(func(_ context.Context, e core.Event) { heard = e })
	shadow := core.WithShadow(core.PerMinute(4))
	l := newLimiter(t, core.PerHour(6), observe, shadow)
	want := func(what string, d core.Decision, granted, shadow int) {
		t.Helper()
		if d.Granted != granted || heard.Decision.Granted != granted || heard.Shadow.Granted != shadow {
			t.Errorf("%s: %v and event %v; want %d granted, %d by the shadow", what, d, heard, granted, shadow)
		}
	}
	d, _ := l.Peek(ctx, "k")
	want("Peek", d, 0, 0)
	d, _ = l.Allow(ctx, "k")
	want("Allow", d, 1, 1)
	d, _ = l.AllowN(ctx, "k", 2)
	want("AllowN", d, 2, 2)
	d, _ = l.AllowN(ctx, "k", 4)
	want("AllowN of too many", d, 0, 0)
	d, _ = l.AllowN(ctx, "k", 7)
	want("AllowN above the quota", d, 0, 0)
	if d = allowAtMost(ctx, t, l, 2, 2); !heard.Shadow.Allowed || heard.Mode != store.ModeAtMost || heard.Cost != 2 {
		t.Errorf("event %v", heard)
	}
	want("AllowAtMost of which the shadow grants a part", d, 2, 1)
	d = allowAtMost(ctx, t, l, 5, 1)
	want("AllowAtMost of which a part is granted", d, 1, 0)
	if text := fmt.Sprint(d); !strings.Contains(text, " granted=1") {
		t.Errorf("printed %s", text)
	}
	if heard.Shadow.Allowed || heard.Cost != 5 || heard.Shadow.RetryAfter <= 0 {
		t.Errorf("event %v", heard)
	}
	want("AllowAtMost of nothing", allowAtMost(ctx, t, l, 5, 0), 0, 0)
	d, _ = l.Record(ctx, "k", 3)
	want("Record", d, 3, 3)
	must(t, l.Reset(ctx, "k"))
	d, _ = l.WaitN(ctx, "k", 6)
	want("WaitN", d, 6, 0)

	l = newLimiter(t, core.PerHour(1), core.WithCountDenied())
	allowAtMost(ctx, t, l, 3, 1)
	if d, _ := l.Allow(ctx, "k"); d.Granted != 0 {
		t.Errorf("a denial that was recorded: %v", d)
	}
	d, err := newLimiter(t, core.PerHour(1), core.WithSkip(func(context.Context) bool { return true })).
		Check(from("192.0.2.1:1"))
	if err != nil || !d.Allowed || d.Granted != 0 {
		t.Errorf("a request that is skipped: %v, %v", d, err)
	}
	banning := newLimiter(t, core.PerHour(1), core.WithBan(1, time.Hour, time.Hour))
	allowAtMost(ctx, t, banning, 3, 1)
	for range 2 {
		if d := allowAtMost(ctx, t, banning, 3, 0); !d.Banned {
			t.Errorf("%v, want a ban", d)
		}
	}
}

// Costs below 1 are errors, as of AllowN.
func TestAllowAtMostErrors(t *testing.T) {
	l := newLimiterBy(t, core.PerHour(5), core.ByText())
	for _, cost := range []int{0, -1} {
		_, want := l.AllowN(t.Context(), "k", cost)
		_, err := l.AllowAtMost(t.Context(), "k", cost)
		if !errors.As(err, new(*core.ConfigError)) || err.Error() != want.Error() ||
			!strings.Contains(err.Error(), "use Peek") {
			t.Errorf("AllowAtMost(%d): %v, want %v", cost, err, want)
		}
	}
	if _, err := l.AllowAtMost(t.Context(), "", 1); !errors.Is(err, core.ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
}
