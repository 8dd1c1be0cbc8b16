//go:build next

package core_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/next/core"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// flaky is a store that executes calls or not, and answers or not.
type flaky struct {
	store.Full

	silent, lost atomic.Bool // it does not answer; and what it is asked is not executed
}

func (f *flaky) down(lost bool) { f.silent.Store(true); f.lost.Store(lost) }
func (f *flaky) up()            { f.silent.Store(false); f.lost.Store(false) }

func (f *flaky) call(execute func() error) error {
	if f.lost.Load() {
		return errDown
	}
	if err := execute(); err != nil || !f.silent.Load() {
		return err
	}
	return errDown
}

func (f *flaky) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	return f.call(func() error { return f.Full.Take(ctx, takes, answers) })
}

func (f *flaky) Settle(ctx context.Context, s store.Settlement) error {
	return f.call(func() error { return f.Full.Settle(ctx, s) })
}

func (f *flaky) Renew(ctx context.Context, r store.Renewal) error {
	return f.call(func() error { return f.Full.Renew(ctx, r) })
}

func (f *flaky) Merge(ctx context.Context, m store.MergeRequest) error {
	return f.call(func() error { return f.Full.Merge(ctx, m) })
}

// slotsIn returns how many slots and units the store itself counts for the key "k" of an unnamed limiter.
func slotsIn(t *testing.T, s store.Full, policy core.Policy) int {
	t.Helper()
	d, err := newLimiter(t, policy, core.WithStore(s)).Peek(t.Context(), "k")
	if err != nil {
		t.Error(err)
	}
	return d.Used
}

