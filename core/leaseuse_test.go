package core_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

const leaseLength = 20 * time.Millisecond

// pair is two limiters that share a store, as two processes do. The second one only looks, without faults in its
// network.
type pair struct {
	*remoteLogs

	leased, other *core.Limiter
	away, silent  atomic.Bool // commands of the first one are not executed; or are, and not answered
}

func (p *pair) network() (there, back time.Duration, lost, twice bool) {
	there, back, _, _ = quick()
	if p.away.Load() {
		there = 24 * time.Hour
	}
	return there, back, p.silent.Load(), false
}

func withLeases(t *testing.T, policy core.Policy, f func(t *testing.T, p *pair), opts ...core.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{remoteLogs: newRemoteLogs()}
		opts := append([]core.Option{core.WithName("shared")}, opts...)
		p.leased = newLimiter(t, policy, append(opts, core.WithStore(connection{p.remoteLogs, p.network}),
			core.WithLease(leaseLength))...)
		p.other = newLimiter(t, policy, append(opts, core.WithStore(connection{p.remoteLogs, quick}),
			core.WithLease(leaseLength))...)
		f(t, p)
		p.leased.Close()
		time.Sleep(48 * time.Hour) // until all commands have ended
	})
}

// fromLease makes requests until one is served by a lease, and returns its decision and how many were admitted.
func fromLease(t *testing.T, l *core.Limiter) (d core.Decision, admitted int) {
	t.Helper()
	for range 100 {
		d, err := l.Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			admitted++
		}
		if core.IsLeased(&d) {
			return d, admitted
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no request was served by a lease")
	return d, 0
}

func usedOf(t *testing.T, l *core.Limiter) int {
	t.Helper()
	d, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

// wantUsed checks how many units a limiter finds used.
func wantUsed(t *testing.T, l *core.Limiter, want int, when string) {
	t.Helper()
	if n := usedOf(t, l); n != want {
		t.Errorf("%d used %s, want %d", n, when, want)
	}
}

// The store counts what was booked until the lease is settled, and then what was used.
func TestLeaseIsSettled(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
		_, admitted := fromLease(t, p.leased)
		if n := usedOf(t, p.other); n <= admitted {
			t.Errorf("%d used, %d admitted: nothing is booked", n, admitted)
		}
		if s := p.leased.Stats(); s.Leases != 1 || s.Booked != usedOf(t, p.other)-admitted {
			t.Errorf("%d leases with %d units, of %d used and %d admitted", s.Leases, s.Booked, usedOf(t, p.other),
				admitted)
		}
		time.Sleep(2 * leaseLength)
		wantUsed(t, p.other, admitted, "after the lease")
		if s := p.leased.Stats(); s.Leases != 0 || s.Booked != 0 {
			t.Errorf("%d leases with %d units after the lease", s.Leases, s.Booked)
		}
	})
}

func TestCloseSettlesLeases(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
		_, admitted := fromLease(t, p.leased)
		if err := p.leased.Close(); err != nil {
			t.Error(err)
		}
		wantUsed(t, p.other, admitted, "after Close")
	})
}

// Close settles also what the store was not told of a lease while it did not answer, whatever the failure policy is.
func TestCloseSettlesLeasesOfAnOutage(t *testing.T) {
	for _, failure := range []core.Failure{core.FailLocal, core.FailOpen, core.FailClosed} {
		withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
			_, admitted := fromLease(t, p.leased)
			p.away.Store(true)
			time.Sleep(leaseLength + 100*time.Millisecond) // the timeout of the settlement
			p.away.Store(false)
			if err := p.leased.Close(); err != nil {
				t.Error(err)
			}
			wantUsed(t, p.other, admitted, fmt.Sprint("after Close with ", failure))
		}, core.WithFailure(failure))
	}
}

