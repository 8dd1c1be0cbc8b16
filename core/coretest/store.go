package coretest

import (
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// Clocked is an empty store and its clock, which stands still but for Advance. For a store on the clock of the process
// these are [time.Now] and [time.Sleep] in a bubble of testing/synctest; see StoreConfig.Run.
type Clocked struct {
	Store   store.Store
	Now     func() time.Time
	Advance func(time.Duration)
}

// StoreConfig says how to make the store under test, and what it does that is no mistake.
type StoreConfig struct {
	New func(*testing.T) Clocked // is called often

	// Run runs f. In a bubble it is
	//
	//	func(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }
	Run func(t *testing.T, f func(*testing.T))

	// Operations is how many random operations are compared with the definition; zero means 100,000, and 5,000 with
	// go test -short.
	Operations int

	// Callers is how many requests are sent at the same time, at most. Zero means 8.
	Callers int

	// Again says that the store knows takes by their ID, and records those once that are executed again, as by a client
	// that has lost a reply.
	Again bool

	// ByID says that entries of one instant are in the order of their IDs, and not in that in which they were recorded.
	ByID bool

	// InTurn says that logs of different keys are asked one after the other, and those behind a denial not at all.
	InTurn bool

	// Units says that each take costs one unit.
	Units bool
}

// Store runs all tests that a store must pass. [store.Settler], [store.Lister], [store.Merger], [store.Renewer] and
// [store.Overrider] are tested if the store has them, and several logs in a request and other algorithms than the
// sliding log if its Validate accepts them.
//
// Random compares random operations, of many callers at once, with a naive definition of a store, and Worlds all small
// sequences of operations. When Take has returned, its arguments are overwritten. The other cases are small examples.
func Store(t *testing.T, c StoreConfig) {
	if c.Run == nil {
		c.Run = func(t *testing.T, f func(*testing.T)) { f(t) }
	}
	if c.Operations == 0 {
		c.Operations = testlen.Of(5_000, 100_000)
	}
	if c.Callers == 0 {
		c.Callers = 8
	}
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) { c.Run(t, func(t *testing.T) { e.run(&example{T: t, Clocked: c.New(t)}) }) })
	}
	config := definition.Config{
		New: func(t *testing.T) definition.Clocked { return definition.Clocked(c.New(t)) }, Run: c.Run,
		Operations: c.Operations, Callers: c.Callers, Again: c.Again, ByID: c.ByID, InTurn: c.InTurn, Units: c.Units,
	}
	t.Run("Random", func(t *testing.T) { definition.Random(t, config) })
	t.Run("Worlds", func(t *testing.T) { definition.Explore(t, config, 3, c.Operations/20) })
}
