package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

// twoProcesses are two limiters of one policy on one store, as in two processes. The first counts what it asks the
// store.
type twoProcesses struct {
	t             *testing.T
	fake          *coretest.FakeStore
	here, remote  *core.Limiter
	asked, before int
}

func newProcesses(t *testing.T, p core.Policy, opts ...core.Option) *twoProcesses {
	ps := &twoProcesses{t: t, fake: new(coretest.FakeStore)}
	spy := &takeSpy{Full: ps.fake, seen: func(store.Take) { ps.asked++ }}
	ps.here = newLimiter(t, p, append(opts, core.WithName("p"), core.WithStore(spy))...)
	ps.remote = newLimiter(t, p, core.WithName("p"), core.WithStore(ps.fake), core.WithDenyCache(0))
	return ps
}

// sleep moves all clocks.
func (ps *twoProcesses) sleep(d time.Duration) {
	time.Sleep(d)
	ps.fake.Advance(d)
}

// allow asks a limiter for cost units.
func (ps *twoProcesses) allow(l *core.Limiter, cost int) core.Decision {
	ps.t.Helper()
	ps.before = ps.asked
	d, err := l.AllowN(ps.t.Context(), "k", cost)
	if err != nil {
		ps.t.Fatal(err)
	}
	return d
}

// fromStore reports whether the last request of here's has reached the store.
func (ps *twoProcesses) fromStore() bool { return ps.asked > ps.before }

// What another process gives back is seen as soon as a remembered denial has grown old: one asks, is admitted, and the
// denial is forgotten, so that the next one asks as well.
func TestUndoneElsewhereIsSeen(t *testing.T) {
	for name, back := range map[string]func(*twoProcesses, core.Decision) error{
		"undone":  func(ps *twoProcesses, d core.Decision) error { return d.Undo(ps.t.Context()) },
		"settled": func(ps *twoProcesses, d core.Decision) error { return d.Settle(ps.t.Context(), 1) },
		"reset":   func(ps *twoProcesses, _ core.Decision) error { return ps.remote.Reset(ps.t.Context(), "k") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const longest = time.Second
				ps := newProcesses(t, core.PerHour(4), core.WithDenyCache(longest))
				taken := ps.allow(ps.remote, 4)
				if d := ps.allow(ps.here, 1); d.Allowed || !ps.fromStore() {
					t.Fatalf("the first denial: %+v, from the store %v", d, ps.fromStore())
				}
				ps.sleep(longest / 2)
				if err := back(ps, taken); err != nil {
					t.Fatal(err)
				}
				ps.sleep(longest / 2) // the cache has had its time
				for i := range 3 {
					if d := ps.allow(ps.here, 1); !d.Allowed || !ps.fromStore() {
						t.Errorf("request %d once the denial is %v old: allowed %v, from the store %v",
							i+1, longest, d.Allowed, ps.fromStore())
					}
				}
			})
		})
	}
}

// A denial that the store has not repeated is not used in an outage, however old it was when the store was asked again.
func TestUndoneElsewhereBeforeAnOutage(t *testing.T) {
	for _, age := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			ps := newProcesses(t, core.PerHour(4))
			defer ps.here.Close()
			taken := ps.allow(ps.remote, 4)
			ps.allow(ps.here, 1)
			ps.sleep(age)
			if err := taken.Undo(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d := ps.allow(ps.here, 1); !d.Allowed {
				t.Error("denied although units were given back")
			}
			ps.fake.Fail(errDown)
			if d := ps.allow(ps.here, 1); !d.Allowed {
				t.Errorf("denied in an outage, since it was denied %v before the store admitted it", age)
			}
		})
	}
}

// What this process itself gives back is seen at once.
func TestUndoneHereIsSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newProcesses(t, core.PerHour(2), core.WithDenyCache(time.Minute))
		first, second := ps.allow(ps.here, 1), ps.allow(ps.here, 1)
		denied := func() {
			t.Helper()
			ps.allow(ps.here, 1)
			if d := ps.allow(ps.here, 1); d.Allowed || ps.fromStore() {
				t.Errorf("allowed %v, from the store %v; want a denial from memory", d.Allowed, ps.fromStore())
			}
		}
		denied()
		if err := first.Undo(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := ps.allow(ps.here, 1); !d.Allowed {
			t.Error("denied although a unit was given back")
		}
		denied()
		if err := second.Settle(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if d := ps.allow(ps.here, 1); !d.Allowed {
			t.Error("denied although a unit was settled away")
		}
		denied()
		if err := ps.here.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if d := ps.allow(ps.here, 1); !d.Allowed {
			t.Error("denied although the log was reset")
		}
	})
}

