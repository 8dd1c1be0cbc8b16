package core_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// remoteLogs are a store behind a network, on the clock of a bubble.
type remoteLogs struct {
	logs  coretest.FakeStore
	began time.Time

	mu    sync.Mutex
	moved time.Duration
	calls map[string]int
	taken map[uint64]*realUse // by the IDs of takes that were executed and admitted
	uses  []*realUse          // all of them, and of leases
}

// realUse is a request that was truly admitted.
type realUse struct {
	at     time.Time
	cost   int
	quotas []int // of the limits that have decided
}

func newRemoteLogs() *remoteLogs {
	return &remoteLogs{began: time.Now(), calls: make(map[string]int), taken: make(map[uint64]*realUse)}
}

// execute executes a command now.
func (r *remoteLogs) execute(name string, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[name]++
	now := time.Since(r.began)
	r.logs.Advance(now - r.moved)
	r.moved = now
	f()
}

// called returns how many commands were executed, by their names. Settlements may be on their way.
func (r *remoteLogs) called() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.calls)
}

// take notes a take that was executed now.
func (r *remoteLogs) take(takes []store.Take) {
	u := &realUse{at: time.Now(), cost: takes[0].Cost}
	for i := range takes {
		u.quotas = append(u.quotas, takes[i].Limit.Quota)
	}
	r.uses, r.taken[takes[0].ID] = append(r.uses, u), u
}

// leased notes a use of a lease.
func (r *remoteLogs) leased(d *core.Decision, cost int) *realUse {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := &realUse{at: time.Now(), cost: cost}
	for _, l := range d.Limits() {
		u.quotas = append(u.quotas, l.Quota)
	}
	r.uses = append(r.uses, u)
	return u
}

func (r *remoteLogs) undone(u *realUse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u.cost = 0
}

// verify checks each window of what was truly admitted. Where limits of other quotas have decided, the largest applies.
func (r *remoteLogs) verify(t *testing.T, limits core.Limits) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	uses := slices.DeleteFunc(r.uses, func(u *realUse) bool { return u.cost == 0 })
	slices.SortStableFunc(uses, func(a, b *realUse) int { return a.at.Compare(b.at) })
	for last, u := range uses {
		for i, l := range limits {
			units, quota := 0, 0
			for _, w := range slices.Backward(uses[:last+1]) {
				if u.at.Sub(w.at) >= l.Window {
					break
				}
				units, quota = units+w.cost, max(quota, w.quotas[i])
			}
			if units > quota {
				t.Fatalf("%d units in a window of %v, of %d at most", units, l.Window, quota)
			}
		}
	}
}

var errNetwork = errors.New("the network")

// connection is the connection of one process.
type connection struct {
	*remoteLogs

	faults func() (there, back time.Duration, lost, twice bool)
}

// call sends a command. It may be lost after it was executed, or be executed again later.
func (c connection) call(ctx context.Context, name string, f func()) error {
	there, back, lost, twice := c.faults()
	answered := make(chan struct{})
	go func() {
		time.Sleep(there)
		c.execute(name, f)
		if twice {
			time.Sleep(back + there)
			c.execute(name+" again", f)
		}
		time.Sleep(back)
		close(answered)
	}()
	if lost {
		<-ctx.Done()
		return errNetwork
	}
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c connection) Validate(...*store.Limit) error { return nil }

// take executes a take unless that was done.
func (c connection) take(takes []store.Take, answers []store.Answer) {
	if u := c.taken[takes[0].ID]; u != nil {
		for i := range answers {
			answers[i].Known, answers[i].Allowed = true, true
		}
		return
	}
	if err := c.logs.Take(context.Background(), takes, answers); err != nil {
		panic(err)
	}
	mode := takes[0].Mode
	for i := range takes {
		if mode != store.ModeRecord && !answers[i].Allowed {
			return
		}
	}
	if mode == store.ModeCharge || mode == store.ModeChargeDenied {
		c.remoteLogs.take(takes)
	}
}

func (c connection) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	own, got := append([]store.Take(nil), takes...), make([]store.Answer, len(answers))
	err := c.call(ctx, "take", func() { c.take(own, got) })
	if err == nil {
		copy(answers, got)
	}
	return err
}

func (c connection) Settle(ctx context.Context, s store.Settlement) error {
	return c.call(ctx, "settle", func() {
		c.logs.Settle(context.Background(), s)
		if u := c.taken[s.ID]; u != nil {
			u.cost = s.Cost
		}
	})
}

func (c connection) Merge(ctx context.Context, m store.MergeRequest) error {
	return c.call(ctx, "merge", func() {
		c.logs.Merge(context.Background(), m)
	})
}

// Questions about overrides take no time, since a lock is held meanwhile, for which no bubble's time goes on.

func (c connection) SetOverride(ctx context.Context, policy string, o store.Override) error {
	return c.logs.SetOverride(ctx, policy, o)
}

func (c connection) Overrides(ctx context.Context, policy, known string) (string, []store.Override, error) {
	return c.logs.Overrides(ctx, policy, known)
}

func (c connection) Reset(ctx context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	return c.call(ctx, "reset", func() {
		c.logs.Reset(context.Background(), key, limits, young)
	})
}

