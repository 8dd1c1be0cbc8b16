package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/store"
)

// far is a store outside the process: the definition, with the clock of the process.
type far struct {
	definition.Store

	mu      sync.Mutex
	down    bool
	hangs   bool // takes are executed, and not answered
	takes   int
	settled []store.Settlement
	before  func(takes []store.Take) // called before a take, or nil
	after   func(takes []store.Take)
	resets  func() // called before a reset, or nil
	keeper
}

func (f *far) now() (*definition.Store, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, &store.StoreError{Err: errors.New("it does not answer"), Class: "refused"}
	}
	f.Advance(time.Since(f.Now()))
	return &f.Store, nil
}

func (f *far) setDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

func (f *far) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	s, err := f.now()
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.takes++
	f.mu.Unlock()
	if f.before != nil {
		f.before(takes)
	}
	if err = s.Take(ctx, takes, answers); f.after != nil {
		f.after(takes)
	}
	if f.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (f *far) Settle(ctx context.Context, m store.Settlement) error {
	s, err := f.now()
	f.mu.Lock()
	f.settled = append(f.settled, m)
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Settle(ctx, m)
}

func (f *far) Merge(ctx context.Context, m store.MergeRequest) error {
	s, err := f.now()
	if err != nil {
		return err
	}
	return s.Merge(ctx, m)
}

func (f *far) Renew(ctx context.Context, m store.Renewal) error {
	s, err := f.now()
	if err != nil {
		return err
	}
	return s.Renew(ctx, m)
}

func (f *far) Reset(ctx context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	if f.resets != nil {
		f.resets()
	}
	s, err := f.now()
	if err != nil {
		return err
	}
	return s.Reset(ctx, key, limits, young)
}

// on returns a change of a configuration to a store outside the process.
func (f *far) on(change ...func(*guard.Config)) func(*engine.Config) {
	return func(c *engine.Config) {
		c.Memory = nil
		c.Guard = guard.Config{Store: f, Timeout: 100 * time.Millisecond, LocalKeys: 1000}
		for _, set := range change {
			set(&c.Guard)
		}
	}
}

func denyCache(c *guard.Config) { c.DenyCache = time.Second }

// TestRandomFar is TestRandom on a store outside the process.
func TestRandomFar(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) { random(t, seed, new(far).on()) })
	}
}

// TestOnlyTheFirstAsks has one of those that wait for a log ask, and serves them in the order in which they came.
func TestOnlyTheFirstAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		e := newEngine(t, f.on())
		s := compile(t, e, "1/10s by org", "100/hour")
		start := time.Now()
		var served atomic.Int64
		for i := range 20 {
			go func() {
				a := &engine.Ask{Identities: identities(s, fmt.Sprint(i), "o"), Cost: 1}
				must(wait(t.Context(), e, s, a, new(engine.Result)))
				if n := served.Add(1); n != int64(i+1) || time.Since(start) != time.Duration(i)*10*time.Second {
					t.Errorf("request %d was served after %v, as number %d", i+1, time.Since(start), n)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(200 * time.Second)
		if n := served.Load(); n != 20 || f.takes > 20*3 {
			t.Errorf("%d were served, with %d questions", n, f.takes)
		}
	})
}

// TestBanBesideKnownDenial bans a client whose own quota is used up, although the denial of its organisation is
// remembered, and with it no answer of its own log.
func TestBanBesideKnownDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, new(far).on(denyCache), banning(3))
		s := compile(t, e, "1/hour by org", "1/hour")
		ask := func(user string) *engine.Result {
			return allow(t, e, s, &engine.Ask{Identities: identities(s, user, "o"), Cost: 1})
		}
		ask("a")
		for range 4 {
			if r := ask("b"); r.Cause != engine.ByLimits || !slices.Equal(r.Denying(), []string{"1-per-hour"}) {
				t.Errorf("another client of the organisation: cause %v, %v", r.Cause, r.Denying())
			}
		}
		if r := ask("a"); r.Cause != engine.ByLimits || r.Source != event.Cache || r.State(1).Told {
			t.Errorf("cause %v, source %v", r.Cause, r.Source)
		}
		if r := ask("a"); r.Cause != engine.ByLimits {
			t.Errorf("cause %v", r.Cause)
		}
		if r := ask("a"); r.Cause != engine.ByBan || r.Retry != time.Second {
			t.Errorf("the client is not banned: cause %v, retry %v", r.Cause, r.Retry)
		}
	})
}

