package coretest_test

import (
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
)

func TestExploreFakeStore(t *testing.T) {
	testlen.SkipRace(t)
	coretest.Explore(t, coretest.ExploreConfig{
		New: func(*testing.T) (core.Store, func(time.Duration)) {
			store := new(coretest.FakeStore)
			return store, store.Advance
		},
		Worlds: 2000, Callers: 4,
	})
}