// Close waits for bookings and settlements that are on their way, since the store's client may be closed next.
func TestCloseAwaitsLeases(t *testing.T) {
	slow := func() (there, back time.Duration, lost, twice bool) {
		return leaseLength / 8, leaseLength / 8, false, false
	}
	for name, opts := range map[string][]core.Option{"": nil, "count denied": {core.WithCountDenied()}} {
		for after := time.Duration(0); after < 2*leaseLength; after += leaseLength / 10 {
			withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
				l := newLimiter(t, core.PerMinute(1000), append(opts, core.WithName("shared"),
					core.WithStore(connection{p.remoteLogs, slow}), core.WithLease(leaseLength))...)
				const callers, calls = 20, 4
				for range calls {
					var all sync.WaitGroup
					for range callers {
						all.Go(func() { l.Allow(t.Context(), "k") })
					}
					all.Wait()
				}
				time.Sleep(after)
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				wantUsed(t, p.other, callers*calls, fmt.Sprintf("after Close, %v after a request %s", after, name))
			}, opts...)
		}
	}
}

// A decision keeps its lease: Undo gives the unit back to it while it lives, and to the store afterwards, once.
func TestUndoOfLeasedUnits(t *testing.T) {
	for _, after := range []time.Duration{0, 3 * leaseLength} {
		withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
			d, admitted := fromLease(t, p.leased)
			time.Sleep(after)
			for range 2 {
				if err := d.Undo(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if err := d.Settle(t.Context(), 5); err != nil { // which does nothing after Undo
				t.Error(err)
			}
			time.Sleep(2 * leaseLength)
			wantUsed(t, p.other, admitted-1, fmt.Sprint("with one undone after ", after))
		})
	}
}

// Settle to more takes units of the lease, and tells the store at once of what those do not suffice for.
func TestSettleOfLeasedUnits(t *testing.T) {
	for _, after := range []time.Duration{0, 3 * leaseLength} {
		for _, costs := range [][]int{{50}, {2}, {50, 20}, {2, 50, 1}} {
			withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
				d, admitted := fromLease(t, p.leased)
				time.Sleep(after)
				want := 0
				for _, cost := range costs {
					if err := d.Settle(t.Context(), cost); err != nil {
						t.Error(err)
					}
					if want = admitted - 1 + cost; usedOf(t, p.other) < want {
						t.Errorf("settled to %d: %d used, want %d at least", cost, usedOf(t, p.other), want)
					}
				}
				time.Sleep(2 * leaseLength)
				wantUsed(t, p.other, want, fmt.Sprintf("with one settled to %v after %v", costs, after))
			})
		}
	}
}

// What Settle and Undo could not tell the store, they tell it when they are called again.
func TestSettleLeasedUnitsAgain(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
		d, admitted := fromLease(t, p.leased)
		for _, cost := range []int{500, 1, 500, 0} {
			p.away.Store(true)
			if err := d.Settle(t.Context(), cost); err == nil {
				t.Errorf("settled to %d without the store", cost)
			}
			p.away.Store(false)
			time.Sleep(5 * time.Second)
			if err := d.Settle(t.Context(), cost); err != nil {
				t.Error(err)
			}
			wantUsed(t, p.other, admitted-1+cost, fmt.Sprint("settled to ", cost))
		}
	}, core.WithFailure(core.FailClosed))
}

// What was settled to more in an outage and undone before that was replayed is not replayed.
func TestUndoBeforeTheReplayOfLeasedUnits(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
		d, admitted := fromLease(t, p.leased)
		p.away.Store(true)
		if err := d.Settle(t.Context(), 500); err != nil {
			t.Error(err)
		}
		p.away.Store(false)
		if err := d.Undo(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		wantUsed(t, p.other, admitted-1, "after the replay")
	})
}

