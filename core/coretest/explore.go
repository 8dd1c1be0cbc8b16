package coretest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// ExploreConfig says how to make the store under test, and how much of it to explore.
type ExploreConfig struct {
	// New makes an empty store and the function that moves its time on, and Run runs one case, as in [StoreConfig].
	New func(*testing.T) (store core.Store, advance func(time.Duration))
	Run func(t *testing.T, name string, f func(*testing.T))

	// Repeats says that the store finds out by the ID whether it has executed a take before. Commands are then also
	// executed again, at once or after up to two other operations, as a client does that has lost the reply. They are
	// recorded once, and answered as before: what was admitted is admitted, and a recorded denial stays one. A world
	// ends early where a repeated take was trimmed, has left its windows or was removed from one of two logs, since it
	// is not defined what a store then knows about it.
	Repeats bool

	// OneLimit is as in [StoreConfig]: only worlds of one log, one limit and takes of one unit are explored.
	OneLimit bool

	// Worlds is about how many worlds of each kind are explored at most, chosen at random; zero means all of them, over
	// two million without Repeats.
	Worlds int

	// Callers is how many goroutines ask the store at the same time, each about worlds of its own. Zero means 1.
	Callers int
}

// Explore runs every small world against a store and the definition, and compares each answer, and in the end what is
// left of each quota and each log, with its instants.
//
// A world is a sequence of one to four operations on two logs of small quotas, with steps of time between them that end
// right before, at and right after the instants at which entries leave their windows. An operation is a take of one or
// two units in one of the modes, of one log or of both; a [store.Settlement] of an earlier take, to
// undo it or to change its cost, in one of its logs if these count different units; a reset; a [store.Booking], which
// may settle an earlier one; or an earlier take or booking once more. The operations of a store are atomic, so every
// interleaving of those of several processes is such a sequence, and each sequence is one of two processes: there is no
// need to tell processes apart. A request over both logs names the second one first in every other world.
//
// Of worlds that differ only in which log is called the first, one is explored where both have equal limits. The number
// of worlds is logged. What the store has no interface for is left out, as in [Store].
func Explore(t *testing.T, c ExploreConfig) {
	if c.Run == nil {
		c.Run = func(t *testing.T, name string, f func(*testing.T)) { t.Run(name, f) }
	}
	for _, kind := range worldKinds() {
		if c.OneLimit && !kind.keepOneLimit() {
			continue
		}
		c.Run(t, kind.name, func(t *testing.T) {
			e := &explorer{
				t: t, worldKind: kind, callers: max(c.Callers, 1), repeats: c.Repeats,
				namespace: store.NewNamespace(fmt.Sprintf("worlds-%x", rand.Uint32()), nil),
			}
			e.store, e.advance = c.New(t)
			e.several = several(e.store)
			e.settler, _ = e.store.(store.Settler)
			e.merger, _ = e.store.(store.Merger)
			e.lister, _ = e.store.(store.Lister)
			if e.leaser, _ = e.store.(store.Leaser); e.leaser == nil && kind.lease > 0 {
				t.Skip("the store cannot book units")
			}
			e.explore(c.Worlds)
		})
	}
}

const (
	longestWorld = 4    // operations
	sameTime     = 4096 // worlds that are run at the same time
)

// explorer runs worlds of one kind on a store.
type explorer struct {
	*worldKind

	t         *testing.T
	store     core.Store
	several   bool // the store decides over several logs at once
	settler   store.Settler
	merger    store.Merger
	lister    store.Lister
	leaser    store.Leaser
	repeats   bool
	advance   func(time.Duration)
	callers   int
	namespace *store.Namespace

	now     time.Duration // since the store was made
	base    time.Time     // when that was, on the store's clock
	keys    int           // that were made
	ids     atomic.Uint64
	worlds  int // that were run
	ended   atomic.Int64
	checked atomic.Int64 // answers and logs
}

// explore runs worlds of one operation, of two, and so on, so that the first that fails is among the shortest. If most
// is positive, it chooses so many of them at random.
func (e *explorer) explore(most int) {
	e.findBase()
	var sequences [longestWorld + 1][][]operation
	var steps [longestWorld + 1][][]time.Duration
	total := 0
	for n := 1; n <= longestWorld; n++ {
		sequences[n], steps[n] = e.sequences(nil, n), e.allSteps(n-1)
		total += len(sequences[n]) * len(steps[n])
	}
	for n := 1; n <= longestWorld; n++ {
		for _, steps := range steps[n] {
			for part := range slices.Chunk(sequences[n], sameTime) {
				if most > 0 && most < total {
					drop := func([]operation) bool { return rand.IntN(total) >= most }
					part = slices.DeleteFunc(slices.Clone(part), drop)
				}
				if e.runAll(part, steps); e.t.Failed() {
					return
				}
			}
		}
	}
	ended := e.ended.Load()
	e.t.Logf("%d of %d worlds, %d of them to the end; %d answers and logs compared",
		e.worlds, total, ended, e.checked.Load())
	if ended == 0 {
		e.t.Error("no world was run to the end")
	}
}

func (e *explorer) step(d time.Duration) {
	if d > 0 {
		e.advance(d)
		e.now += d
	}
}

func (e *explorer) newKey() store.Key {
	e.keys++
	return store.Key{Namespace: e.namespace, Identity: store.Identity{Kind: "by", Text: fmt.Sprint(e.keys)}}
}

// findBase finds out when the explorer's time began on the store's clock.
func (e *explorer) findBase() {
	if e.lister == nil {
		return
	}
	key := e.newKey()
	_, err := Take(e.t.Context(), e.store, store.Take{Key: key, Plan: e.plans[0], Cost: 1, ID: e.ids.Add(1)})
	if err != nil {
		e.t.Fatal(err)
	}
	entries, err := e.lister.Log(e.t.Context(), key, worldWindow)
	if err != nil || len(entries) != 1 {
		e.t.Fatalf("the log of one take: %v, %v", entries, err)
	}
	e.base = entries[0].At.Add(-e.now)
}

// runAll runs a world of each sequence of operations. All of them go through the same steps of time.
func (e *explorer) runAll(sequences [][]operation, steps []time.Duration) {
	if len(sequences) == 0 {
		return
	}
	worlds := make([]*world, len(sequences))
	for i, operations := range sequences {
		worlds[i] = &world{explorer: e, operations: operations, steps: steps, reverse: (e.worlds+i)%2 == 1}
		for log := range worlds[i].logs {
			worlds[i].logs[log].key = e.newKey()
		}
	}
	e.worlds += len(worlds)
	for i := range steps {
		e.each(worlds, func(w *world) error { return w.execute(i) })
		e.step(steps[i])
	}
	e.each(worlds, func(w *world) error { return w.execute(len(steps)) })
	e.each(worlds, (*world).finish)
	e.step(2 * worldWindow) // the logs of these worlds expire
}

// each calls f for all worlds, and reports those that fail.
func (e *explorer) each(worlds []*world, f func(*world) error) {
	var all sync.WaitGroup
	var next, failed atomic.Int64
	for range e.callers {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(worlds) || failed.Load() > 2 || e.t.Failed() && failed.Load() == 0 {
					return
				}
				if err := f(worlds[i]); err != nil {
					failed.Add(1)
					e.t.Errorf("%v:\n%v", worlds[i], err)
				}
			}
		})
	}
	all.Wait()
}
