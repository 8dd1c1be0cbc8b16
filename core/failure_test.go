package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

var errDown = errors.New("connection refused at 10.0.0.1:6379")

// slowStore lives in the bubble's time. When it hangs it answers when the deadline has come.
type slowStore struct {
	coretest.FakeStore

	start time.Time
	mu    sync.Mutex
	at    time.Duration

	hangs atomic.Bool
	late  atomic.Bool // what has hung is executed all the same
	asked atomic.Int64
}

func newSlowStore() *slowStore { return &slowStore{start: time.Now()} }

func (s *slowStore) wait(ctx context.Context) error {
	s.asked.Add(1)
	s.mu.Lock()
	d := time.Since(s.start)
	s.Advance(d - s.at)
	s.at = d
	s.mu.Unlock()
	if s.hangs.Load() {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (s *slowStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	err := s.wait(ctx)
	if err == nil || s.late.Load() {
		s.FakeStore.Take(ctx, takes, answers)
	}
	return err
}

func (s *slowStore) Merge(ctx context.Context, m store.MergeRequest) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.FakeStore.Merge(ctx, m)
}

func closing(t *testing.T, l *core.Limiter) *core.Limiter {
	t.Helper()
	t.Cleanup(func() { l.Close() })
	return l
}

func TestFailurePolicies(t *testing.T) {
	for _, c := range []struct {
		failure  core.Failure
		allowed  []bool
		degraded bool
		err      bool
	}{
		{core.FailLocal, []bool{true, true, false, false}, true, false},
		{core.FailOpen, []bool{true, true, true, true}, true, false},
		{core.FailClosed, []bool{false, false, false, false}, false, true},
	} {
		t.Run(c.failure.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(coretest.FakeStore)
				store.Fail(errDown)
				var heard []core.Event
				l := closing(t, newLimiter(t, core.PerMinute(2), core.WithStore(store), core.WithFailure(c.failure),
					core.WithObserver(func(_ context.Context, e core.Event) { heard = append(heard, e) })))
				for i, want := range c.allowed {
					d, err := l.Allow(t.Context(), "k")
					if d.Allowed != want || d.Degraded != c.degraded || (err != nil) != c.err {
						t.Errorf("request %d: %+v, %v", i+1, d, err)
					}
					var failed *core.StoreError
					e := heard[i]
					if !errors.As(e.Err, &failed) || !errors.Is(e.Err, errDown) || e.Decision.Degraded != c.degraded {
						t.Errorf("request %d: the observer heard %+v", i+1, e)
					}
				}
				l.Close() // or the bubble waits for what brings entries to the store
			})
		})
	}
}

// A store that hangs costs a request its timeout at most, and after five of them nothing.
func TestTimeoutAndBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore()
		store.hangs.Store(true)
		l := newLimiter(t, core.PerMinute(1000), core.WithStore(store), core.WithTimeout(50*time.Millisecond))
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the client has gone, which is no failure of the store's, and no way out
		for i := range 20 {
			begin := time.Now()
			d, err := l.Allow(ctx, "k")
			took := time.Since(begin)
			least, most := 46*time.Millisecond, 50*time.Millisecond
			if i >= 5 {
				least, most = 0, 0
			}
			if err != nil || !d.Allowed || !d.Degraded || took < least || took > most {
				t.Errorf("request %d: %+v, %v after %v; want %v to %v", i+1, d.Degraded, err, took, least, most)
			}
		}
		if n := store.asked.Load(); n < 1 || n > 5 { // those that wait for a replay do not ask
			t.Errorf("the store was asked %d times, want 1 to 5", n)
		}
		// Pings ask whether it answers again: no request waits.
		time.Sleep(1500 * time.Millisecond)
		store.asked.Store(0)
		var waited atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				begin := time.Now()
				l.Allow(t.Context(), "k")
				if time.Since(begin) > 0 {
					waited.Add(1)
				}
			})
		}
		wg.Wait()
		if n := store.asked.Load(); n > 1 || waited.Load() > 0 {
			t.Errorf("the store was asked %d times, %d requests had to wait; want 1 at most and none", n, waited.Load())
		}
	})
}

