package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/store"
)

// windowsOf returns the windows of a decision, of which there are so many.
func windowsOf(t *testing.T, d core.Decision, n int) []engine.Window {
	t.Helper()
	windows, err := d.Inside().Windows(t.Context())
	if err != nil || len(windows) != n {
		t.Fatalf("%+v, %v; want %d windows", windows, err, n)
	}
	return windows
}

func allow(t *testing.T, l *core.Limiter, key string, cost int) core.Decision {
	t.Helper()
	d, err := l.AllowN(t.Context(), key, cost)
	must(t, err)
	return d
}

// The windows of a decision show the log as it is when they are asked for, and asking counts nothing.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := 0
		l := newLimiter(t, core.Limits{core.PerSecond(4), core.PerMinute(9)},
			core.WithObserver(func(context.Context, core.Event) { events++ }))
		d := allow(t, l, "k", 1)
		time.Sleep(10 * time.Second)
		allow(t, l, "k", 3)
		time.Sleep(250 * time.Millisecond)
		told := events
		for range 3 {
			windows := windowsOf(t, d, 2)
			second, minute := windows[0], windows[1]
			if second.Used != 3 || second.Left != 1 || len(second.Entries) != 1 || second.Quota != 4 {
				t.Errorf("second: %+v", second)
			}
			if minute.Used != 4 || minute.Left != 5 || len(minute.Entries) != 2 || minute.Entries[1].Cost != 3 {
				t.Errorf("minute: %+v", minute)
			}
			if minute.Of != "k" || minute.Window != time.Minute || minute.Algorithm() != "sliding log" {
				t.Errorf("minute: %+v", minute)
			}
			for _, w := range windows {
				if !w.Now.Equal(time.Now()) {
					t.Errorf("%s: it is %v on the clock of the store, and %v here", w.Name, w.Now, time.Now())
				}
			}
		}
		if events != told {
			t.Errorf("observers were told %d times", events-told)
		}
	})
}

// Limits with keys of their own have windows of their own, and resetting one leaves the others. Algorithms other than
// the log have no entries.
func TestWindowsOfSeveralKeys(t *testing.T) {
	all := core.By(func(context.Context) (string, error) { return "everybody", nil })
	user := core.By(func(context.Context) (string, error) { return "", core.ErrNoKey })
	l := newLimiterBy(t, core.Limits{
		core.PerMinute(5), core.PerHour(50).By(all), core.PerDay(7).With(core.FixedWindow), core.InFlight(3),
	}, user, core.WithShadow(core.PerMinute(1)))
	windowsOf(t, core.Decision{}, 0) // no limit was asked
	d := allow(t, l, "u", 2)
	used := func() (n []int) {
		for _, w := range windowsOf(t, d, 4) {
			n = append(n, w.Used)
		}
		return n
	}
	windows := windowsOf(t, d, 4)
	for i, want := range []struct {
		key, algorithm string
		entries        int
		used           int
	}{
		{"u", "sliding log", 1, 2}, {"everybody", "sliding log", 1, 2}, {"u", "fixed window", 0, 2},
		{"u", "in flight", 0, 1},
	} {
		w := windows[i]
		if w.Of != want.key || w.Algorithm() != want.algorithm || len(w.Entries) != want.entries ||
			w.Used != want.used {
			t.Errorf("%d: %+v, want %+v", i, w, want)
		}
	}
	for i, want := range [][]int{{0, 2, 0, 1}, {0, 0, 0, 1}, {0, 0, 0, 1}} {
		must(t, windows[i].Clear(t.Context()))
		for at, n := range used() {
			if n != want[at] {
				t.Errorf("after %d resets: %v used, want %v", i+1, used(), want)
				break
			}
		}
	}
}

// Resetting the window of the limiter's key lifts a ban.
func TestWindowOfBanned(t *testing.T) {
	l := newLimiter(t, core.PerMinute(1), core.WithBan(2, time.Minute, time.Hour))
	for range 4 {
		allow(t, l, "k", 1)
	}
	d := allow(t, l, "k", 1)
	if !d.Banned {
		t.Fatal(d)
	}
	windows := windowsOf(t, d, 1)
	if windows[0].Used != 1 {
		t.Error(windows)
	}
	must(t, windows[0].Clear(t.Context()))
	if d = allow(t, l, "k", 1); !d.Allowed {
		t.Error(d)
	}
}

// The entries of a very long log are not listed.
func TestWindowOfLongLog(t *testing.T) {
	l := newLimiter(t, core.Limits{core.PerSecond(20_000), core.PerHour(20_000)})
	for _, test := range []struct {
		cost    int
		entries int
	}{{10_000, 1}, {1, 0}} {
		d := allow(t, l, "k", test.cost)
		windows := windowsOf(t, d, 2)
		if len(windows[1].Entries) != test.entries || windows[1].Used < test.cost {
			t.Errorf("%+v; want %d entries", windows, test.entries)
		}
	}
}

// The time of the store does not follow from entries other than those that the limit was asked about.
func TestWindowWhileEntriesCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := &double{Full: core.NewMemoryStore()}
		logs.log = func(ask func() ([]store.Entry, error)) ([]store.Entry, error) {
			entries, err := ask() // one more has come just before
			return append(entries, store.Entry{At: time.Now(), Cost: 1}), err
		}
		l := newLimiter(t, core.PerMinute(5), core.WithStore(logs))
		defer l.Close()
		allow(t, l, "k", 1)
		time.Sleep(10 * time.Second)
		d := allow(t, l, "k", 1)
		if windows := windowsOf(t, d, 1); !windows[0].Now.Equal(time.Now()) {
			t.Errorf("%+v; it is %v", windows, time.Now())
		}
	})
}