// Settlements of a decision at the same time leave in the store what the last of them has said, whichever arrives
// first.
func TestSettleLeasedUnitsAtOnce(t *testing.T) {
	for _, last := range []int{0, 60} {
		withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
			var there atomic.Int64
			l := newLimiter(t, core.PerMinute(1000), core.WithName("shared"), core.WithLease(leaseLength),
				core.WithStore(connection{p.remoteLogs, func() (there_, back time.Duration, lost, twice bool) {
					return time.Duration(there.Load()), 0, false, false
				}}))
			defer l.Close()
			d, admitted := fromLease(t, l)
			var all sync.WaitGroup
			for _, cost := range []int{500, last} {
				there.Store(int64(5*time.Millisecond) * int64(cost/100))
				all.Go(func() {
					if err := d.Settle(t.Context(), cost); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			all.Wait()
			time.Sleep(2 * leaseLength)
			wantUsed(t, p.other, admitted-1+last, fmt.Sprint("settled to 500 and to ", last))
		})
	}
}

// Record and Reset end the lease in hand. A reset keeps what is younger than a lease.
func TestRecordAndResetEndALease(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
		_, admitted := fromLease(t, p.leased)
		if _, err := p.leased.Record(t.Context(), "k", 7); err != nil {
			t.Error(err)
		}
		wantUsed(t, p.other, admitted+7, "after Record")
		time.Sleep(leaseLength)
		fromLease(t, p.leased)
		if err := p.other.Reset(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		booked, unused := usedOf(t, p.other), p.leased.Stats().Booked
		if booked == 0 {
			t.Error("a reset has removed a live lease")
		}
		if err := p.leased.Reset(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		wantUsed(t, p.other, booked-unused, "after a reset of what may be leased elsewhere") // its own lease was settled
		time.Sleep(leaseLength)
		if err := p.leased.Reset(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		wantUsed(t, p.other, 0, "after a reset later")
	})
}

// Units that were booked and not used come back to those who wait as soon as they are settled.
func TestWaitLooksAgain(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
		own := newLimiter(t, core.PerMinute(1000), core.WithStore(connection{p.remoteLogs, quick}),
			core.WithLease(leaseLength), core.WithName("shared"))
		_, admitted := fromLease(t, p.leased)
		d, err := own.AllowAtMost(t.Context(), "k", 1000)
		if err != nil {
			t.Fatal(err)
		}
		if admitted += d.Granted; admitted == 1000 {
			t.Fatal("nothing is booked")
		}
		began := time.Now()
		for ; admitted < 1000; admitted++ {
			if _, err := own.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 3*leaseLength {
			t.Errorf("the wait took %v", took)
		}
		if d, err := own.Allow(t.Context(), "k"); err != nil || d.Allowed {
			t.Error("a unit more than the quota", d, err)
		}
	})
}

// While the store does not answer, a lease in hand goes on, and what it has used is settled afterwards.
func TestLeaseInAnOutage(t *testing.T) {
	withLeases(t, core.PerMinute(10_000), func(t *testing.T, p *pair) {
		admitted := 0
		for left := 0; left < 10; {
			_, n := fromLease(t, p.leased)
			admitted += n
			left = usedOf(t, p.other) - admitted
		}
		p.away.Store(true)
		for range 10 {
			d, err := p.leased.Allow(t.Context(), "k")
			if err != nil || !d.Allowed || d.Degraded || !core.IsLeased(&d) {
				t.Fatal(d, err)
			}
			admitted++
		}
		time.Sleep(3 * time.Second)
		p.away.Store(false)
		time.Sleep(10 * time.Second)
		wantUsed(t, p.other, admitted, "after the outage")
	})
}

// A request that ends a lease is decided in time as well if the store does not answer.
func TestLeaseEndsInTime(t *testing.T) {
	limits := core.Limits{core.PerMinute(999), core.PerHour(1000)}
	for name, policy := range map[string]core.Policy{"one log": core.PerMinute(1000), "two": limits} {
		for _, ask := range []func(*core.Limiter) (core.Decision, error){
			func(l *core.Limiter) (core.Decision, error) { return l.AllowAtMost(context.Background(), "k", 500) },
			func(l *core.Limiter) (core.Decision, error) { return l.Record(context.Background(), "k", 1) },
			func(l *core.Limiter) (core.Decision, error) { return l.AllowN(context.Background(), "k", 500) },
		} {
			withLeases(t, policy, func(t *testing.T, p *pair) {
				fromLease(t, p.leased)
				p.away.Store(true)
				begun := time.Now()
				_, err := ask(p.leased)
				if took := time.Since(begun); err == nil || took > 100*time.Millisecond {
					t.Errorf("%s: %v after %v, want an error after 100ms", name, err, took)
				}
			}, core.WithFailure(core.FailClosed))
		}
	}
}

// A store whose answers take longer than a lease is asked about each request, which is in time as without leases.
func TestLeaseShorterThanARoundTrip(t *testing.T) {
	far := func() (there, back time.Duration, lost, twice bool) {
		return leaseLength * 3 / 4, leaseLength * 3 / 4, false, false
	}
	withLeases(t, core.PerMinute(100_000), func(t *testing.T, p *pair) {
		l := newLimiter(t, core.PerMinute(100_000), core.WithName("shared"),
			core.WithStore(connection{p.remoteLogs, far}), core.WithLease(leaseLength))
		defer l.Close()
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				for range 10 {
					if d, err := l.Allow(t.Context(), "k"); err != nil || d.Degraded {
						t.Errorf("degraded %v, %v", d.Degraded, err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

// What was booked and not answered is settled to nothing when the store answers again.
func TestBookingWithoutAnAnswer(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
		_, admitted := fromLease(t, p.leased)
		p.silent.Store(true)
		for range 50 { // the first that no lease serves settles, takes and books
			if _, err := p.leased.Allow(t.Context(), "k"); err != nil {
				break
			}
			admitted++
			time.Sleep(time.Millisecond)
		}
		p.silent.Store(false)
		time.Sleep(5 * time.Second)
		wantUsed(t, p.other, admitted, "with a take that was not answered")
	}, core.WithFailure(core.FailClosed))
}

// Requests that wait for one booking without an answer fail together, so they count as one failure of the store.
func TestOneBookingWithoutAnAnswerOpensNoBreaker(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
		fromLease(t, p.leased)
		time.Sleep(leaseLength)
		p.silent.Store(true)
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() { p.leased.Allow(t.Context(), "k") })
		}
		synctest.Wait()
		p.silent.Store(false)
		all.Wait()
		if d, err := p.leased.Allow(t.Context(), "k"); err != nil || d.Degraded || p.leased.Stats().Outages > 0 {
			t.Errorf("degraded %v, %v; %+v", d.Degraded, err, p.leased.Stats())
		}
	})
}

// Options that concern single decisions mean the same with leases.
func TestLeaseWithOptions(t *testing.T) {
	for name, opts := range map[string][]core.Option{
		"count denied": {core.WithCountDenied()},
		"ban":          {core.WithBan(1000, time.Minute, time.Minute)},
		"shadow":       {core.WithShadow(core.PerMinute(5))},
		"open":         {core.WithFailure(core.FailOpen)},
	} {
		t.Run(name, func(t *testing.T) {
			withLeases(t, core.PerMinute(200), func(t *testing.T, p *pair) {
				admitted, served := 0, 0
				for range 300 {
					d, err := p.leased.Allow(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						admitted++
					}
					if core.IsLeased(&d) {
						served++
					}
					time.Sleep(time.Millisecond)
				}
				if admitted != 200 {
					t.Errorf("%d admitted, want 200", admitted)
				}
				if served == 0 {
					t.Error("none was served by a lease")
				}
			}, opts...)
		})
	}
}

// AllowAtMost gets units of a lease that has enough of them, and otherwise what the store has.
func TestAllowAtMostWithLease(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
		_, admitted := fromLease(t, p.leased)
		for _, most := range []int{1, 5000} {
			d, err := p.leased.AllowAtMost(t.Context(), "k", most)
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			if admitted += d.Granted; most > 1 && admitted != 1000 {
				t.Errorf("%d granted in all, want 1000", admitted)
			}
		}
		time.Sleep(2 * leaseLength)
		wantUsed(t, p.other, 1000, "in the end")
	})
}

