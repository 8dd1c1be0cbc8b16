package core_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// explore runs many small worlds, and all of them if SASH_EXPLORE is "all".
func explore(t *testing.T, makeStore func() core.Store) {
	c := coretest.ExploreConfig{
		New:    func(*testing.T) (core.Store, func(time.Duration)) { return makeStore(), time.Sleep },
		Run:    inBubble,
		Worlds: testlen.Of(5000, 50_000),
	}
	if testlen.Race { // which makes it ten times slower
		c.Worlds = min(c.Worlds, 10_000)
	}
	if os.Getenv("SASH_EXPLORE") == "all" {
		c.Worlds = 0
	}
	coretest.Explore(t, c)
}

// With IDs of its callers, as after Merge, a log has a ledger.
func TestExploreMemoryStore(t *testing.T) {
	explore(t, func() core.Store { return core.NewMemoryStore() })
}

// A log that assigns the IDs itself, as for limiters, has no ledger unless a cost or a correction needs one.
func TestExploreMemoryStoreOfLimiters(t *testing.T) {
	testlen.SkipRace(t)
	explore(t, func() core.Store { return &ownIDs{logs: memory.New(100_000), ids: make(map[string]uint64)} })
}

// ownIDs is a store whose logs assign the IDs of takes. It remembers which those are.
type ownIDs struct {
	logs *memory.Store

	mu  sync.Mutex
	ids map[string]uint64 // by log and the caller's ID
}

// id returns where the ID of a take is remembered.
func (*ownIDs) id(key *store.Key, id uint64) string {
	return key.Text + " " + strconv.FormatUint(id, 36)
}

func (*ownIDs) Validate(...*store.Plan) error { return nil }

func (s *ownIDs) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	id := takes[0].ID
	for i := range takes {
		takes[i].ID = 0
	}
	s.logs.Take(takes, answers)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range takes {
		s.ids[s.id(&takes[i].Key, id)] = takes[i].ID
	}
	return nil
}

func (s *ownIDs) Settle(_ context.Context, t store.Settlement) error {
	s.mu.Lock()
	t.ID = s.ids[s.id(&t.Key, t.ID)]
	s.mu.Unlock()
	s.logs.Settle(&t)
	return nil
}

func (s *ownIDs) Log(_ context.Context, key store.Key, window time.Duration) ([]store.Entry, error) {
	return s.logs.Log(&key, window), nil
}

func (s *ownIDs) Reset(_ context.Context, key store.Key) error {
	s.logs.Reset(&key)
	return nil
}

// unitCall is a call of a world of units: AllowCosts, or SettleCosts or Undo of an earlier decision.
type unitCall struct {
	costs core.Costs // nil for Undo
	of    int        // the number of the decision, or -1 for AllowCosts
}

// unitCalls returns all sequences of n calls that begin with those given. A decision is not settled after Undo.
func unitCalls(begin []unitCall, n int) (all [][]unitCall) {
	if n == 0 {
		return [][]unitCall{begin}
	}
	add := func(costs core.Costs, of int) {
		all = append(all, unitCalls(append(slices.Clip(begin), unitCall{costs, of}), n-1)...)
	}
	for _, costs := range []core.Costs{{}, {"tokens": 1}, {"tokens": 2}, {"requests": 0, "tokens": 1}} {
		add(costs, -1)
	}
	for i, c := range begin {
		undone := func(later unitCall) bool { return later.of == i && later.costs == nil }
		if c.of >= 0 || slices.ContainsFunc(begin, undone) {
			continue
		}
		add(nil, i)
		for _, costs := range []core.Costs{
			{"tokens": 0}, {"tokens": 3}, {"requests": 0}, {"requests": 2, "tokens": 1},
		} {
			add(costs, i)
		}
	}
	return all
}

// unitWorld is a sequence of calls about one key, beside the definition.
type unitWorld struct {
	unitOracle

	key   string
	calls []unitCall
	made  []core.Decision // by the number of the call
	taken []*unitEntry    // by admitted calls; those of others are not among the entries
}