// TestNeverFitsFromMemory names the limit that a cost never fits, also where a denial by another one is remembered.
func TestNeverFitsFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, new(far).on(denyCache))
		s := compile(t, e, "1/hour by org", "10 tokens/hour")
		ask := func(tokens int) *engine.Result {
			return allow(t, e, s, &engine.Ask{Identities: identities(s, "a", "o"), Cost: 1, Costs: []int{1, tokens}})
		}
		ask(1)
		ask(1)
		r := ask(11)
		if r.Source != event.Cache || !r.Never || r.Retry != 0 ||
			!slices.Equal(r.Denying(), []string{"10-tokens-per-hour"}) {
			t.Errorf("source %v, never %v, retry %v, denied by %v", r.Source, r.Never, r.Retry, r.Denying())
		}
	})
}

// TestOutage has the failure policy decide, and settles what it has admitted.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		e := newEngine(t, f.on())
		s := compile(t, e, "3/hour", "5/month", "9 in flight")
		ask := func(mode store.Mode) *engine.Result {
			return allow(t, e, s, &engine.Ask{Identities: identities(s, "a", ""), Cost: 1, Mode: mode})
		}
		ask(store.ModeCharge)
		f.setDown(true)
		first, second := ask(store.ModeCharge), ask(store.ModeCharge)
		if !first.Allowed || !first.Degraded || first.Source != event.Local || first.Err == nil {
			t.Errorf("in the outage: allowed %v, source %v, error %v", first.Allowed, first.Source, first.Err)
		}
		must(first.Undo(t.Context()))
		for range 8 { // the breaker opens
			r := ask(store.ModeCharge)
			must(errors.Join(r.Release(t.Context()), r.Undo(t.Context())))
		}
		time.Sleep(2 * time.Second)
		last := ask(store.ModeCharge) // of which the store has heard nothing
		must(errors.Join(last.Release(t.Context()), last.Undo(t.Context())))
		f.setDown(false)
		time.Sleep(10 * time.Second)
		if r := ask(store.ModePeek); r.Degraded || r.State(0).Used != 2 {
			t.Errorf("after the outage: degraded %v, used %d", r.Degraded, r.State(0).Used)
		}
		must(second.Undo(t.Context()))
		if r := ask(store.ModePeek); r.State(0).Used != 1 || r.State(1).Used != 1 {
			t.Errorf("after all was given back: used %d and %d", r.State(0).Used, r.State(1).Used)
		}
	})
}

// TestFailOpen has an outage in which nothing is counted.
func TestFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{down: true}
		e := newEngine(t, f.on(func(c *guard.Config) { c.Failure = guard.Open }))
		s := compile(t, e, "1/hour", "1 in flight")
		for range 3 {
			r := allow(t, e, s, &engine.Ask{Identities: identities(s, "a", ""), Cost: 1})
			if !r.Allowed || r.Granted != 1 || r.Cause != engine.ByOpen || r.State(0).Told || r.Tightest() >= 0 ||
				r.Holds() {
				t.Errorf("open: allowed %v, granted %d, cause %v", r.Allowed, r.Granted, r.Cause)
			}
			must(r.Undo(t.Context()))
		}
	})
}

// TestShadowInOutage does not try limits while the store does not answer.
func TestShadowInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		e := newEngine(t, f.on())
		s := compile(t, e, "2/hour")
		tried, err := e.Compile(limits(t, "1/hour"), true)
		must(err)
		ask := func() *engine.Result {
			r := new(engine.Result)
			a := &engine.Ask{Identities: []store.Identity{text("a")}, Cost: 1}
			a.Shadow = &engine.Trial{Set: tried, Ask: *a}
			must(e.Decide(t.Context(), s, a, r))
			return r
		}
		if r := ask(); r.Shadow == nil || !r.Shadow.Allowed || r.ShadowErr != nil {
			t.Errorf("shadow %v, %v", r.Shadow, r.ShadowErr)
		}
		f.setDown(true)
		for range 8 { // the breaker opens meanwhile
			if r := ask(); r.Shadow != nil || r.ShadowErr == nil {
				t.Errorf("in an outage: shadow %v, %v", r.Shadow, r.ShadowErr)
			}
		}
	})
}

