package coretest

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// A store keeps overrides by policy and name until their ends, and gives each state of them another version.
func keepsOverrides(t *testing.T, c StoreConfig) {
	s, _ := c.New(t)
	d := newDirect(t, s)
	o := optional[store.Overrider](d, "store.Overrider")
	version, versions := "", map[string]bool{"": true}
	set := func(policy string, override store.Override) {
		t.Helper()
		d.noError(o.SetOverride(t.Context(), policy, override))
	}
	// have compares the overrides, and whether their version is new.
	have := func(changed bool, want ...store.Override) {
		t.Helper()
		next, all, err := o.Overrides(t.Context(), "p", version)
		d.noError(err)
		if !changed {
			if next != version || len(all) > 0 {
				t.Errorf("version %q, %v; want %q and none, as nothing has changed", next, all, version)
			}
			return
		}
		if versions[next] {
			t.Errorf("version %q was there before", next)
		}
		version, versions[next] = next, true
		slices.SortFunc(all, func(a, b store.Override) int { return cmp.Compare(a.Name, b.Name) })
		if !slices.EqualFunc(all, want, func(a, b store.Override) bool {
			return a.Name == b.Name && a.Value == b.Value && a.Until.Equal(b.Until)
		}) {
			t.Errorf("%v, want %v", all, want)
		}
	}
	in := func(d time.Duration) time.Time { return time.Now().Add(d).Truncate(time.Millisecond) }

	if next, all, err := o.Overrides(t.Context(), "p", ""); next != "" || len(all) > 0 || err != nil {
		t.Errorf("without overrides: %q, %v, %v", next, all, err)
	}
	a := store.Override{Name: "a", Value: "one two", Until: in(time.Hour)}
	b := store.Override{Name: "b", Value: `{"ä": 1}`, Until: in(time.Minute)}
	set("p", a)
	have(true, a)
	have(false)
	set("p", b)
	set("other", store.Override{Name: "c", Value: "3", Until: in(time.Hour)})
	have(true, a, b)
	a.Value, a.Until = "shorter", in(time.Minute)
	set("p", a)
	have(true, a, b)
	set("p", store.Override{Name: "a", Value: "pause", Until: a.Until.Add(-time.Second), Extend: true})
	set("p", store.Override{Name: "a", Value: "pause", Until: a.Until, Extend: true})
	have(false)
	set("p", store.Override{Name: "a", Until: in(0)})
	have(true, b)
	a = store.Override{Name: "a", Value: "pause", Until: in(time.Minute), Extend: true}
	set("p", a)
	have(true, a, b)
	set("p", store.Override{Name: "a", Value: "short", Until: in(time.Second), Extend: true})
	have(false)
	a.Until = a.Until.Add(time.Second)
	set("p", a)
	have(true, a, b)
	set("p", store.Override{Name: "a"})
	set("p", store.Override{Name: "b"})
	set("p", store.Override{Name: "was never there"})
	if _, all, err := o.Overrides(t.Context(), "p", ""); len(all) > 0 || err != nil {
		t.Errorf("after removing all: %v, %v", all, err)
	}
}

