package core_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

const leaseLength = 20 * time.Millisecond

// withLeases runs f with two limiters that share a store, as two processes do. The second one has no leases.
func withLeases(t *testing.T, p core.Policy, f func(t *testing.T, leased, other *core.Limiter), opts ...core.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		logs := newRemoteLogs()
		opts := append(opts, core.WithStore(connection{logs, quick}), core.WithName("shared"))
		leased := newLimiter(t, p, append(opts, core.WithLease(leaseLength))...)
		f(t, leased, newLimiter(t, p, opts...))
		leased.Close()
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

// The store counts what was booked until the lease is settled, and then what was used.
func TestLeaseIsSettled(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, leased, other *core.Limiter) {
		_, admitted := fromLease(t, leased)
		if n := usedOf(t, other); n <= admitted {
			t.Errorf("%d used, %d admitted: nothing is booked", n, admitted)
		}
		if n := usedOf(t, leased); n != admitted {
			t.Errorf("the process itself sees %d used, want the %d admitted", n, admitted)
		}
		time.Sleep(2 * leaseLength)
		if n := usedOf(t, other); n != admitted {
			t.Errorf("%d used after the lease, want %d", n, admitted)
		}
	})
}

func TestCloseSettlesLeases(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, leased, other *core.Limiter) {
		_, admitted := fromLease(t, leased)
		if err := leased.Close(); err != nil {
			t.Error(err)
		}
		if n := usedOf(t, other); n != admitted {
			t.Errorf("%d used after Close, want %d", n, admitted)
		}
	})
}

// A decision keeps its lease: Undo gives the unit back to it while it lives, and to the store afterwards, once.
func TestUndoOfLeasedUnits(t *testing.T) {
	for _, after := range []time.Duration{0, 3 * leaseLength} {
		withLeases(t, core.PerMinute(1000), func(t *testing.T, leased, other *core.Limiter) {
			d, admitted := fromLease(t, leased)
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
			if n := usedOf(t, other); n != admitted-1 {
				t.Errorf("undone after %v: %d used, want %d", after, n, admitted-1)
			}
		})
	}
}

// Settle to more takes units of the lease, and tells the store at once of what those do not suffice for.
func TestSettleOfLeasedUnits(t *testing.T) {
	for _, after := range []time.Duration{0, 3 * leaseLength} {
		for _, costs := range [][]int{{50}, {2}, {50, 20}, {2, 50, 1}} {
			withLeases(t, core.PerMinute(1000), func(t *testing.T, leased, other *core.Limiter) {
				d, admitted := fromLease(t, leased)
				time.Sleep(after)
				want := 0
				for _, cost := range costs {
					if err := d.Settle(t.Context(), cost); err != nil {
						t.Error(err)
					}
					if want = admitted - 1 + cost; usedOf(t, other) < want {
						t.Errorf("settled to %d: %d used, want %d at least", cost, usedOf(t, other), want)
					}
				}
				time.Sleep(2 * leaseLength)
				if n := usedOf(t, other); n != want {
					t.Errorf("settled to %v after %v: %d used, want %d", costs, after, n, want)
				}
			})
		}
	}
}

// Record and Reset end the lease in hand. A reset keeps what others have booked.
func TestRecordAndResetEndALease(t *testing.T) {
	withLeases(t, core.PerMinute(1000), func(t *testing.T, leased, other *core.Limiter) {
		_, admitted := fromLease(t, leased)
		if _, err := leased.Record(t.Context(), "k", 7); err != nil {
			t.Error(err)
		}
		if n := usedOf(t, other); n != admitted+7 {
			t.Errorf("%d used after Record, want %d", n, admitted+7)
		}
		time.Sleep(leaseLength)
		fromLease(t, leased)
		if err := other.Reset(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		booked := usedOf(t, other)
		if booked == 0 {
			t.Error("a reset has removed a live booking")
		}
		if err := leased.Reset(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		if n := usedOf(t, other); n != 0 {
			t.Errorf("%d used after the reset of the process itself, want none", n)
		}
	})
}

// Units that were booked and not used come back to those who wait as soon as they are settled.
func TestWaitLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := core.WithStore(connection{newRemoteLogs(), quick})
		made := func() *core.Limiter {
			return newLimiter(t, core.PerMinute(200), network, core.WithLease(leaseLength), core.WithName("shared"))
		}
		leased, own := made(), made()
		_, admitted := fromLease(t, leased)
		for d := (core.Decision{Allowed: true}); d.Allowed; admitted++ {
			var err error
			if d, err = own.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		admitted--
		if admitted == 200 {
			t.Fatal("nothing is booked")
		}
		began := time.Now()
		for ; admitted < 200; admitted++ {
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
	synctest.Test(t, func(t *testing.T) {
		logs := newRemoteLogs()
		var away atomic.Bool
		network := func() (there, back time.Duration, lost, twice bool) {
			there, back, lost, twice = quick()
			if away.Load() {
				there = time.Hour
			}
			return there, back, lost, twice
		}
		l := newLimiter(
			t,
			core.PerMinute(10_000),
			core.WithStore(connection{logs, network}),
			core.WithLease(time.Second),
			core.WithName("shared"),
		)
		other := newLimiter(t, core.PerMinute(10_000), core.WithStore(connection{logs, quick}), core.WithName("shared"))
		admitted := 0
		for left := 0; left < 50; {
			_, n := fromLease(t, l)
			admitted += n
			left = usedOf(t, other) - admitted
		}
		away.Store(true)
		for range 20 {
			d, err := l.Allow(t.Context(), "k")
			if err != nil || !d.Allowed || d.Degraded || !core.IsLeased(&d) {
				t.Fatal(d, err)
			}
			admitted++
		}
		time.Sleep(3 * time.Second)
		away.Store(false)
		time.Sleep(10 * time.Second)
		if n := usedOf(t, other); n != admitted {
			t.Errorf("%d used after the outage, want %d", n, admitted)
		}
		l.Close()
		time.Sleep(2 * time.Hour) // until all commands have ended
	})
}

// What was booked and not answered is settled to nothing when the store answers again.
func TestBookingWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := newRemoteLogs()
		var loses atomic.Bool
		network := func() (there, back time.Duration, lost, twice bool) {
			there, back, _, twice = quick()
			return there, back, loses.Load(), twice
		}
		l := newLimiter(t, core.PerMinute(1000), core.WithStore(connection{logs, network}), core.WithLease(leaseLength),
			core.WithName("shared"), core.WithFailure(core.FailClosed))
		other := newLimiter(t, core.PerMinute(1000), core.WithStore(connection{logs, quick}), core.WithName("shared"))
		_, admitted := fromLease(t, l)
		loses.Store(true)
		for range 50 { // the first that no lease serves settles, takes and books
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				break
			}
			admitted++
			time.Sleep(time.Millisecond)
		}
		loses.Store(false)
		time.Sleep(5 * time.Second)
		logs.mu.Lock()
		books := logs.calls["book"]
		logs.mu.Unlock()
		if n := usedOf(t, other); n != admitted+1 || books < 2 {
			t.Errorf("%d used, want the %d admitted and the take without an answer", n, admitted)
		}
		l.Close()
		time.Sleep(time.Minute)
	})
}

