package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// link is one process's connection to a shared store, on a bubble's clock. While it is cut, calls fail, and some of
// them are executed nevertheless.
type link struct {
	*slowStore

	cut  atomic.Bool
	late func() bool // what fails is executed, or nil
}

func (l *link) question(ctx context.Context, ask func() error) error {
	l.wait(ctx) // it moves the store's clock
	if !l.cut.Load() {
		return ask()
	}
	if l.late != nil && l.late() {
		ask() // the answer is lost
	}
	return errDown
}

func (l *link) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	return l.question(ctx, func() error { return l.FakeStore.Take(ctx, takes, answers) })
}

func (l *link) Merge(ctx context.Context, m store.MergeRequest) error {
	return l.question(ctx, func() error { return l.FakeStore.Merge(ctx, m) })
}

func (l *link) Settle(ctx context.Context, s store.Settlement) error {
	return l.question(ctx, func() error { return l.FakeStore.Settle(ctx, s) })
}

func (l *link) Reset(ctx context.Context, k store.Key, limits []*store.Limit, young time.Duration) error {
	return l.question(ctx, func() error { return l.FakeStore.Reset(ctx, k, limits, young) })
}

func (l *link) Log(ctx context.Context, k store.Key, limit *store.Limit) (entries []core.Entry, err error) {
	err = l.question(ctx, func() (err error) { entries, err = l.FakeStore.Log(ctx, k, limit); return err })
	return entries, err
}

// A store that comes and goes gave a fresh quota each time: 55 of 5 in a minute.
func TestFlapsGiveNoFreshQuota(t *testing.T) {
	for _, c := range []struct {
		desc  string
		first bool // the store decides before the first flap
		most  int
	}{
		{"used up before", true, 5},
		{"away from the beginning", false, 10},
	} {
		inBubble(t, c.desc, func(t *testing.T) {
			store := &link{slowStore: newSlowStore()}
			l := newLimiter(t, core.PerMinute(5), core.WithStore(store))
			defer l.Close()
			admitted := 0
			ask := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					if d, err := l.Allow(t.Context(), "k"); err != nil {
						t.Fatal(err)
					} else if d.Allowed {
						admitted++
					}
				}
			}
			if c.first {
				ask(time.Second)
			}
			for range 10 {
				store.cut.Store(true)
				ask(1100 * time.Millisecond)
				store.cut.Store(false)
				ask(4 * time.Second)
			}
			if admitted > c.most {
				t.Errorf("%d admitted in 51 s, want at most %d", admitted, c.most)
			}
		})
	}
}

// Clients that were denied, and clients that have used up their quota, stay denied when the store fails, however many
// they are.
func TestDenialsHoldWhileTheStoreIsAway(t *testing.T) {
	for _, c := range []struct {
		desc    string
		clients int
		tries   int
		options []core.Option
	}{
		{"denied", 10_000, 3, nil},
		{"used up", 10, 2, nil},
		{"denied, each try counts", 10, 3, []core.Option{core.WithCountDenied()}},
		{"denied, beside a shadow", 10, 3, []core.Option{core.WithShadow(core.PerMinute(1))}},
	} {
		inBubble(t, c.desc, func(t *testing.T) {
			store := &link{slowStore: newSlowStore()}
			l := newLimiter(t, core.PerHour(2), append(c.options, core.WithStore(store))...)
			defer l.Close()
			for i := range c.clients {
				for range c.tries {
					if _, err := l.Allow(t.Context(), fmt.Sprint(i)); err != nil {
						t.Fatal(err)
					}
				}
			}
			time.Sleep(time.Minute)
			store.cut.Store(true)
			admitted, wrong := 0, 0
			for i := range c.clients {
				d, err := l.Allow(t.Context(), fmt.Sprint(i))
				if err != nil || !d.Degraded {
					t.Fatal(d, err)
				}
				late := d.RetryAfter > 59*time.Minute && len(c.options) == 0
				if d.Allowed {
					admitted++
				} else if late || d.RetryAfter <= 58*time.Minute || len(d.Violated) != 1 {
					wrong++
				}
			}
			if admitted > 0 || wrong > 0 {
				t.Errorf("%d of %d were admitted, %d were told a wrong wait", admitted, c.clients, wrong)
			}
			time.Sleep(59*time.Minute + time.Second)
			if d, err := l.Allow(t.Context(), "7"); err != nil || !d.Allowed {
				t.Errorf("after the wait: %+v, %v", d, err)
			}
			store.cut.Store(false)
		})
	}
}