// TestNow tells all limits, also where a denial is remembered, and fails in an outage.
func TestNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		e := newEngine(t, f.on(denyCache))
		s := compile(t, e, "1/hour by org", "5/hour")
		a := &engine.Ask{Identities: identities(s, "a", "o"), Cost: 1}
		allow(t, e, s, a)
		allow(t, e, s, a)
		r := allow(t, e, s, a)
		now, err := r.Now(t.Context())
		if err != nil || r.State(1).Told || !now.State(1).Told || now.State(1).Left != 4 || now.State(0).Left != 0 {
			t.Fatalf("now %v", err)
		}
		if entries, err := r.Entries(t.Context(), 1); err != nil || len(entries) != 1 {
			t.Errorf("entries %v, %v", entries, err)
		}
		windows, err := r.Windows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		must(windows[0].Clear(t.Context()))
		if r = allow(t, e, s, a); !r.Allowed || r.State(1).Used != 1 {
			t.Errorf("after the organisation was reset: %v, used %d", r.Denying(), r.State(1).Used)
		}
		f.setDown(true)
		if _, err = r.Windows(t.Context()); err == nil {
			t.Error("it is told in an outage")
		}
	})
}

// TestLeases spends units that were taken ahead, and settles them in all logs.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		const length = 20 * time.Millisecond
		e := newEngine(t, f.on(func(c *guard.Config) { c.Lease = length }))
		s := compile(t, e, "1000/minute", "5000/hour")
		if s.Limits[0].Store().Window != time.Minute+length || s.Limits[0].Window != time.Minute {
			t.Errorf("windows %v and %v", s.Limits[0].Store().Window, s.Limits[0].Window)
		}
		month := compile(t, e, "1000/minute", "5000/month") // leases do not apply to it
		leased := 0
		var last *engine.Result
		for range 300 {
			r := allow(t, e, s, &engine.Ask{Identities: []store.Identity{text("a")}, Cost: 1})
			if r.Source == event.Lease {
				leased++
				last = r
			}
			if r = allow(t, e, month, &engine.Ask{Identities: []store.Identity{text("b")},
				Cost: 1}); r.Source == event.Lease {
				t.Fatal("units of a month were taken ahead")
			}
			time.Sleep(time.Millisecond)
		}
		if leased < 150 {
			t.Fatalf("%d of 300 requests were served by leases", leased)
		}
		must(last.Undo(t.Context()))
		time.Sleep(time.Second)
		synctest.Wait()
		peek := &engine.Ask{Identities: []store.Identity{text("a")}, Cost: 1, Mode: store.ModePeek}
		if r := allow(t, e, s, peek); r.State(0).Used != 299 || r.State(1).Used != 299 {
			t.Errorf("used %d and %d", r.State(0).Used, r.State(1).Used)
		}
	})
}

// TestLeaseWithoutAnAnswer fails all that wait for the answer to one call, which is one failure of the store.
func TestLeaseWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		e := newEngine(t, f.on(func(c *guard.Config) {
			c.Lease, c.Failure = 20*time.Millisecond, guard.Closed
		}))
		s := compile(t, e, "1000/minute")
		ask := func() (*engine.Result, error) {
			r := new(engine.Result)
			return r, e.Decide(t.Context(), s, &engine.Ask{Identities: []store.Identity{text("a")}, Cost: 1}, r)
		}
		var last *engine.Result
		for range 100 {
			r, err := ask()
			must(err)
			if r.Source == event.Lease {
				last = r
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		f.setDown(true)
		if last.Settle(t.Context(), to(50)) == nil {
			t.Error("settled without the store")
		}
		f.setDown(false)
		must(last.Settle(t.Context(), to(50)))
		for range 40 { // so that there is a lease again
			_, err := ask()
			must(err)
		}
		time.Sleep(20 * time.Millisecond)
		f.hangs = true
		before := e.Stats().Guard.Outages
		var failed atomic.Int64
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				if _, err := ask(); err != nil {
					failed.Add(1)
				}
			})
		}
		all.Wait()
		f.hangs = false
		if _, err := ask(); err != nil || failed.Load() != 40 || e.Stats().Guard.Outages != before {
			t.Errorf("%v after %d failed; %+v", err, failed.Load(), e.Stats())
		}
	})
}

