package core

// This file is for package rules, as rule.go is.

import (
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/store"
)

// Preview returns what would be decided about a request if choose added the rules, and takes nothing. Observers do not
// hear of it. The limiter is one of [NewRules].
func (l *Limiter) Preview(r adapter.Request, choose func(adapter.Request, *Choice) error) (d Decision, err error) {
	c := newChoice(l, r)
	defer c.free()
	err = adapter.Guard(func() error {
		of, pl, err := l.chosen(c, choose, &d)
		if err != nil || pl == nil {
			return err
		}
		d.take.Cost, d.take.Mode = c.Units(), store.ModePeek
		return of.decide(r.Context(), r, pl, false, &d)
	})
	if err != nil {
		return Decision{}, err
	}
	if d.plan == nil {
		d.Allowed = true
	}
	d.cloneKeys()
	return d, nil
}

// Exempt reports whether a list or [WithSkip] of the limiter passes a request before any rule is asked. If a deny list
// names the client, the error is [ErrForbidden].
func (l *Limiter) Exempt(r adapter.Request) (passes bool, err error) {
	err = adapter.Guard(func() (err error) {
		passes, err = listed(l.lists, r, &wholeAddress)
		passes = passes || err == nil && l.skip != nil && l.skip(r)
		return err
	})
	return passes, err
}