// The lease of a shared log is spent while another log is asked. If that denies, the unit goes back to the lease.
func TestJointDecisionWithALease(t *testing.T) {
	everybody := core.PerMinute(10_000).By(core.Global())
	limits := core.Limits{core.PerMinute(30), everybody}
	withLeases(t, limits, func(t *testing.T, leased, other *core.Limiter) {
		admitted, denied := 0, 0
		users := []string{"k", "l", "m"}
		for n := range 300 {
			d, err := leased.Allow(t.Context(), users[n%3])
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				admitted++
			} else {
				denied++
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(3 * leaseLength)
		d, err := other.Peek(t.Context(), "n")
		if err != nil || admitted != 90 || denied != 210 {
			t.Error(admitted, denied, err)
		}
		for _, l := range d.Limits() {
			if l.Quota == 10_000 && l.Used != admitted {
				t.Errorf("%d used by everybody, want %d", l.Used, admitted)
			}
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
			withLeases(t, core.PerMinute(200), func(t *testing.T, leased, _ *core.Limiter) {
				admitted, served := 0, 0
				for range 300 {
					d, err := leased.Allow(t.Context(), "k")
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
				if (served == 0) != (name == "shadow") {
					t.Errorf("%d served by leases", served)
				}
			}, opts...)
		})
	}
}

// AllowAtMost gets units of a lease that has enough of them, and otherwise what the store has.
func TestAllowAtMostWithLease(t *testing.T) {
	withLeases(t, core.PerMinute(100), func(t *testing.T, leased, other *core.Limiter) {
		_, admitted := fromLease(t, leased)
		for _, most := range []int{1, 500} {
			d, err := leased.AllowAtMost(t.Context(), "k", most)
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			if admitted += d.Granted; most == 500 && admitted != 100 {
				t.Errorf("%d granted in all, want 100", admitted)
			}
		}
		time.Sleep(2 * leaseLength)
		if n := usedOf(t, other); n != 100 {
			t.Errorf("%d used, want 100", n)
		}
	})
}

// Units of a process that was killed come back a window after their stamp.
func TestKilledProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := newRemoteLogs()
		var killed atomic.Bool
		network := func() (there, back time.Duration, lost, twice bool) {
			there, back, lost, twice = quick()
			if killed.Load() {
				there = 24 * time.Hour
			}
			return there, back, lost, twice
		}
		l := newLimiter(t, core.PerMinute(100), core.WithStore(connection{logs, network}), core.WithLease(leaseLength),
			core.WithName("shared"))
		other := newLimiter(t, core.PerMinute(100), core.WithStore(connection{logs, quick}), core.WithName("shared"))
		_, admitted := fromLease(t, l)
		killed.Store(true)
		time.Sleep(time.Minute - time.Second)
		if n := usedOf(t, other); n <= admitted {
			t.Errorf("%d used, want more than the %d admitted", n, admitted)
		}
		time.Sleep(time.Second + leaseLength)
		if n := usedOf(t, other); n != 0 {
			t.Errorf("%d used a window later", n)
		}
		l.Close()
		time.Sleep(48 * time.Hour) // until all commands have ended
	})
}

// An override has other limits, so it does not spend the lease that is in hand.
func TestLimitsThatChangeEndALease(t *testing.T) {
	small := false
	p := core.LimitBy(func(context.Context) core.Limits {
		if small {
			return core.Limits{core.PerMinute(1)}
		}
		return core.Limits{core.PerMinute(1000)}
	})
	withLeases(t, p, func(t *testing.T, leased, _ *core.Limiter) {
		fromLease(t, leased)
		small = true
		if d, err := leased.Allow(t.Context(), "k"); err != nil || d.Allowed {
			t.Error("a lease was spent under other limits", d, err)
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
		{core.PerMinute(1), nil, "*core.MemoryStore"},
		{
			core.PerMinute(1), []core.Option{core.WithStore(withoutBook{connection{logs, quick}})},
			"core_test.withoutBook",
		},
		{core.PerMinute(1).With(core.SlidingCounter), []core.Option{books}, "sliding counter"},
		{core.Limits{core.PerMinute(1), core.InFlight(1)}, []core.Option{books}, "1"},
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