// A policy has so many overrides and so many pauses at most, of which those that have ended do not count.
func boundsOverrides(t *testing.T, c StoreConfig) {
	s, _ := c.New(t)
	d := newDirect(t, s)
	o := optional[store.Overrider](d, "store.Overrider")
	until := time.Now().Add(time.Hour)
	// Pauses come from servers on the Internet, and take no room from the overrides of an administrator.
	pause := func(i int, until time.Time) error {
		return o.SetOverride(t.Context(), "p",
			store.Override{Name: "pause " + strconv.Itoa(i), Value: "v", Until: until, Extend: true})
	}
	for i := range store.MaxPauses {
		ends := until
		if i == 7 {
			ends = time.Now().Add(-time.Minute)
		}
		d.noError(pause(i, ends))
	}
	d.noError(pause(store.MaxPauses, until)) // in place of what has ended
	if err := pause(-1, until); !errors.As(err, new(*store.ConfigError)) {
		t.Errorf("one pause too many: %v, want a ConfigError", err)
	}
	const callers = 16
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := caller; i < store.MaxOverrides; i += callers {
				set := store.Override{Name: strconv.Itoa(i), Value: "v", Until: until}
				if i == 7 {
					set.Until = time.Now().Add(-time.Minute)
				}
				if err := o.SetOverride(t.Context(), "p", set); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	more := func(name string) error {
		return o.SetOverride(t.Context(), "p", store.Override{Name: name, Value: "more", Until: until})
	}
	d.noError(more("in place of what has ended"))
	if err := more("too many"); !errors.As(err, new(*store.ConfigError)) {
		t.Errorf("one override too many: %v, want a ConfigError", err)
	}
	d.noError(more("8")) // it is there already
	d.noError(o.SetOverride(t.Context(), "p", store.Override{Name: "9"}))
	d.noError(more("in place of what was removed"))
	if err := pause(-1, until); !errors.As(err, new(*store.ConfigError)) {
		t.Errorf("one pause too many beside all overrides: %v, want a ConfigError", err)
	}
	_, list, err := o.Overrides(t.Context(), "p", "")
	if want := store.MaxOverrides + store.MaxPauses; len(list) != want || err != nil {
		t.Errorf("%d overrides and pauses, %v; want %d", len(list), err, want)
	}
}

// A log that no limit decides about keeps as many units as one of ModeRecord.
func shadowsTrim(t *testing.T, c StoreConfig) {
	if c.OneLimit {
		t.Skip("the store has no shadows")
	}
	s, _ := c.New(t)
	d := newDirect(t, s)
	const cost = 10_000
	p := planOfOne(1, time.Hour, store.Plan{Shadow: 1})
	for _, mode := range []store.Mode{store.ModeCharge, store.ModeUpTo, store.ModeChargeDenied} {
		d.key = store.NewKey("contract", mode.String())
		for range store.MaxRecorded/cost + 2 {
			if a := d.take(p, mode, cost); !a.Allowed {
				t.Errorf("mode %v: %+v, want it allowed", mode, a)
			}
		}
		d.used(p, store.MaxRecorded)
	}
}

// Overrides of a limiter change what is allowed as the definition says, whatever was used before.
func overridesAgainstOracle(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	optional[store.Overrider](newDirect(t, s), "store.Overrider")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	base := core.Limits{
		{Name: "a", Quota: 5, Window: time.Second}, {Name: "b", Quota: 12, Window: 10 * time.Second},
	}
	most := 3 // limits of an override
	if c.OneLimit {
		base, most = base[:1], 1
	}
	l := limiter(t, s, base, core.WithOverrides())
	type entry struct {
		at   time.Duration
		cost int
	}
	var now time.Duration
	entries, limits, o := map[string][]entry{}, map[string]core.Limits{}, core.Override{
		Until: time.Now().Add(time.Hour),
	}
	denied, raised := 0, 0
	for step := range testlen.Of(min(c.Checks, 500), min(c.Checks, 20_000)) {
		key := "k" + strconv.Itoa(rng.IntN(3))
		switch rng.IntN(20) {
		case 0:
			o.Limits, o.Denied, o.Unlimited = nil, false, false
			switch kind := rng.IntN(5); {
			case kind == 0 && !c.OneLimit:
				o.Unlimited, limits[key] = true, core.Limits{}
			case kind == 1:
				o.Denied, limits[key] = true, nil
			default:
				o.Limits = make(core.Limits, 1+rng.IntN(most))
				for i := range o.Limits {
					window := time.Duration(1+rng.IntN(10_000)) * time.Millisecond
					if c.OneLimit { // a stream keeps entries for one window
						window = base[0].Window
					}
					o.Limits[i] = core.Limit{Name: "o" + strconv.Itoa(i), Quota: 1 + rng.IntN(25), Window: window}
				}
				limits[key] = o.Limits
			}
			if err := l.Override(t.Context(), key, o); err != nil {
				t.Fatal(err)
			}
		case 1:
			delete(limits, key)
			if err := l.RemoveOverride(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		case 2, 3, 4, 5, 6:
			pause := time.Duration(rng.IntN(1_000_000)) * time.Microsecond
			now += pause
			advance(pause)
		default:
			cost := 1
			if !c.OneLimit {
				cost += rng.IntN(2)
			}
			in, is := limits[key]
			want := !is || in != nil
			if !is {
				in = base
			}
			for _, limit := range in {
				used := 0
				for _, e := range entries[key] {
					if now-e.at < limit.Window {
						used += e.cost
					}
				}
				want = want && used+cost <= limit.Quota
			}
			d, err := l.AllowN(t.Context(), key, cost)
			if err != nil && !errors.Is(err, core.ErrCostExceedsQuota) {
				t.Fatal(err)
			}
			if d.Allowed != want || is == (d.Overridden == nil) {
				t.Fatalf("step %d: %d units of %s at %v: %v by %v, want allowed=%v by %v; the log: %v",
					step, cost, key, now, d, d.Overridden, want, in, entries[key])
			}
			if !want {
				denied++
				continue
			}
			if entries[key] = append(entries[key], entry{now, cost}); is {
				raised++
			}
		}
	}
	if denied == 0 || raised == 0 {
		t.Errorf("%d denials, and %d requests allowed by overrides: the trace is of no use", denied, raised)
	}
}
