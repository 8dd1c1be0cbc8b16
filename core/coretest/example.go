package coretest

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// examples are the cases that show what a store must do.
var examples = []struct {
	name string
	run  func(*example)
}{
	{"ExactBoundary", exactBoundary},
	{"KeysApart", keysApart},
	{"InvalidTakes", invalidTakes},
	{"Overrides", storedOverrides},
	{"TooManyOverrides", tooManyOverrides},
	{"Concurrent", concurrent},
}

// example is a store, and the log that most cases ask.
type example struct {
	*testing.T
	Clocked
	*StoreConfig

	key store.Key
	id  uint64 // of the last take
}

func newExample(t *testing.T, c *StoreConfig) *example {
	return &example{T: t, Clocked: c.New(t), StoreConfig: c, key: store.NewKey("example", "k")}
}

// sliding returns a limit on the only log of its window.
func sliding(quota int, window time.Duration) *store.Limit {
	return &store.Limit{Log: window.String(), Quota: quota, Window: window}
}

// optional returns the store as one with optional methods, or skips the test.
func optional[I any](e *example, name string) I {
	e.Helper()
	able, ok := e.Store.(I)
	if !ok {
		e.Skipf("the store is no %s", name)
	}
	return able
}

func (e *example) noError(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// takes asks several logs. When the store has returned, the arguments are overwritten, to find stores that still use
// them.
func (e *example) takes(takes ...store.Take) []store.Answer {
	e.Helper()
	e.id++
	answers := make([]store.Answer, len(takes))
	for i := range takes {
		takes[i].ID = e.id
		if takes[i].Key.Namespace == nil {
			takes[i].Key = e.key
		}
	}
	e.noError(e.Store.Take(e.Context(), takes, answers))
	got := slices.Clone(answers)
	for i := range takes {
		takes[i] = store.Take{Key: store.NewKey("spoiled", ""), Limit: takes[i].Limit, Cost: math.MaxInt32, ID: 1}
		answers[i] = store.Answer{}
	}
	for i := range got {
		got[i].Period = 0
	}
	return got
}

func (e *example) take(l *store.Limit, mode store.Mode, cost int) store.Answer {
	e.Helper()
	return e.takes(store.Take{Limit: l, Mode: mode, Cost: cost})[0]
}

// admits and denies charge a cost.
func (e *example) admits(l *store.Limit, cost, used int) {
	e.Helper()
	if a := e.take(l, store.ModeCharge, cost); !a.Allowed || a.Used != used || a.Retry != 0 {
		e.Errorf("%d of %v: %+v; want it admitted after %d", cost, l, a, used)
	}
}

func (e *example) denies(l *store.Limit, cost, used int, retry time.Duration) {
	e.Helper()
	if a := e.take(l, store.ModeCharge, cost); a.Allowed || a.Used != used || a.Retry != retry {
		e.Errorf("%d of %v: %+v; want it denied after %d, for %v", cost, l, a, used, retry)
	}
}

// used peeks.
func (e *example) used(l *store.Limit, want int) {
	e.Helper()
	if a := e.take(l, store.ModePeek, 1); a.Used != want {
		e.Errorf("%d units of %v are used, want %d", a.Used, l, want)
	}
}

func exactBoundary(e *example) {
	l := sliding(3, 1500*time.Millisecond)
	for i := range 3 { // all at the same instant
		e.admits(l, 1, i)
	}
	e.Advance(l.Window - time.Microsecond)
	e.denies(l, 1, 3, time.Microsecond)
	e.Advance(time.Microsecond)
	for i := range 3 {
		e.admits(l, 1, i)
	}
	e.denies(l, 1, 3, l.Window)
}

func keysApart(e *example) {
	minute, hour := sliding(1, time.Minute), sliding(1, time.Hour)
	texts := []string{"x", "y", "a:b", "a", "{x}", "}", "x\x00", "\r\n", "é", string(make([]byte, 8192))}
	for _, policy := range []string{"a", "b"} {
		for _, text := range texts {
			for _, l := range []*store.Limit{minute, hour} {
				e.key = store.NewKey(policy, text)
				e.admits(l, 1, 0)
				e.denies(l, 1, 1, l.Window)
			}
		}
	}
}

// Takes that are not those of one request are errors, and record nothing.
func invalidTakes(e *example) {
	l, other := sliding(5, time.Hour), sliding(5, time.Minute)
	valid := func() []store.Take {
		return []store.Take{{Key: e.key, Limit: l, Cost: 1, ID: 1}, {Key: e.key, Limit: other, Cost: 1, ID: 1}}
	}
	for what, change := range map[string]func(t *store.Take){
		"a zero key":   func(t *store.Take) { t.Key = store.Key{} },
		"no limit":     func(t *store.Take) { t.Limit = nil },
		"no cost":      func(t *store.Take) { t.Cost = 0 },
		"another ID":   func(t *store.Take) { t.ID = 2 },
		"another mode": func(t *store.Take) { t.Mode = store.ModeRecord },
		"one log":      func(t *store.Take) { t.Limit = l },
	} {
		takes := valid()
		change(&takes[1])
		err := e.Store.Take(e.Context(), takes, make([]store.Answer, 2))
		if !errors.As(err, new(*store.ConfigError)) {
			e.Errorf("%s: %v, want a ConfigError", what, err)
		}
	}
	if err := e.Store.Take(e.Context(), nil, nil); err == nil {
		e.Error("no takes: no error")
	}
	if err := e.Store.Take(e.Context(), valid()[:1], make([]store.Answer, 2)); err == nil {
		e.Error("two answers for one take: no error")
	}
	e.used(l, 0)
	e.used(other, 0)
}

// Many callers at once get all of a quota and no more.
func concurrent(e *example) {
	const callers, each, quota = 32, 20, 300
	l := sliding(quota, time.Hour)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for n := range each {
				takes := []store.Take{{Key: e.key, Limit: l, Cost: 1, ID: uint64(caller*each + n + 1)}}
				answers := make([]store.Answer, 1)
				if err := e.Store.Take(context.WithoutCancel(e.Context()), takes, answers); err != nil {
					e.Error(err)
				}
				if answers[0].Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := admitted.Load(); n != quota {
		e.Errorf("%d of %d requests admitted, want %d", n, callers*each, quota)
	}
}
