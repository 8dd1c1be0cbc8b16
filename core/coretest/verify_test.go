package coretest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

// heard records the errors of a test.
type heard struct {
	testing.TB

	errors []string
}

func (*heard) Helper() {}

func (h *heard) Errorf(format string, args ...any) {
	h.errors = append(h.errors, fmt.Sprintf(format, args...))
}

func verify(entries []core.Entry, limits ...core.Limit) []string {
	h := new(heard)
	coretest.Verify(h, entries, limits)
	return h.errors
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// at is a log of entries of one unit, so long after noon.
func at(offsets ...time.Duration) (entries []core.Entry) {
	for _, o := range offsets {
		entries = append(entries, core.Entry{At: noon.Add(o), Cost: 1})
	}
	return entries
}

func TestVerify(t *testing.T) {
	costly := at(0, 30*time.Second, time.Minute)
	costly[1].Cost = 3
	wrong := at(0, time.Second)
	wrong[1].Cost = 0
	for _, c := range []struct {
		desc    string
		entries []core.Entry
		limits  core.Limits
		want    []string
	}{
		{"nothing", nil, core.Limits{core.PerMinute(1)}, nil},
		{"exactly a window apart", at(0, time.Minute, 2*time.Minute), core.Limits{core.PerMinute(1)}, nil},
		{"a nanosecond less", at(0, time.Minute-1), core.Limits{core.PerMinute(1)}, []string{
			"Verify: 1/minute: 2 units in the window " +
				"(2026-01-02T11:59:59.999999999Z, 2026-01-02T12:00:59.999999999Z]"}},
		{"one instant", at(0, 0, 0), core.Limits{core.PerMinute(2)}, []string{
			"Verify: 2/minute: 3 units in the window (2026-01-02T11:59:00Z, 2026-01-02T12:00:00Z]"}},
		{"costs that fit", costly, core.Limits{core.PerMinute(4)}, nil},
		{"costs", costly, core.Limits{core.PerMinute(3)}, []string{
			"Verify: 3/minute: 4 units in the window (2026-01-02T11:59:30Z, 2026-01-02T12:00:30Z]"}},
		{"the fullest window, unsorted", at(70*time.Second, 0, 71*time.Second, time.Second, 72*time.Second),
			core.Limits{core.PerMinute(1)}, []string{
				"Verify: 1/minute: 3 units in the window (2026-01-02T12:00:12Z, 2026-01-02T12:01:12Z]"}},
		{"several limits", at(0, time.Second, 2*time.Second, time.Minute),
			core.Limits{core.PerSecond(1), core.PerMinute(2), core.PerHour(3)}, []string{
				"Verify: 2/minute: 3 units in the window (2026-01-02T11:59:02Z, 2026-01-02T12:00:02Z]",
				"Verify: 3/hour: 4 units in the window (2026-01-02T11:01:00Z, 2026-01-02T12:01:00Z]"}},
		{"no entry", wrong, core.Limits{core.PerMinute(1)}, []string{
			"Verify: an entry of 0 units at 2026-01-02T12:00:01Z"}},
		{"no limits", at(0), core.Limits{}, []string{
			"Verify: sash: limits(none): there are no limits; pass at least one, such as core.PerMinute(100)"}},
	} {
		given := slices.Clone(c.entries)
		if got := verify(c.entries, c.limits...); !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.desc, got, c.want)
		}
		if !slices.Equal(c.entries, given) {
			t.Errorf("%s: the entries have changed", c.desc)
		}
	}
}

// fullest looks at every window that ends with an entry, from end to end.
func fullest(entries []core.Entry, window time.Duration) (most int) {
	for _, end := range entries {
		units := 0
		for _, e := range entries {
			if e.At.After(end.At.Add(-window)) && !e.At.After(end.At) {
				units += e.Cost
			}
		}
		most = max(most, units)
	}
	return most
}

func TestVerifyAgainstDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	broken := 0
	for range 5000 {
		var entries []core.Entry
		for range r.IntN(20) {
			// Few instants, so that many are one window apart.
			at := noon.Add(time.Duration(r.IntN(30)) * time.Second)
			entries = append(entries, core.Entry{At: at, Cost: 1 + r.IntN(3)})
		}
		var limits core.Limits
		var want []string
		for i := range 1 + r.IntN(3) {
			window := time.Duration(1+r.IntN(20)) * time.Second
			l := core.Limit{Quota: 1 + r.IntN(20), Window: window, Name: fmt.Sprint(i)}
			limits = append(limits, l)
			if most := fullest(entries, l.Window); most > l.Quota {
				want = append(want, fmt.Sprintf("Verify: %v: %d units", l, most))
				broken++
			}
		}
		got := verify(entries, limits...)
		begins := func(got, want string) bool { return strings.HasPrefix(got, want+" ") }
		if !slices.EqualFunc(got, want, begins) {
			t.Fatalf("%v of %v:\ngot  %q\nwant %q", limits, entries, got, want)
		}
	}
	if broken < 1000 {
		t.Errorf("only %d limits were broken", broken)
	}
}

// What a limiter has let through holds, and would not under a quota of one less.
func TestVerifyLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := core.Limits{core.PerSecond(3), core.PerMinute(20)}
		l, err := core.New(limits, core.Global())
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(3, 4))
		for range 300 {
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			if _, err := l.AllowN(t.Context(), "k", 1+r.IntN(2)); err != nil {
				t.Fatal(err)
			}
			entries, err := l.Log(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			coretest.Verify(t, entries, limits)
		}
		entries, err := l.Log(t.Context(), "k")
		if got := verify(entries, core.PerSecond(2), core.PerMinute(19)); len(got) != 2 || err != nil {
			t.Errorf("%q, %v; want both limits to be broken", got, err)
		}
	})
}