// Units of a process that was killed come back a window after their stamp.
func TestKilledProcess(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, p *pair) {
		_, admitted := fromLease(t, p.leased)
		p.away.Store(true)
		time.Sleep(time.Minute - time.Second)
		if n := usedOf(t, p.other); n <= admitted {
			t.Errorf("%d used, want more than the %d admitted", n, admitted)
		}
		time.Sleep(time.Second + leaseLength)
		wantUsed(t, p.other, 0, "a window later")
	})
}

// A request with other limits does not spend the lease in hand, which is settled: those of a context, and of overrides.
func TestLimitsThatChangeEndALease(t *testing.T) {
	type quota struct{}
	policy := core.LimitBy(func(ctx context.Context) core.Limits {
		n, _ := ctx.Value(quota{}).(int)
		return core.Limits{core.PerMinute(cmp.Or(n, 1000))}
	})
	override := func(o core.Override) func(*testing.T, *core.Limiter) context.Context {
		return func(t *testing.T, l *core.Limiter) context.Context {
			overrideIn(t, l, "k", o)
			return t.Context()
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, *core.Limiter) context.Context
		quota  int
	}{
		"context": {func(t *testing.T, _ *core.Limiter) context.Context {
			return context.WithValue(t.Context(), quota{}, 50)
		}, 50},
		"raised":  {override(core.Override{Limits: core.Limits{core.PerMinute(2000)}}), 2000},
		"lowered": {override(core.Override{Limits: core.Limits{core.PerMinute(50)}}), 50},
		"denied":  {override(core.Override{Denied: true}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			withLeases(t, policy, func(t *testing.T, p *pair) {
				_, admitted := fromLease(t, p.leased)
				ctx := c.change(t, p.leased)
				for n := range 3 * c.quota {
					d, err := p.leased.Allow(ctx, "k")
					if err != nil || n == 0 && core.IsLeased(&d) {
						t.Fatal("a lease was spent under other limits", d, err)
					}
					if d.Allowed {
						admitted++
					}
					time.Sleep(time.Millisecond)
				}
				if d, err := p.leased.Allow(ctx, "k"); err != nil || d.Allowed || c.quota > 0 && admitted != c.quota {
					t.Errorf("%d admitted under a quota of %d; %v, %v", admitted, c.quota, d, err)
				}
				if err := p.leased.RemoveOverride(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * time.Second) // until the other process knows it
				wantUsed(t, p.other, admitted, "after the leases")
			}, core.WithOverrides())
		})
	}
}

