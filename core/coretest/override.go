package coretest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// A store keeps overrides by policy and name until their ends, and gives each state of them another version.
func storedOverrides(e *example) {
	o := overrider(e)
	version, versions := "", map[string]bool{"": true}
	set := func(policy string, override store.Override) {
		e.Helper()
		e.noError(o.SetOverride(e.Context(), policy, override))
	}
	same := func() {
		e.Helper()
		next, all, err := o.Overrides(e.Context(), "p", version)
		if next != version || len(all) > 0 || err != nil {
			e.Errorf("version %q, %v, %v; want %q and none, as nothing has changed", next, all, err, version)
		}
	}
	changed := func(want ...store.Override) {
		e.Helper()
		next, all, err := o.Overrides(e.Context(), "p", version)
		e.noError(err)
		if versions[next] {
			e.Errorf("version %q was there before", next)
		}
		version, versions[next] = next, true
		slices.SortFunc(all, func(a, b store.Override) int { return cmp.Compare(a.Name, b.Name) })
		if !slices.EqualFunc(all, want, func(a, b store.Override) bool {
			return a.Name == b.Name && a.Value == b.Value && a.Until.Equal(b.Until)
		}) {
			e.Errorf("%v, want %v", all, want)
		}
	}
	in := func(d time.Duration) time.Time { return time.Now().Add(d).Truncate(time.Millisecond) }
	same()
	a := store.Override{Name: "a", Value: "one two", Until: in(time.Hour)}
	b := store.Override{Name: "b", Value: `{"ä": 1}`, Until: in(time.Minute)}
	set("p", a)
	changed(a)
	same()
	set("p", b)
	set("other", store.Override{Name: "c", Value: "3", Until: in(time.Hour)})
	changed(a, b)
	a.Value, a.Until = "shorter", in(time.Minute)
	set("p", a)
	changed(a, b)
	set("p", store.Override{Name: "a", Value: "pause", Until: a.Until.Add(-time.Second), Extend: true})
	set("p", store.Override{Name: "a", Value: "pause", Until: a.Until, Extend: true})
	same()
	a = store.Override{Name: "a", Value: "pause", Until: a.Until.Add(time.Second), Extend: true}
	set("p", a)
	changed(a, b)
	set("p", store.Override{Name: "a", Until: in(0)})
	changed(b)
	set("p", store.Override{Name: "b"})
	set("p", store.Override{Name: "was never there"})
	if _, all, err := o.Overrides(e.Context(), "p", ""); len(all) > 0 || err != nil {
		e.Errorf("after removing all: %v, %v", all, err)
	}
}

// A policy has so many overrides and so many pauses at most, of which those that have ended do not count. Pauses come
// from servers on the Internet, and take no room from the overrides of an administrator, nor these from pauses.
func tooManyOverrides(e *example) {
	o := overrider(e)
	until, all := time.Now().Add(time.Hour), 0
	for _, pause := range []bool{true, false} {
		set := func(i int, until time.Time) error {
			name := fmt.Sprint(i, " pause ", pause)
			return o.SetOverride(e.Context(), "p", store.Override{Name: name, Value: "v", Until: until, Extend: pause})
		}
		most := (&store.Override{Extend: pause}).Most()
		if !pause && testlen.Of(1, most) == 1 { // a server takes long for so many
			e.noError(set(1, until))
			all++
			break
		}
		for i := range most {
			ends := until
			if i == 7 {
				ends = time.Now().Add(-time.Minute)
			}
			e.noError(set(i, ends))
		}
		all += most
		e.noError(set(most, until)) // in place of what has ended
		if err := set(-1, until); !errors.As(err, new(*store.ConfigError)) {
			e.Errorf("one too many, pause %v: %v, want a ConfigError", pause, err)
		}
		e.noError(set(8, until)) // it is there already
		e.noError(o.SetOverride(e.Context(), "p", store.Override{Name: fmt.Sprint("9 pause ", pause)}))
		e.noError(set(-2, until)) // in place of what was removed
	}
	if _, list, err := o.Overrides(e.Context(), "p", ""); len(list) != all || err != nil {
		e.Errorf("%d overrides and pauses, %v; want %d", len(list), err, all)
	}
}