// TestWaitBesideLeases has those that wait get the units that another process has not used as soon as it settles them.
func TestWaitBesideLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		lease := f.on(func(c *guard.Config) { c.Lease = 20 * time.Millisecond })
		here, there := newEngine(t, lease), newEngine(t, lease)
		a := &engine.Ask{Identities: []store.Identity{text("a")}, Cost: 1}
		s := compile(t, there, "1000/minute")
		used := 0
		for leased := false; !leased; used++ {
			leased = allow(t, there, s, a).Source == event.Lease
			time.Sleep(time.Millisecond)
		}
		s = compile(t, here, "1000/minute")
		rest := allow(t, here, s, &engine.Ask{Identities: a.Identities, Cost: 1000, Mode: store.ModeAtMost})
		if used += rest.Granted; used == 1000 {
			t.Fatal("nothing is leased")
		}
		began := time.Now()
		for ; used < 1000; used++ {
			must(wait(t.Context(), here, s, a, new(engine.Result)))
		}
		if took := time.Since(began); took > 60*time.Millisecond || allow(t, here, s, a).Allowed {
			t.Errorf("waited for %v, or got a unit too many", took)
		}
	})
}

// TestLostPermits gives back what was taken beside a permit that other requests of this process hold, although the
// store has lost them; later, if the store does not answer then.
func TestLostPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		e := newEngine(t, f.on())
		s := compile(t, e, "9/hour", "1 in flight")
		a := &engine.Ask{Identities: identities(s, "a", ""), Cost: 1}
		held := allow(t, e, s, a)
		lost := store.Key{Namespace: s.Keys[0].Namespace, Identity: text("a")}
		must(f.Reset(t.Context(), lost, []*store.Limit{s.Limits[0].Store(), s.Limits[1].Store()}, 0))
		f.after = func([]store.Take) { f.setDown(true) }
		r := allow(t, e, s, a)
		if r.Allowed || r.State(0).Reset != 0 || !slices.Equal(r.Denying(), []string{"1-in-flight"}) {
			t.Errorf("allowed %v, denied by %v", r.Allowed, r.Denying())
		}
		f.after = nil
		f.setDown(false)
		time.Sleep(10 * time.Second)
		a.Mode = store.ModePeek
		if r := allow(t, e, s, a); r.State(0).Used != 0 || r.State(1).Used != 1 {
			t.Errorf("%d units and %d permits, want the permit alone", r.State(0).Used, r.State(1).Used)
		}
		must(held.Release(t.Context()))
	})
}

// TestOneBanOfTwo has two requests begin one ban, and not one after the other.
func TestOneBanOfTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		e := newEngine(t, f.on(), banning(1))
		s := compile(t, e, "1/hour")
		ask := func() *engine.Result {
			return allow(t, e, s, &engine.Ask{Identities: identities(s, "a", ""), Cost: 1})
		}
		ask()
		f.before = func(takes []store.Take) {
			if strings.HasPrefix(takes[0].Limit.Log, "tries-") { // the second comes while the first is denied
				f.before = nil
				if r := ask(); r.Cause != engine.ByBan || r.Retry != time.Second {
					t.Errorf("the second: cause %v, retry %v", r.Cause, r.Retry)
				}
			}
		}
		for range 2 {
			if r := ask(); r.Cause != engine.ByBan || r.Retry != time.Second {
				t.Errorf("cause %v, retry %v", r.Cause, r.Retry)
			}
		}
	})
}

// TestWakeBetweenLines has a request see what is given back before it is in the line of the log that has denied it.
func TestWakeBetweenLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		e := newEngine(t, f.on())
		s := compile(t, e, "9/hour", "1/hour by org")
		a := &engine.Ask{Identities: identities(s, "a", "o"), Cost: 1}
		first := allow(t, e, s, &engine.Ask{Identities: identities(s, "b", "o"), Cost: 1})
		start := time.Now()
		f.after = func([]store.Take) {
			f.after = nil
			must(first.Undo(t.Context()))
		}
		if err := wait(t.Context(), e, s, a, new(engine.Result)); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestSettleAgain repeats a settlement of an algorithm that counts if nobody knows whether it was done.
func TestSettleAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(far)
		e := newEngine(t, f.on())
		s := compile(t, e, "9/month")
		r := allow(t, e, s, &engine.Ask{Identities: identities(s, "a", ""), Cost: 5})
		f.setDown(true)
		if r.Settle(t.Context(), to(3)) == nil {
			t.Fatal("a settlement has not failed")
		}
		f.setDown(false)
		time.Sleep(10 * time.Second)
		f.settled = nil
		must(r.Settle(t.Context(), to(4)))
		if m := f.settled; len(m) != 2 || m[0].Was != 5 || m[0].Cost != 3 || m[1].Was != 3 || m[1].Cost != 4 {
			t.Errorf("settled %+v", m)
		}
	})
}