// The times of a remembered denial, which are Retry-After and the t of the RateLimit field, go on.
func TestRememberedDenialsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = 100 * time.Millisecond
		ps := newProcesses(t, core.Limits{core.PerMinute(2), core.PerHour(2)}, core.WithDenyCache(time.Second))
		ps.allow(ps.here, 1)
		ps.sleep(10 * time.Second)
		ps.allow(ps.here, 1)
		cached := 0
		for wait := time.Hour - 10*time.Second; wait > time.Hour-13*time.Second; wait -= step {
			d := ps.allow(ps.here, 1)
			if d.Allowed || d.RetryAfter != wait || d.ResetAfter != wait-time.Hour+time.Minute {
				t.Errorf("from the store %v: retry after %v, reset after %v; want %v and %v",
					ps.fromStore(), d.RetryAfter, d.ResetAfter, wait, wait-time.Hour+time.Minute)
			}
			if !ps.fromStore() {
				cached++
			}
			ps.sleep(step)
		}
		if cached < 20 {
			t.Errorf("%d of 30 denials were from memory: the test proves little", cached)
		}
	})
}

// A denial from the deny cache ends no later than it would in the store, whatever the cache's time.
func TestRememberedDenialsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, window := range []time.Duration{10 * time.Millisecond, time.Second, 30 * time.Second} {
			limits := core.Limits{
				{Name: "short", Quota: 2, Window: window}, {Name: "long", Quota: 1000, Window: time.Hour},
			}
			ps := newProcesses(t, limits, core.WithDenyCache(time.Minute))
			for range 20 {
				ps.allow(ps.here, 2)
				third := (window / 3).Truncate(time.Microsecond)
				ps.sleep(third)
				if d := ps.allow(ps.here, 1); d.Allowed || d.RetryAfter != window-third {
					t.Fatalf("%v: %+v; want a denial", window, d)
				}
				ps.sleep(window - third - time.Microsecond)
				if d := ps.allow(ps.here, 1); d.Allowed || d.RetryAfter != time.Microsecond || ps.fromStore() {
					t.Errorf("%v: allowed %v, retry after %v, from the store %v; want a denial from memory",
						window, d.Allowed, d.RetryAfter, ps.fromStore())
				}
				ps.sleep(time.Microsecond)
				if d := ps.allow(ps.here, 1); !d.Allowed {
					t.Errorf("%v: denied at the very instant that was told", window)
				}
				ps.sleep(window)
			}
		}
	})
}

