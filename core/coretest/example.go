package coretest

import (
	"errors"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// examples are the cases that show what a store must do.
var examples = []struct {
	name string
	run  func(*example)
}{
	{"KeysApart", keysApart},
	{"InvalidTakes", invalidTakes},
	{"Overrides", storedOverrides},
	{"TooManyOverrides", tooManyOverrides},
}

type example struct {
	*testing.T
	Clocked

	id uint64 // of the last take
}

// overrider returns the store as one with overrides, or skips the test.
func overrider(e *example) store.Overrider {
	e.Helper()
	able, ok := e.Store.(store.Overrider)
	if !ok {
		e.Skip("the store is no store.Overrider")
	}
	return able
}

func (e *example) noError(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// take charges one unit.
func (e *example) take(key store.Key, l *store.Limit) store.Answer {
	e.Helper()
	e.id++
	answers := make([]store.Answer, 1)
	e.noError(e.Store.Take(e.Context(), []store.Take{{Key: key, Limit: l, Cost: 1, ID: e.id}}, answers))
	return answers[0]
}

var (
	minute = &store.Limit{Log: "1m0s", Quota: 1, Window: time.Minute}
	hour   = &store.Limit{Log: "1h0m0s", Quota: 1, Window: time.Hour}
)

func keysApart(e *example) {
	texts := []string{"x", "y", "a:b", "a", "{x}", "}", "x\x00", "\r\n", "é", string(make([]byte, 8192))}
	for _, policy := range []string{"a", "b"} {
		for _, text := range texts {
			for _, l := range []*store.Limit{minute, hour} {
				key := store.NewKey(policy, text)
				first, second := e.take(key, l), e.take(key, l)
				if !first.Allowed || first.Used != 0 || second.Allowed || second.Used != 1 || second.Retry != l.Window {
					e.Errorf("%s %.9q: %+v, then %+v", policy, text, first, second)
				}
			}
		}
	}
}

// Takes that are not those of one request are errors, and record nothing.
func invalidTakes(e *example) {
	key := store.NewKey("invalid", "k")
	valid := func() []store.Take {
		return []store.Take{{Key: key, Limit: hour, Cost: 1, ID: 1}, {Key: key, Limit: minute, Cost: 1, ID: 1}}
	}
	for what, change := range map[string]func(t *store.Take){
		"a zero key":   func(t *store.Take) { t.Key = store.Key{} },
		"no limit":     func(t *store.Take) { t.Limit = nil },
		"no cost":      func(t *store.Take) { t.Cost = 0 },
		"another ID":   func(t *store.Take) { t.ID = 2 },
		"another mode": func(t *store.Take) { t.Mode = store.ModeRecord },
		"one log":      func(t *store.Take) { t.Limit = hour },
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
	for _, l := range []*store.Limit{hour, minute} {
		if a := e.take(key, l); a.Used != 0 {
			e.Errorf("%d units of %v are used, want 0", a.Used, l)
		}
	}
}