// A client that was denied several costs stays denied smaller ones, too, as far as they had no room.
func TestDenialsOfCostsHoldWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &link{slowStore: newSlowStore()}
		l := newLimiter(t, core.PerHour(9), core.WithStore(store))
		defer l.Close()
		ask := func(cost int, allowed bool) (d core.Decision) {
			t.Helper()
			d, err := l.AllowN(t.Context(), "k", cost)
			if err != nil || d.Allowed != allowed {
				t.Errorf("a cost of %d: %v, %v; want allowed=%v", cost, d, err, allowed)
			}
			return d
		}
		ask(7, true)
		for cost := 4; cost < 9; cost++ {
			ask(cost, false)
		}
		time.Sleep(time.Minute)
		store.cut.Store(true)
		if d := ask(3, false); d.RetryAfter > 59*time.Minute || d.RetryAfter < 58*time.Minute || len(d.Violated) != 1 {
			t.Errorf("%v, want it denied for 59 minutes", d)
		}
		ask(2, true)
		time.Sleep(59 * time.Minute)
		ask(7, true)
		store.cut.Store(false)
	})
}

// What a process undoes or resets itself ends a denial that it remembers.
func TestOwnResetEndsADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &link{slowStore: newSlowStore()}
		l := newLimiter(t, core.PerHour(1), core.WithStore(store))
		defer l.Close()
		first, _ := l.Allow(t.Context(), "k")
		l.Allow(t.Context(), "k")
		if err := first.Undo(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.cut.Store(true)
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed || !d.Degraded {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// A decision that was replayed and is settled in the next outage reaches the store, or there is an error.
func TestSettledInTheNextOutage(t *testing.T) {
	for _, recovered := range []bool{false, true} {
		for _, cost := range []int{0, 3} {
			name := fmt.Sprintf("%d units, settled when the store was back before %v", cost, recovered)
			inBubble(t, name, func(t *testing.T) {
				store := &link{slowStore: newSlowStore()}
				l := newLimiter(t, core.PerHour(100), core.WithStore(store))
				defer l.Close()
				store.cut.Store(true)
				var all []core.Decision
				for range 10 {
					d, err := l.Allow(t.Context(), "k")
					if err != nil || !d.Allowed || !d.Degraded {
						t.Fatal(d, err)
					}
					all = append(all, d)
				}
				if recovered {
					store.cut.Store(false)
					time.Sleep(5 * time.Second)
					store.cut.Store(true)
					for range 10 { // opens the breaker
						l.Allow(t.Context(), "other")
					}
				}
				want := 10
				for _, d := range all[:3] {
					err := errors.Join(d.Settle(t.Context(), cost), d.Settle(t.Context(), cost))
					if err == nil {
						want += cost - 1
					}
				}
				store.cut.Store(false)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if entries, err := l.Log(t.Context(), "k"); err != nil || units(entries) != want {
					t.Errorf("%d units, %v; want %d", units(entries), err, want)
				}
			})
		}
	}
}

func units(entries []core.Entry) (n int) {
	for _, e := range entries {
		n += e.Cost
	}
	return n
}

// A refund in an outage gives back what was taken, also where the take was executed though its answer was lost.
func TestUndoneThoughExecutedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &link{slowStore: newSlowStore(), late: func() bool { return true }}
		l := newLimiter(t, core.PerHour(3), core.WithStore(store))
		defer l.Close()
		store.cut.Store(true)
		first, err := l.Allow(t.Context(), "k")
		if err = errors.Join(err, first.Undo(t.Context()), first.Undo(t.Context())); err != nil || !first.Allowed {
			t.Fatal(first, err)
		}
		for i, want := range []bool{true, true, true, false} { // the last would fit in a store that knows one fewer
			if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed != want {
				t.Fatal(i, d, err)
			}
		}
		store.cut.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if entries, err := l.Log(t.Context(), "k"); err != nil || units(entries) != 3 {
			t.Errorf("%v, %v; want 3 units", entries, err)
		}
	})
}