func release(t *testing.T, d core.Decision) {
	t.Helper()
	if err := d.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// In an outage a process counts the slots that its requests hold, those that it has taken from the store before
// included. When the store answers again, it has those that are still held.
func TestInFlightInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := &flaky{Full: core.NewMemoryStore()}
		l := newLimiter(t, core.InFlight(3), core.WithStore(logs))
		first, second := allowed(t, l, "k", true), allowed(t, l, "k", true)
		logs.down(true)
		third := allowed(t, l, "k", true)
		if !third.Degraded {
			t.Errorf("%v", third)
		}
		allowed(t, l, "k", false)
		release(t, third)
		release(t, third)
		third = allowed(t, l, "k", true)
		allowed(t, l, "k", false)
		if err := first.Release(t.Context()); err == nil {
			t.Error("released in the store, which is down")
		}
		fourth := allowed(t, l, "k", true)
		allowed(t, l, "k", false)
		time.Sleep(20 * time.Second)
		allowed(t, l, "k", false)

		logs.up()
		time.Sleep(5 * time.Second)
		if n := slotsIn(t, logs.Full, core.InFlight(3)); n != 3 {
			t.Errorf("the store counts %d slots after the outage, want those that requests hold", n)
		}
		for _, d := range []core.Decision{first, second, third, fourth} {
			release(t, d)
		}
		if n := slotsIn(t, logs.Full, core.InFlight(3)); n != 0 {
			t.Errorf("the store counts %d slots at the end", n)
		}
		logs.down(true)
		for range 3 {
			allowed(t, l, "k", true)
		}
		allowed(t, l, "k", false)
		logs.up()
		time.Sleep(5 * time.Second)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Neither a denial for want of a slot nor the slot that was the last one is remembered in an outage.
func TestInFlightDenialInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := &flaky{Full: core.NewMemoryStore()}
		l := newLimiter(t, core.Limits{core.InFlight(1), core.PerHour(100)}, core.WithStore(logs))
		held := allowed(t, l, "k", true)
		allowed(t, l, "k", false)
		other := allowed(t, l, "other", true)
		logs.down(true)
		for key, d := range map[string]core.Decision{"k": held, "other": other} {
			allowed(t, l, key, false)
			if err := d.Release(t.Context()); err == nil {
				t.Error("released in the store, which is down")
			}
			release(t, allowed(t, l, key, true))
		}
		logs.up()
		time.Sleep(5 * time.Second)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// An outage that is longer than a lease does not end the slots of this process.
func TestInFlightInLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := &flaky{Full: core.NewMemoryStore()}
		policy := core.Limits{core.InFlight(2).Lease(time.Second), core.PerHour(100)}
		l := newLimiter(t, policy, core.WithStore(logs))
		slots := func(want int) {
			t.Helper()
			d, err := newLimiter(t, policy, core.WithStore(logs.Full)).Peek(t.Context(), "k")
			if err != nil || d.Limits()[0].Used != want {
				t.Errorf("%+v, %v; want %d slots in the store", d.Limits(), err, want)
			}
		}
		first := allowed(t, l, "k", true)
		logs.down(true)
		second := allowed(t, l, "k", true)
		for range 10 {
			time.Sleep(time.Second)
			allowed(t, l, "k", false)
		}
		release(t, allowed(t, l, "other", true))
		logs.up()
		time.Sleep(5 * time.Second)
		slots(2)
		release(t, first)
		release(t, second)
		slots(0)
		if d, err := l.Peek(t.Context(), "k"); err != nil || d.Used != 2 {
			t.Errorf("%v, %v: the units of the outage are missing", d, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A store that executes what it is asked and does not answer keeps no slot of it.
func TestInFlightWithLostAnswers(t *testing.T) {
	for _, policy := range []core.Failure{core.FailLocal, core.FailOpen, core.FailClosed} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs := &flaky{Full: core.NewMemoryStore()}
				l := newLimiter(t, core.InFlight(1), core.WithStore(logs), core.WithFailure(policy))
				logs.down(false)
				for range 3 {
					d, err := l.Allow(t.Context(), "k")
					if (err != nil) != (policy == core.FailClosed) {
						t.Errorf("%v, %v", d, err)
					}
					defer d.Release(t.Context())
					if policy == core.FailLocal {
						allowed(t, l, "k", false)
						release(t, d)
					}
				}
				logs.up()
				time.Sleep(5 * time.Second)
				if n := slotsIn(t, logs.Full, core.InFlight(1)); n != 0 {
					t.Errorf("%d slots are left behind", n)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A slot that was taken while the store did not answer once is in the store soon, and once, whether the store has
// executed that call or not.
func TestSlotOfOneLostAnswer(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			logs := &flaky{Full: core.NewMemoryStore()}
			l := newLimiter(t, core.InFlight(3), core.WithStore(logs))
			logs.down(lost)
			d := allowed(t, l, "k", true)
			logs.up()
			time.Sleep(3 * time.Second)
			if n := slotsIn(t, logs.Full, core.InFlight(3)); n != 1 || !d.Degraded {
				t.Errorf("lost %t: the store counts %d slots; %v", lost, n, d)
			}
			release(t, d)
			if n := slotsIn(t, logs.Full, core.InFlight(3)); n != 0 {
				t.Errorf("lost %t: %d slots are left behind", lost, n)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Slots are renewed although a renewal fails now and then.
func TestRenewalsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := &flaky{Full: core.NewMemoryStore()}
		l := newLimiter(t, core.InFlight(1).Lease(3*time.Second), core.WithStore(logs))
		d := allowed(t, l, "k", true)
		for range 20 {
			time.Sleep(900 * time.Millisecond)
			logs.down(true)
			time.Sleep(200 * time.Millisecond) // a renewal is due
			logs.up()
			time.Sleep(900 * time.Millisecond)
			if n := slotsIn(t, logs.Full, core.InFlight(1).Lease(3*time.Second)); n != 1 {
				t.Fatal("the slot is lost")
			}
		}
		release(t, d)
		if n := slotsIn(t, logs.Full, core.InFlight(1)); n != 0 {
			t.Errorf("%d slots are left behind", n)
		}
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A store that is silent for more than a third of a lease keeps the slots, whenever that begins.
func TestSlotsOverSilence(t *testing.T) {
	for begin := 100 * time.Millisecond; begin < 4*time.Second; begin += 300 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			logs, limit := &flaky{Full: core.NewMemoryStore()}, core.InFlight(1).Lease(12*time.Second)
			l := newLimiter(t, limit, core.WithStore(logs))
			d := allowed(t, l, "k", true)
			time.Sleep(begin)
			logs.down(true)
			for range 50 { // requests open the breaker
				time.Sleep(100 * time.Millisecond)
				allowed(t, l, "k", false)
			}
			logs.up()
			for range 120 {
				time.Sleep(100 * time.Millisecond)
				if n := slotsIn(t, logs.Full, limit); n != 1 {
					t.Errorf("silent from %v on: the slot is lost", begin)
					break
				}
			}
			release(t, d)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A store that loses its logs has all slots again after a third of a lease, those beyond the quota included. Then
// nobody is admitted until fewer requests run than there are slots.
func TestSlotsThatAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs, limit := &flaky{Full: core.NewMemoryStore()}, core.InFlight(2).Lease(3*time.Second)
		var limiters []*core.Limiter
		for range 3 {
			limiters = append(limiters, newLimiter(t, limit, core.WithStore(logs), core.WithName("p")))
		}
		old := []core.Decision{allowed(t, limiters[0], "k", true), allowed(t, limiters[1], "k", true)}
		logs.Full = core.NewMemoryStore()
		young := []core.Decision{allowed(t, limiters[2], "k", true), allowed(t, limiters[1], "k", true)}
		time.Sleep(time.Second + time.Millisecond)
		denied := func() {
			t.Helper()
			for _, l := range limiters {
				allowed(t, l, "k", false)
			}
		}
		denied()
		for _, d := range young {
			release(t, d)
			denied()
		}
		release(t, old[0])
		defer release(t, allowed(t, limiters[2], "k", true))
		denied()
		release(t, old[1])
	})
}

// A process whose requests hold all slots denies at once when the store has lost them, and takes no units.
func TestSlotsThatAreLostOfOneProcess(t *testing.T) {
	for _, window := range []core.Limit{core.PerHour(9), core.PerHour(9).With(core.FixedWindow)} {
		synctest.Test(t, func(t *testing.T) {
			logs := &flaky{Full: core.NewMemoryStore()}
			l := newLimiter(t, core.Limits{window, core.InFlight(2)}, core.WithStore(logs))
			defer release(t, allowed(t, l, "k", true))
			d := allowed(t, l, "k", true)
			logs.Full = core.NewMemoryStore()
			lost := allowed(t, l, "k", false)
			if lost.Granted != 0 || lost.RetryAfter != 0 || lost.Remaining != 0 || l.Stats().InFlight != 2 ||
				strings.Join(lost.Violated, "") != "2-in-flight" {
				t.Errorf("%+v", lost)
			}
			states := lost.Limits()
			if states[0].ResetAfter != 0 || states[1].Used != 2 || !states[1].Denies || states[0].Denies {
				t.Errorf("%+v", states)
			}
			if d, err := l.Peek(t.Context(), "k"); err != nil || d.Used != 0 && window == core.PerHour(9) {
				t.Errorf("%+v, %v: units were taken", d, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if d, err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v, %v", d, err)
			}
			release(t, d)
			release(t, allowed(t, l, "k", true))
		})
	}
}

// deafSettler is a store that may not take units back.
type deafSettler struct {
	store.Full

	deaf atomic.Bool
}

func (s *deafSettler) Settle(ctx context.Context, settlement store.Settlement) error {
	if s.deaf.Load() {
		return errDown
	}
	return s.Full.Settle(ctx, settlement)
}

// Units of a request that is denied for a lost slot are given back later if the store does not answer.
func TestUnitsBesideALostSlotAreGivenBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := &deafSettler{Full: core.NewMemoryStore()}
		l := newLimiter(t, core.Limits{core.PerHour(9), core.InFlight(1)}, core.WithStore(logs))
		d := allowed(t, l, "k", true)
		logs.Full = core.NewMemoryStore()
		logs.deaf.Store(true)
		allowed(t, l, "k", false)
		logs.deaf.Store(false)
		time.Sleep(5 * time.Second)
		if d, err := l.Peek(t.Context(), "k"); err != nil || d.Limits()[0].Used != 0 {
			t.Errorf("%+v, %v: a denied request is counted", d.Limits(), err)
		}
		release(t, d)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// slowSettler is a store that takes a second to give units back.
type slowSettler struct{ store.Full }

func (s slowSettler) Settle(ctx context.Context, settlement store.Settlement) error {
	time.Sleep(time.Second)
	return s.Full.Settle(ctx, settlement)
}

// A call that waits for units gets those that a denial for a lost slot has given back.
func TestUnitsBesideALostSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := &flaky{Full: core.NewMemoryStore()}
		l := newLimiter(t, core.Limits{core.PerHour(1).By(core.Global()), core.InFlight(1)}, core.WithStore(logs),
			core.WithTimeout(time.Minute))
		d := allowed(t, l, "k", true)
		logs.Full = slowSettler{core.NewMemoryStore()}
		go allowed(t, l, "k", false)
		synctest.Wait()
		begun := time.Now()
		other, err := l.Wait(t.Context(), "other")
		if took := time.Since(begun); err != nil || took > 2*time.Second {
			t.Errorf("waited for %v, %v", took, err)
		}
		release(t, d)
		release(t, other)
	})
}