func quick() (there, back time.Duration, lost, twice bool) {
	return 100 * time.Microsecond, 100 * time.Microsecond, false, false
}

// unreliable is a network that loses answers, executes commands twice, and is sometimes later than a lease.
func unreliable() (there, back time.Duration, lost, twice bool) {
	there, back = 1+rand.N(time.Millisecond), 1+rand.N(time.Millisecond)
	switch rand.N(300) {
	case 0:
		there += rand.N(50 * time.Millisecond)
	case 1:
		back += rand.N(50 * time.Millisecond)
	case 2:
		return there, back, true, false
	}
	return there, back, false, rand.N(50) == 0
}

// A key with many requests asks the store about once in the time of a lease.
func TestLeaseServesAHotKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := newRemoteLogs()
		l := newLimiter(t, core.PerSecond(1_000_000), core.WithStore(connection{logs, quick}),
			core.WithLease(20*time.Millisecond))
		leased := 0
		const requests = 20_000
		for range requests {
			d, err := l.Allow(t.Context(), "k")
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			if core.IsLeased(&d) {
				leased++
			}
			time.Sleep(50 * time.Microsecond)
		}
		if calls := logs.called(); calls["take"] > 128 || leased < requests-120 {
			t.Errorf("%v calls, %d leased", calls, leased)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Whatever becomes of commands, no window of true uses is over a quota, also while overrides change it.
func TestLeasesAgainstOracle(t *testing.T) {
	counts := map[string]int{} // of all cases, since a short one may have no denial
	for _, processes := range []int{1, 3, 8} {
		for _, kind := range []string{"units", "costs", "overridden"} {
			if kind == "overridden" && processes != 3 {
				continue
			}
			t.Run(fmt.Sprintf("%d processes, %s", processes, kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { leasesAgainstOracle(t, processes, kind, counts) })
			})
		}
	}
	t.Logf("%v", counts)
	for _, path := range []string{"leased", "taken", "denied", "leased under an override"} {
		if counts[path] == 0 {
			t.Errorf("no request was %s", path)
		}
	}
}

func leasesAgainstOracle(t *testing.T, processes int, kind string, counts map[string]int) {
	logs := newRemoteLogs()
	limits := core.Limits{core.Limit{Quota: 300, Window: 100 * time.Millisecond}, core.PerSecond(2000)}
	var all sync.WaitGroup
	var mu sync.Mutex
	defer time.Sleep(time.Minute) // until all commands have ended
	seconds := testlen.Of(2, 4)
	if testlen.Race {
		seconds = 1
	}
	ends := time.Now().Add(time.Duration(seconds) * time.Second)
	for n := range processes {
		opts := []core.Option{core.WithStore(connection{logs, unreliable})}
		if kind == "overridden" {
			opts = append(opts, core.WithOverrides(), core.WithName("shared"))
		}
		l := newLimiter(t, limits, append(opts, core.WithLease(20*time.Millisecond), core.WithFailure(core.FailClosed))...)
		if kind == "overridden" && n == 0 {
			all.Go(func() { overrideUntil(l, ends, limits) })
		}
		pace := time.Duration(processes) * 4 * 500 * time.Microsecond // of a caller, at the quota
		for range 4 {
			all.Go(func() {
				for time.Now().Before(ends) {
					cost := 1
					if kind == "costs" && rand.N(5) == 0 {
						cost = 1 + rand.N(5)
					}
					d, err := l.AllowN(context.Background(), "k", cost)
					var used *realUse
					leased := err == nil && core.IsLeased(&d)
					if leased {
						used = logs.leased(&d, cost)
					}
					mu.Lock()
					switch {
					case err != nil:
						counts["failed"]++
					case !d.Allowed:
						counts["denied"]++
					case leased && d.Overridden != nil:
						counts["leased under an override"] += cost
					case leased:
						counts["leased"] += cost
					default:
						counts["taken"] += cost
					}
					mu.Unlock()
					if err == nil && d.Allowed && rand.N(20) == 0 {
						all.Go(func() {
							time.Sleep(rand.N(50 * time.Millisecond))
							if used != nil {
								logs.undone(used)
							}
							d.Undo(context.Background())
						})
					}
					load := 0.5
					if time.Now().UnixMilli()/200%2 == 0 {
						load = 2
					}
					time.Sleep(time.Duration(rand.ExpFloat64() / load * float64(pace)))
				}
			})
		}
		defer l.Close()
	}
	all.Wait()
	logs.verify(t, limits)
}

// overrideUntil overrides the limits of a key by turns: by less, by more, by a denial and by nothing.
func overrideUntil(l *core.Limiter, ends time.Time, limits core.Limits) {
	for n := 0; time.Now().Before(ends); n++ {
		o := core.Override{Denied: n%8 == 7, Until: time.Now().Add(time.Minute)}
		for _, limit := range limits {
			if limit.Quota = limit.Quota * (1 + rand.N(6)) / 3; !o.Denied {
				o.Limits = append(o.Limits, limit)
			}
		}
		if n%8 == 3 {
			l.RemoveOverride(context.Background(), "k")
		} else {
			l.Override(context.Background(), "k", o)
		}
		time.Sleep(rand.N(300 * time.Millisecond))
	}
}
