package coretest_test

import (
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

func TestExploreFakeStore(t *testing.T) {
	coretest.Explore(t, coretest.ExploreConfig{
		New: func(*testing.T) (core.Store, func(time.Duration)) {
			store := new(coretest.FakeStore)
			return store, store.Advance
		},
		Worlds: 2000, Callers: 4,
	})
}