// The takes that an outage admitted are in the shared log afterwards, once, and at their instants.
func TestOutageIsReplayed(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("executed late ", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newSlowStore()
				store.late.Store(late)
				l := newLimiter(t, core.PerMinute(5), core.WithStore(store))
				defer l.Close()
				pass := time.Sleep
				ask := func(want, degraded bool) {
					t.Helper()
					d, err := l.Allow(t.Context(), "k")
					if err != nil || d.Allowed != want || d.Degraded != degraded {
						t.Fatalf("allowed %v, degraded %v, %v; want %v, %v", d.Allowed, d.Degraded, err, want, degraded)
					}
				}
				ask(true, false)
				pass(10 * time.Second)
				store.hangs.Store(true)
				for range 5 {
					ask(true, true)
				}
				ask(false, true)
				pass(10 * time.Second)
				store.hangs.Store(false)
				pass(5 * time.Second)
				synctest.Wait()
				entries, err := l.Log(t.Context(), "k")
				if err != nil || len(entries) != 6 {
					t.Fatalf("%d entries, %v; want 6", len(entries), err)
				}
				if age := entries[1].At.Sub(entries[0].At); age < 10*time.Second || age > 11*time.Second {
					t.Errorf("the outage's first entry is %v after the one before", age)
				}
				ask(false, false)
				// The first entry has left the window, those of the outage have not.
				pass(time.Until(store.start.Add(time.Minute + time.Second)))
				ask(false, false)
				pass(10 * time.Second)
				ask(true, false)
			})
		})
	}
}

// The next take of a key replays the key's journal first, so that no take is decided in between.
func TestOutageIsReplayedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(coretest.FakeStore)
		l := newLimiter(t, core.PerMinute(2), core.WithStore(store))
		defer l.Close()
		store.Fail(errDown)
		for range 2 {
			if d, _ := l.Allow(t.Context(), "k"); !d.Allowed || !d.Degraded {
				t.Fatal(d)
			}
		}
		store.Fail(nil) // before the breaker has opened
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed || d.Degraded {
			t.Errorf("a second quota: %+v, %v", d, err)
		}
	})
}

func TestUndoInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(coretest.FakeStore)
		l := newLimiter(t, core.PerMinute(1), core.WithStore(store))
		defer l.Close()
		store.Fail(errDown)
		first, _ := l.Allow(t.Context(), "k")
		if err := first.Undo(t.Context()); err != nil {
			t.Error(err)
		}
		second, _ := l.Allow(t.Context(), "k")
		if !second.Allowed {
			t.Fatal("what was undone still counts")
		}
		store.Fail(nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if entries, err := l.Log(t.Context(), "k"); err != nil || len(entries) != 1 {
			t.Errorf("%v, %v: want the one that was not undone", entries, err)
		}
		if err := second.Undo(t.Context()); err != nil {
			t.Error(err)
		}
		if entries, _ := l.Log(t.Context(), "k"); len(entries) != 0 {
			t.Errorf("%v: undone after it was brought back", entries)
		}
	})
}

// A request's own fault is no outage, and neither is one key's.
func TestWhatIsNoOutage(t *testing.T) {
	store := new(coretest.FakeStore)
	l := newLimiter(t, core.PerMinute(1), core.WithStore(store))
	store.Fail(&core.ConfigError{Option: "cost", Problem: "too much"})
	for range 20 {
		if _, err := l.Allow(t.Context(), "k"); !errors.As(err, new(*core.ConfigError)) {
			t.Fatal(err)
		}
	}
	store.Fail(&core.StoreError{Err: errors.New("WRONGTYPE"), OneKey: true})
	for range 20 {
		if d, err := l.Allow(t.Context(), "odd"); err != nil || !d.Degraded {
			t.Fatal(d, err)
		}
	}
	store.Fail(nil)
	if d, err := l.Allow(t.Context(), "k"); err != nil || d.Degraded || !d.Allowed {
		t.Errorf("one key's trouble became everybody's: %+v, %v", d, err)
	}
	l.Close()
}