// history is what processes have been told about one key.
type taken struct {
	d     core.Decision
	at    time.Time
	cost  int
	owner int
}

// Three processes whose connections to the store are cut at random admit, settle and undo. Afterwards each unit is in
// the store, once, and no window holds more than the store's quota and one quota of each process.
func TestRandomOutages(t *testing.T) {
	const processes, quota, histories = 3, 6, 500
	for seed := range histories {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			window := time.Hour
			if seed%2 == 0 {
				window = 10 * time.Second
			}
			shared := newSlowStore()
			var questions atomic.Int64
			var links [processes]*link
			var limiters [processes]*core.Limiter
			for i := range processes {
				links[i] = &link{slowStore: shared, late: func() bool { return questions.Add(1)%3 == 0 }}
				limiters[i] = newLimiter(t, core.Limit{Quota: quota, Window: window},
					core.WithName("x"), core.WithStore(links[i]))
			}
			all := map[string][]*taken{}
			uncertain := map[*taken]int{}
			for range 60 {
				i := r.IntN(processes)
				key := fmt.Sprint(r.IntN(2))
				switch n := r.IntN(20); {
				case n < 3:
					links[i].cut.Store(!links[i].cut.Load())
				case n < 7:
					time.Sleep(time.Duration(r.IntN(2500)) * time.Millisecond)
				case n < 10 && len(all[key]) > 0:
					x := all[key][r.IntN(len(all[key]))]
					cost := 0
					if window == time.Hour {
						cost = r.IntN(4)
					}
					if _, unclear := uncertain[x]; unclear || x.cost == 0 { // of which nothing is left
						continue
					}
					if x.d.Settle(t.Context(), cost) == nil {
						x.cost = cost
					} else {
						uncertain[x] = cost // it may have been executed: it is tried again in the end
					}
				default:
					cost := 1 + r.IntN(2)
					d, err := limiters[i].AllowN(t.Context(), key, cost)
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						all[key] = append(all[key], &taken{d, time.Now(), cost, i})
					}
				}
			}
			for i := range links {
				links[i].cut.Store(false)
			}
			time.Sleep(6 * time.Second)
			for x, cost := range uncertain {
				if err := x.d.Settle(t.Context(), cost); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				x.cost = cost
			}
			synctest.Wait()
			for _, key := range slices.Sorted(maps.Keys(all)) {
				var entries, live []core.Entry
				for _, x := range all[key] {
					if x.cost > 0 {
						entries = append(entries, core.Entry{At: x.at, Cost: x.cost})
						if time.Since(x.at) < window {
							live = append(live, core.Entry{At: x.at, Cost: x.cost})
						}
					}
				}
				if window < time.Hour {
					coretest.Verify(t, entries, core.Limits{{Quota: (1 + processes) * quota, Window: window}})
				}
				log, err := limiters[0].Log(t.Context(), key)
				if err != nil || units(log) != units(live) || len(log) != len(live) {
					t.Errorf("seed %d: the store has %d units of %s, %d were admitted; %v",
						seed, units(log), key, units(live), err)
				}
			}
			for i := range limiters {
				if err := limiters[i].Close(); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

// tally counts what is merged into it. Its takes fail until it is back.
type tally struct {
	coretest.FakeStore

	mu    sync.Mutex
	units int
}

func (s *tally) Merge(_ context.Context, m store.MergeRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range m.Entries {
		s.units += e.Cost
	}
	return nil
}

// An outage of more keys than a MemoryStore has room for once denied the last keys, and lost the units of others.
func TestOutageOfManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, store := 300_000, new(tally)
		options := []core.Option{core.WithStore(store)}
		if testlen.Race || testing.Short() { // the race detector makes it ten times slower
			keys, options = 10_000, append(options, core.WithFailLocalKeys(10_000))
		}
		l := newLimiter(t, core.PerHour(1), options...)
		defer l.Close()
		store.Fail(errDown)
		denied := 0
		for i := range keys {
			if d, err := l.Allow(t.Context(), strconv.Itoa(i)); err != nil || !d.Allowed {
				denied++
			}
		}
		store.Fail(nil)
		if err := l.Close(); err != nil || denied > 0 || store.units != keys {
			t.Errorf("%d of %d denied, %d replayed, %v", denied, keys, store.units, err)
		}
	})
}

