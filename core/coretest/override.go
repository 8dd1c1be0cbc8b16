package coretest

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// overriding is a store whose overrides are compared.
type overriding struct {
	*example
	store.Overrider

	version  string          // of the policy "p"
	versions map[string]bool // which there were
}

func (o *overriding) set(policy string, override store.Override) {
	o.Helper()
	o.noError(o.SetOverride(o.Context(), policy, override))
}

// same checks that nothing has changed.
func (o *overriding) same() {
	o.Helper()
	next, all, err := o.Overrides(o.Context(), "p", o.version)
	if next != o.version || len(all) > 0 || err != nil {
		o.Errorf("version %q, %v, %v; want %q and none, as nothing has changed", next, all, err, o.version)
	}
}

// changed checks what the overrides have become.
func (o *overriding) changed(want ...store.Override) {
	o.Helper()
	next, all, err := o.Overrides(o.Context(), "p", o.version)
	o.noError(err)
	if o.versions[next] {
		o.Errorf("version %q was there before", next)
	}
	o.version, o.versions[next] = next, true
	slices.SortFunc(all, func(a, b store.Override) int { return cmp.Compare(a.Name, b.Name) })
	if !slices.EqualFunc(all, want, func(a, b store.Override) bool {
		return a.Name == b.Name && a.Value == b.Value && a.Until.Equal(b.Until)
	}) {
		o.Errorf("%v, want %v", all, want)
	}
}

// A store keeps overrides by policy and name until their ends, and gives each state of them another version.
func storedOverrides(e *example) {
	o := &overriding{
		example: e, Overrider: optional[store.Overrider](e, "store.Overrider"), versions: map[string]bool{"": true},
	}
	in := func(d time.Duration) time.Time { return time.Now().Add(d).Truncate(time.Millisecond) }
	o.same()
	a := store.Override{Name: "a", Value: "one two", Until: in(time.Hour)}
	b := store.Override{Name: "b", Value: `{"ä": 1}`, Until: in(time.Minute)}
	o.set("p", a)
	o.changed(a)
	o.same()
	o.set("p", b)
	o.set("other", store.Override{Name: "c", Value: "3", Until: in(time.Hour)})
	o.changed(a, b)
	a.Value, a.Until = "shorter", in(time.Minute)
	o.set("p", a)
	o.changed(a, b)
	o.set("p", store.Override{Name: "a", Value: "pause", Until: a.Until.Add(-time.Second), Extend: true})
	o.set("p", store.Override{Name: "a", Value: "pause", Until: a.Until, Extend: true})
	o.same()
	a = store.Override{Name: "a", Value: "pause", Until: a.Until.Add(time.Second), Extend: true}
	o.set("p", a)
	o.changed(a, b)
	o.set("p", store.Override{Name: "a", Until: in(0)})
	o.changed(b)
	o.set("p", store.Override{Name: "b"})
	o.set("p", store.Override{Name: "was never there"})
	if _, all, err := o.Overrides(e.Context(), "p", ""); len(all) > 0 || err != nil {
		e.Errorf("after removing all: %v, %v", all, err)
	}
}

// A policy has so many overrides and so many pauses at most, of which those that have ended do not count.
func tooManyOverrides(e *example) {
	o := optional[store.Overrider](e, "store.Overrider")
	until := time.Now().Add(time.Hour)
	// Pauses come from servers on the Internet, and take no room from the overrides of an administrator.
	pause := func(i int, until time.Time) error {
		return o.SetOverride(e.Context(), "p",
			store.Override{Name: "pause " + strconv.Itoa(i), Value: "v", Until: until, Extend: true})
	}
	for i := range store.MaxPauses {
		ends := until
		if i == 7 {
			ends = time.Now().Add(-time.Minute)
		}
		e.noError(pause(i, ends))
	}
	e.noError(pause(store.MaxPauses, until)) // in place of what has ended
	if err := pause(-1, until); !errors.As(err, new(*store.ConfigError)) {
		e.Errorf("one pause too many: %v, want a ConfigError", err)
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
				if err := o.SetOverride(e.Context(), "p", set); err != nil {
					e.Error(err)
				}
			}
		})
	}
	all.Wait()
	more := func(name string) error {
		return o.SetOverride(e.Context(), "p", store.Override{Name: name, Value: "more", Until: until})
	}
	e.noError(more("in place of what has ended"))
	if err := more("too many"); !errors.As(err, new(*store.ConfigError)) {
		e.Errorf("one override too many: %v, want a ConfigError", err)
	}
	e.noError(more("8")) // it is there already
	e.noError(o.SetOverride(e.Context(), "p", store.Override{Name: "9"}))
	e.noError(more("in place of what was removed"))
	if err := pause(-1, until); !errors.As(err, new(*store.ConfigError)) {
		e.Errorf("one pause too many beside all overrides: %v, want a ConfigError", err)
	}
	_, list, err := o.Overrides(e.Context(), "p", "")
	if want := store.MaxOverrides + store.MaxPauses; len(list) != want || err != nil {
		e.Errorf("%d overrides and pauses, %v; want %d", len(list), err, want)
	}
}