// The deny cache denies only takes that the store would deny.
func TestDenyCacheAgreesWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{FakeStore: new(coretest.FakeStore)}
		const seed = 7
		r := rand.New(rand.NewPCG(seed, 1))
		quota := 3
		limits := core.LimitBy(func(context.Context) core.Limits {
			return core.Limits{{Quota: quota, Window: 2 * time.Second}, {Quota: 3 * quota, Window: 9 * time.Second}}
		})
		cached := newLimiter(t, limits, core.WithName("x"), core.WithStore(store))
		honest := newLimiter(t, limits, core.WithName("x"), core.WithStore(store), core.WithDenyCache(0))
		var admitted []core.Decision
		saved := 0
		for range 20_000 {
			switch r.IntN(8) {
			case 0:
				d := time.Duration(r.IntN(400_000)) * time.Microsecond
				time.Sleep(d)
				store.Advance(d)
			case 1:
				if len(admitted) > 0 && r.IntN(10) == 0 {
					i := r.IntN(len(admitted))
					if err := admitted[i].Settle(t.Context(), r.IntN(4)); err != nil {
						t.Fatal(err)
					}
				}
			case 2:
				if r.IntN(20) == 0 {
					quota = 1 + r.IntN(5)
				}
				if r.IntN(200) == 0 {
					cached.Reset(t.Context(), "k")
				}
			}
			cost := 1 + r.IntN(2)
			peek, err := honest.Peek(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			before := store.asked
			d, err := cached.AllowN(t.Context(), "k", cost)
			if err != nil && !errors.Is(err, core.ErrCostExceedsQuota) {
				t.Fatal(err)
			}
			if store.asked == before {
				saved++
				sooner := cost == 1 && (peek.Allowed || peek.RetryAfter < d.RetryAfter)
				fits := cost > 1 && peek.Allowed && peek.Remaining >= cost
				if d.Allowed || sooner || fits {
					t.Fatalf("the cache says %+v, the store %+v", d, peek)
				}
			}
			if d.Allowed {
				admitted = append(admitted[max(0, len(admitted)-20):], d)
			}
		}
		if saved < 1000 {
			t.Errorf("only %d answers came from the cache: the test proves little", saved)
		}
	})
}

type counted struct {
	*coretest.FakeStore
	asked int
}

func (c *counted) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	c.asked++
	return c.FakeStore.Take(ctx, takes, answers)
}

func TestDenyCacheAsksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{FakeStore: new(coretest.FakeStore)}
		l := newLimiter(t, core.PerHour(1), core.WithStore(store))
		for range 100 {
			for range 100 {
				l.Allow(t.Context(), "k")
			}
			time.Sleep(100 * time.Millisecond)
			store.Advance(100 * time.Millisecond)
		}
		if store.asked > 12 {
			t.Errorf("10,000 tries in 10 s reached the store %d times, want once a second", store.asked)
		}
	})
}

func TestManyLimitersLeaveNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 1000 {
		store := new(coretest.FakeStore)
		store.Fail(errDown)
		l := newLimiter(t, core.PerMinute(2), core.WithStore(store))
		l.Allow(t.Context(), "k")
		err := l.Close()
		if err == nil || !strings.Contains(err.Error(), " 1 unit ") || !errors.Is(l.Close(), err) {
			t.Fatalf("%v; want the unit that the store does not know", err)
		}
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if runtime.NumGoroutine() <= before+2 {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestFailureOptions(t *testing.T) {
	_, err := core.New(core.PerMinute(1), core.Global(),
		core.WithTimeout(0), core.WithFailure(7), core.WithDenyCache(-1))
	for _, want := range []string{"WithTimeout(0s)", "WithFailure(7)", "WithDenyCache(-1ns)", "FailLocal"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %q", err, want)
		}
	}
}