// While a request asks the store, somebody may give back what it is denied for. Its denial is not remembered.
func TestDenialsInFlightAreNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := new(coretest.FakeStore)
		var taken core.Decision
		back := false
		after := &afterTake{Full: fake, done: func() {
			if back {
				back = false
				if err := taken.Undo(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}}
		l := newLimiter(t, core.PerHour(1), core.WithStore(after), core.WithDenyCache(time.Minute))
		allow := func() core.Decision {
			d, err := l.Allow(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		for range 10 {
			taken, back = allow(), true
			if !taken.Allowed || allow().Allowed {
				t.Fatal("want one allowed, and one denied")
			}
			if d := allow(); !d.Allowed {
				t.Fatal("denied for what was given back before the denial came")
			} else if err := d.Undo(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// afterTake is a store that does something when it has decided, before its answer comes.
type afterTake struct {
	store.Full

	done func()
}

func (s *afterTake) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	err := s.Full.Take(ctx, takes, answers)
	s.done()
	return err
}

// When a wait is over, the deny cache denies no take, even while another take asks the store.
func TestNobodyIsDeniedWhileAnotherAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, hold, held := new(coretest.FakeStore), make(chan struct{}), make(chan struct{})
		holds := false
		store := &takeSpy{Full: fake, seen: func(store.Take) {
			if holds {
				holds = false
				close(held)
				<-hold
			}
		}}
		opts := []core.Option{core.WithStore(store), core.WithDenyCache(time.Minute), core.WithTimeout(time.Minute)}
		l := newLimiter(t, core.PerSecond(2), opts...)
		if d, err := l.AllowN(t.Context(), "k", 2); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.RetryAfter != time.Second {
			t.Fatal(d, err)
		}
		time.Sleep(time.Second)
		fake.Advance(time.Second)
		holds = true
		first := make(chan core.Decision)
		go func() {
			d, err := l.Allow(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			first <- d
		}()
		<-held
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Errorf("allowed %v, %v, while another request is on its way to the store", d.Allowed, err)
		}
		close(hold)
		if d := <-first; !d.Allowed {
			t.Error("the one that was on its way is denied")
		}
	})
}

// Denials that count reach the store, each of them, and so do those beside a shadow, which is to be told each time.
func TestWhatIsNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newProcesses(t, core.PerHour(1), core.WithDenyCache(time.Minute), core.WithCountDenied())
		for i := range 10 {
			if d := ps.allow(ps.here, 1); d.Allowed != (i == 0) || !ps.fromStore() {
				t.Errorf("request %d: allowed %v, from the store %v", i+1, d.Allowed, ps.fromStore())
			}
			ps.sleep(time.Second)
		}
	})
}

// A denial says nothing of other keys, of a smaller cost, of what can never pass, or of other limits.
func TestDenialsAreOfOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := core.Limits{core.PerHour(4)}
		policy := core.LimitBy(func(context.Context) core.Limits { return limits })
		ps := newProcesses(t, policy, core.WithDenyCache(time.Minute))
		ps.allow(ps.here, 2)
		if d := ps.allow(ps.here, 3); d.Allowed {
			t.Fatal("3 more of 4 after 2")
		}
		if d := ps.allow(ps.here, 3); d.Allowed || ps.fromStore() {
			t.Errorf("the same again: allowed %v, from the store %v", d.Allowed, ps.fromStore())
		}
		for i := range 10_000 { // more than a cache has places for
			d, err := ps.here.AllowN(t.Context(), fmt.Sprint(i), 3)
			if err != nil || !d.Allowed {
				t.Fatalf("another key: %+v, %v", d, err)
			}
		}
		if d := ps.allow(ps.here, 1); !d.Allowed || d.Remaining != 1 {
			t.Errorf("a smaller cost: %+v", d)
		}
		ps.allow(ps.here, 3)
		d, err := ps.here.AllowN(t.Context(), "k", 5)
		if !errors.Is(err, core.ErrCostExceedsQuota) || !d.Never() || d.RetryAfter != 0 {
			t.Errorf("what can never pass: %+v, %v", d, err)
		}
		limits = core.Limits{core.PerHour(8)}
		if d := ps.allow(ps.here, 3); !d.Allowed || d.Remaining != 2 {
			t.Errorf("other limits: %+v", d)
		}
	})
}

// What is admitted under other limits makes the wait of a remembered denial longer.
func TestAdmissionsUnderOtherLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		few, more := core.Limits{core.PerMinute(2)}, core.Limits{core.PerMinute(3)}
		limits := few
		policy := core.LimitBy(func(context.Context) core.Limits { return limits })
		ps := newProcesses(t, policy, core.WithDenyCache(time.Minute))
		ps.allow(ps.here, 1)
		ps.sleep(10 * time.Second)
		ps.allow(ps.here, 1)
		if d := ps.allow(ps.here, 1); d.Allowed || d.RetryAfter != 50*time.Second {
			t.Errorf("the third of two: %+v", d)
		}
		limits = more
		if d := ps.allow(ps.here, 1); !d.Allowed {
			t.Errorf("the third of three: %+v", d)
		}
		limits = few
		d := ps.allow(ps.here, 1)
		if ps.sleep(d.RetryAfter); !ps.allow(ps.here, 1).Allowed {
			t.Errorf("denied after a wait of %v", d.RetryAfter)
		}
	})
}
