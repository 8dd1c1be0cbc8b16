package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/internal/testlen"
)

func inBubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }

// clocked returns a store with places for all worlds that run at the same time.
func clocked(*testing.T) coretest.Clocked {
	return coretest.Clocked{Store: core.NewMemoryStore(core.WithMaxKeys(100_000)), Now: time.Now, Advance: time.Sleep}
}

// The store does what every store must, and answers as the definition does, whatever is done to it.
func TestStore(t *testing.T) {
	operations := testlen.Of(20_000, 1_000_000)
	if testlen.Race {
		operations = 2000
	}
	coretest.Store(t, coretest.StoreConfig{New: clocked, Run: inBubble, Operations: operations})
}

func TestLongerWorlds(t *testing.T) {
	testlen.SkipRace(t)
	definition.Explore(t, definition.Config{
		Run: inBubble,
		New: func(t *testing.T) definition.Clocked { return definition.Clocked(clocked(t)) },
	}, 4, testlen.Of(500, 30_000))
}