// Limits that LimitBy chooses are compiled for each request if there are many of them. Such requests spend one lease.
func TestLeaseOfManyLimits(t *testing.T) {
	type quota struct{}
	policy := core.LimitBy(func(ctx context.Context) core.Limits {
		n, _ := ctx.Value(quota{}).(int)
		return core.Limits{core.PerMinute(cmp.Or(n, 300))}
	})
	withLeases(t, policy, func(t *testing.T, p *pair) {
		for n := range 100 {
			if _, err := p.leased.Allow(context.WithValue(t.Context(), quota{}, 1000+n), "other"); err != nil {
				t.Fatal(err)
			}
		}
		_, admitted := fromLease(t, p.leased)
		for ; admitted < 300; admitted++ {
			time.Sleep(time.Millisecond)
			if d, err := p.leased.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatalf("denied after %d of 300: %v, %v", admitted, d, err)
			}
		}
	})
}

type withoutBook struct{ store.Store }

// What cannot have leases is an error at start-up.
func TestLeaseNeedsAStoreThatBooks(t *testing.T) {
	logs := newRemoteLogs()
	books := core.WithStore(connection{logs, quick})
	for _, c := range []struct {
		p     core.Policy
		opts  []core.Option
		value string
	}{
		{
			core.PerMinute(1), []core.Option{core.WithStore(withoutBook{connection{logs, quick}})},
			"core_test.withoutBook",
		},
		{core.PerMinute(1).With(core.SlidingCounter), []core.Option{books}, "sliding counter"},
	} {
		_, err := core.New(c.p, core.Global(), append(c.opts, core.WithLease(leaseLength))...)
		found := false
		for _, e := range configErrors(err) {
			found = found || e.Option == "WithLease"
		}
		if !found {
			t.Errorf("%v: %v", c.value, err)
		}
	}
	for _, d := range []time.Duration{0, time.Millisecond, 2 * time.Second} {
		if _, err := core.New(core.PerMinute(1), core.Global(), books, core.WithLease(d)); !errors.As(
			err,
			new(*core.ConfigError),
		) {
			t.Errorf("%v: %v", d, err)
		}
	}
}
