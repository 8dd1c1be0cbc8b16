package core_test

import (
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

// What cannot have leases is an error at start-up.
func TestMistakesInLeases(t *testing.T) {
	fake := new(coretest.FakeStore)
	for desc, c := range map[string]struct {
		policy core.Policy
		store  core.Store
		length time.Duration
		word   string // "" if there is no mistake
	}{
		"a store that settles": {core.PerMinute(1), fake, 20 * time.Millisecond, ""},
		"one that does not":    {core.PerMinute(1), struct{ core.Store }{fake}, 20 * time.Millisecond, "store.Settler"},
		"an algorithm that counts": {core.PerMinute(1).With(core.SlidingCounter), fake, 20 * time.Millisecond,
			"sliding logs"},
		"no time":      {core.PerMinute(1), fake, 0, "out of range"},
		"a short time": {core.PerMinute(1), fake, time.Millisecond, "out of range"},
		"a long time":  {core.PerMinute(1), fake, 2 * time.Second, "out of range"},
	} {
		_, err := core.New(c.policy, core.Global(), core.WithStore(c.store), core.WithLease(c.length))
		if c.word == "" {
			if err != nil {
				t.Errorf("%s: %v", desc, err)
			}
			continue
		}
		wantFault(t, err, "WithLease", "", c.word)
	}
}