// call makes the call with number i.
func (w *unitWorld) call(ctx context.Context, l *core.Limiter, i int) error {
	c := w.calls[i]
	w.made, w.taken = append(w.made, core.Decision{}), append(w.taken, newUnitEntry(map[string]int{}))
	switch {
	case c.of < 0:
		return w.allow(ctx, l, c.costs)
	case c.costs == nil:
		w.taken[c.of].costs = map[string]int{}
		return w.made[c.of].Undo(ctx)
	default:
		w.taken[c.of].settle(c.costs)
		return w.made[c.of].SettleCosts(ctx, c.costs)
	}
}

func (w *unitWorld) allow(ctx context.Context, l *core.Limiter, costs core.Costs) error {
	want := map[string]int{"requests": 1}
	maps.Copy(want, costs)
	fits, wait := w.asks(want)
	d, err := l.AllowCosts(ctx, w.key, costs)
	if err != nil {
		return err
	}
	if d.Allowed != fits || d.RetryAfter != wait {
		return fmt.Errorf("AllowCosts(%v): %v; want %v, wait %v", costs, d, fits, wait)
	}
	for _, s := range d.Limits() {
		if i := slices.Index(w.units, s.Unit); s.Used != w.used(i) {
			return fmt.Errorf("AllowCosts(%v): %d %s used, want %d", costs, s.Used, s.Unit, w.used(i))
		}
	}
	if w.made[len(w.made)-1] = d; fits {
		e := newUnitEntry(want)
		w.taken[len(w.taken)-1] = e
		w.entries = append(w.entries, e)
	}
	return nil
}

// finish compares what is used of each unit.
func (w *unitWorld) finish(ctx context.Context, l *core.Limiter) error {
	d, err := l.Peek(ctx, w.key)
	if err != nil {
		return err
	}
	if len(d.Limits()) != len(w.units) {
		return fmt.Errorf("in the end %v is about %v", d, d.Limits())
	}
	for i, s := range d.Limits() {
		if s.Used != w.used(i) {
			return fmt.Errorf("in the end %d %s are used, want %d", s.Used, s.Unit, w.used(i))
		}
	}
	return nil
}

// Every sequence of up to four calls about requests and tokens of one key, with steps of time that end right before and
// at the instants at which units leave their windows, gives what the definition says. make test has a part of them.
func TestExploreUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 10 * time.Millisecond
		limits := core.Limits{{Quota: 2, Window: window}, {Quota: 3, Window: 2 * window}}
		l := newLimiter(t, core.Limits{limits[0], limits[1].Of("tokens")})
		ctx, number := t.Context(), 0
		for n := 1; n <= 4; n++ {
			sequences := unitCalls(nil, n)
			for _, steps := range stepsOf(n-1, []time.Duration{0, window - 1, window}) {
				var worlds []*unitWorld
				for i, calls := range sequences {
					if n < 4 || rand.IntN(10) < testlen.Of(1, 10) {
						w := &unitWorld{key: strconv.Itoa(i), calls: calls}
						w.limits, w.units = limits, []string{"requests", "tokens"}
						worlds = append(worlds, w)
					}
				}
				each := func(f func(w *unitWorld) error) {
					for _, w := range worlds {
						if err := f(w); err != nil {
							t.Fatalf("%v, with steps of %v: %v", w.calls, steps, err)
						}
					}
				}
				for i := range n {
					each(func(w *unitWorld) error { return w.call(ctx, l, i) })
					if i < n-1 {
						time.Sleep(steps[i])
					}
				}
				each(func(w *unitWorld) error { return w.finish(ctx, l) })
				number += len(worlds)
				time.Sleep(2 * window)
			}
		}
		t.Logf("%d worlds", number)
	})
}

// stepsOf returns all sequences of n of the steps.
func stepsOf(n int, steps []time.Duration) (all [][]time.Duration) {
	if n == 0 {
		return [][]time.Duration{nil}
	}
	for _, begin := range stepsOf(n-1, steps) {
		for _, step := range steps {
			all = append(all, append(slices.Clip(begin), step))
		}
	}
	return all
}
