// Package definition says what a store must do, and compares stores with that.
//
// [Store] is the naive definition of a store: for each log a list of instants and units. It is a whole store itself, on
// a clock that is set by hand.
//
// [Random] compares the answers of any store to random operations with those of the definition, exactly, to the
// microsecond and the unit. So the store must be on a clock that stands still while it decides. A store in memory runs
// in a bubble of testing/synctest:
//
//	definition.Random(t, definition.Config{
//		Operations: testlen.Of(20_000, 1_000_000),
//		Callers:    8,
//		Run:        func(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) },
//		New: func(*testing.T) definition.Clocked {
//			return definition.Clocked{Store: newStore(), Now: time.Now, Advance: time.Sleep}
//		},
//	})
//
// A store in Redis gets its time from [redisserver.Clock], which answers the TIME of scripts: the client under the
// store passes each script through Clock.Script, and its arguments through Clock.Args. New empties the server for each
// trace, and begins with a new clock:
//
//	New: func(t *testing.T) definition.Clocked {
//		flush(t, rdb)
//		clock := redisserver.NewClock()
//		return definition.Clocked{Store: newStore(rdb, clock), Now: clock.Now, Advance: clock.Advance}
//	}
//
// [Explore] does the same with all small sequences of operations. [Bounds] checks what holds where answers are not
// exact, such as when a clock is set back. [Verify] needs no store, but what was admitted.
//
// A trace that fails is made as short as it can be, and printed with its seed: SASH_SEED=<seed> runs that trace alone.
package definition
