package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	at   time.Time
	cost int
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

func (r *remoteLogs) use(id uint64, cost int) *realUse {
	u := &realUse{time.Now(), cost}
	r.uses = append(r.uses, u)
	if id != 0 {
		r.taken[id] = u
	}
	return u
}

// leased notes a use of a lease.
func (r *remoteLogs) leased(cost int) *realUse {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.use(0, cost)
}

func (r *remoteLogs) undone(u *realUse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u.cost = 0
}

// verify checks each window of what was truly admitted.
func (r *remoteLogs) verify(t *testing.T, limits core.Limits) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var entries []core.Entry
	for _, u := range r.uses {
		if u.cost > 0 {
			entries = append(entries, core.Entry{At: u.at, Cost: u.cost})
		}
	}
	coretest.Verify(t, entries, limits)
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

func (c connection) Validate(...*store.Plan) error { return nil }

// take executes a take unless that was done.
func (c connection) take(takes []store.Take, answers []store.Answer) {
	if u := c.taken[takes[0].ID]; u != nil {
		answers[0].Allowed = true
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
		c.use(takes[0].ID, takes[0].Cost)
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

func (c connection) Book(ctx context.Context, b store.Booking) (store.Booked, error) {
	var booked store.Booked
	err := c.call(ctx, "book", func() {
		var failed error
		known := c.taken[b.Take.ID] != nil
		if booked, failed = c.logs.Book(context.Background(), b); failed != nil {
			panic(failed)
		}
		if booked.Answer.Allowed && b.Take.Mode == store.ModeCharge && !known {
			c.use(b.Take.ID, b.Take.Cost)
		}
	})
	if err != nil {
		return store.Booked{}, err
	}
	return booked, nil
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

func (c connection) Reset(ctx context.Context, key store.Key) error {
	return c.call(ctx, "reset", func() {
		c.logs.Reset(context.Background(), key)
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
		if logs.calls["book"] > 80 || logs.calls["take"] > 48 || leased < requests-120 {
			t.Errorf("%v calls, %d leased", logs.calls, leased)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Whatever becomes of commands, no window of true uses is over a quota.
func TestLeasesAgainstOracle(t *testing.T) {
	counts := map[string]int{} // of all cases, since a short one may have no denial
	for _, processes := range []int{1, 3, 8} {
		for _, mixed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d processes, mixed %v", processes, mixed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { leasesAgainstOracle(t, processes, mixed, counts) })
			})
		}
	}
	if t.Logf("%v", counts); counts["leased"] == 0 || counts["taken"] == 0 || counts["denied"] == 0 {
		t.Error("not all paths were taken")
	}
}

func leasesAgainstOracle(t *testing.T, processes int, mixed bool, counts map[string]int) {
	logs := newRemoteLogs()
	limits := core.Limits{core.Limit{Quota: 300, Window: 100 * time.Millisecond}, core.PerSecond(2000)}
	var all sync.WaitGroup
	var mu sync.Mutex
	defer time.Sleep(time.Minute) // until all commands have ended
	for range processes {
		length := 20 * time.Millisecond
		if mixed {
			length = time.Duration(5+rand.N(40)) * time.Millisecond
		}
		l := newLimiter(t, limits, core.WithStore(connection{logs, unreliable}), core.WithLease(length),
			core.WithFailure(core.FailClosed))
		ends := time.Now().Add(time.Duration(testlen.Of(2, 8)) * time.Second)
		pace := time.Duration(processes) * 4 * 500 * time.Microsecond // of a caller, at the quota
		for range 4 {
			all.Go(func() {
				for time.Now().Before(ends) {
					cost := 1
					if mixed && rand.N(5) == 0 {
						cost = 1 + rand.N(5)
					}
					d, err := l.AllowN(context.Background(), "k", cost)
					var used *realUse
					leased := err == nil && core.IsLeased(&d)
					if leased {
						used = logs.leased(cost)
					}
					mu.Lock()
					switch {
					case err != nil:
						counts["failed"]++
					case !d.Allowed:
						counts["denied"]++
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
