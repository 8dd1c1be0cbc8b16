package coretest

import (
	"context"
	"math"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Take asks a store about requests that draw from one log. When the store has returned, it overwrites the arguments, to
// find stores that still use them.
func Take(ctx context.Context, s store.Store, t store.Take) (store.Answer, error) {
	answers := make([]store.Answer, 1)
	err := TakeAll(ctx, s, []store.Take{t}, answers)
	return answers[0], err
}

// TakeAll is Take for requests that draw from several logs. It fills in the answers.
func TakeAll(ctx context.Context, s store.Store, takes []store.Take, answers []store.Answer) error {
	given, filled := append([]store.Take(nil), takes...), make([]store.Answer, len(answers))
	err := s.Take(ctx, given, filled)
	copy(answers, filled)
	for i := range given {
		given[i] = store.Take{
			Key: store.Key{Namespace: spoiled, Identity: given[i].Key.Identity}, Plan: given[i].Plan,
			Cost: math.MaxInt32, ID: 1,
		}
	}
	for i := range filled {
		filled[i] = store.Answer{}
	}
	return err
}

var spoiled = store.NewNamespace("spoiled", nil)

// several reports whether a store decides over several logs at once.
func several(s store.Store) bool {
	plan := planOfOne(1, time.Second, store.Plan{})
	return s.Validate(plan, plan) == nil
}

// needSeveral skips a test of several logs if the store has them not.
func needSeveral(d *direct) {
	d.t.Helper()
	if !several(d.store) {
		d.t.Skip("the store decides over one log at a time")
	}
}