// Keys that share logs are replayed too, and entries that do not fit are reported.
func TestFailLocalKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told strings.Builder
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&told, nil)))
		defer slog.SetDefault(before)
		store := &link{slowStore: newSlowStore()}
		l := newLimiter(t, core.PerHour(1000), core.WithStore(store), core.WithFailLocalKeys(100))
		defer l.Close()
		store.cut.Store(true)
		for i := range 230 {
			if d, err := l.Allow(t.Context(), fmt.Sprint(i)); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		store.cut.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for i := range 230 {
			want := 1
			if i >= 200 {
				want = 0
			}
			if log, err := l.Log(t.Context(), fmt.Sprint(i)); err != nil || units(log) != want {
				t.Errorf("key %d: %v, %v; want %d units", i, log, err, want)
			}
		}
		if n := strings.Count(told.String(), "units=30"); n != 1 || strings.Contains(told.String(), "229") {
			t.Errorf("the log says %s", told.String())
		}
	})
	_, err := core.New(core.PerMinute(1), core.Global(), core.WithFailLocalKeys(0))
	if err == nil || !strings.Contains(err.Error(), "WithFailLocalKeys(0)") {
		t.Error(err)
	}
}

// A process that is closed during an outage loses no unit that the store would accept.
func TestCloseReplays(t *testing.T) {
	admit := func(t *testing.T, store core.Store) *core.Limiter {
		t.Helper()
		l := newLimiter(t, core.PerHour(100), core.WithStore(store))
		for range 13 {
			if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed || !d.Degraded {
				t.Fatal(d, err)
			}
		}
		return l
	}
	inBubble(t, "the store is back", func(t *testing.T) {
		store := &link{slowStore: newSlowStore()}
		store.cut.Store(true)
		l := admit(t, store)
		store.cut.Store(false)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if entries, err := l.Log(t.Context(), "k"); err != nil || units(entries) != 13 {
			t.Errorf("%d units, %v; want 13", units(entries), err)
		}
	})
	inBubble(t, "the store is away", func(t *testing.T) {
		store := &link{slowStore: newSlowStore()}
		store.cut.Store(true)
		err := admit(t, store).Close()
		if err == nil || !errors.Is(err, errDown) || !strings.Contains(err.Error(), "13 units") {
			t.Error(err)
		}
	})
	inBubble(t, "the store hangs", func(t *testing.T) {
		store := newSlowStore()
		store.hangs.Store(true)
		l := admit(t, store)
		began := time.Now()
		err := l.Close()
		if err == nil || !strings.Contains(err.Error(), "13 units") || time.Since(began) > 6*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	inBubble(t, "nothing to replay", func(t *testing.T) {
		store := newSlowStore()
		l := newLimiter(t, core.PerHour(100), core.WithStore(store))
		l.Allow(t.Context(), "k")
		store.hangs.Store(true)
		began := time.Now()
		if err := l.Close(); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
