//go:build next

package core_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/next/core"
)

// Calls that wait for a slot get it in order, at the instant when it is given back.
func TestWaitForSlot(t *testing.T) {
	for name := range slotStores() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				org := core.ByValue(orgKey{})
				for desc, limit := range map[string]core.Limit{
					"own": core.InFlight(1), "other": core.InFlight(1).By(org),
				} {
					l := newLimiterBy(t, core.Limits{limit, core.PerHour(100)}, core.Global(),
						core.WithStore(slotStores()[name]))
					ctx := inOrg(t.Context(), "acme")
					held, err := l.Allow(ctx, "k")
					if err != nil || !held.Allowed {
						t.Fatal(held, err)
					}
					type turn struct {
						n int
						d core.Decision
					}
					turns := make(chan turn, 5)
					for n := range 5 {
						go func() {
							d, err := l.Wait(ctx, "k")
							if err != nil || !d.Allowed {
								t.Error(d, err)
							}
							turns <- turn{n, d}
						}()
						synctest.Wait()
					}
					time.Sleep(10 * time.Second)
					for n := range 5 {
						if len(turns) > 0 {
							t.Fatalf("%s: a call was admitted while another holds the slot", desc)
						}
						before := time.Now()
						release(t, held)
						next := <-turns
						if next.n != n || time.Since(before) != 0 {
							t.Errorf("%s: call %d was admitted after %v, want %d at once",
								desc, next.n, time.Since(before), n)
						}
						held = next.d
						synctest.Wait()
					}
					release(t, held)
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// What another process gives back is seen within a second, and a wait ends with its context and takes nothing.
func TestWaitForSlotOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := core.NewMemoryStore()
		l := newLimiter(t, core.InFlight(1), core.WithStore(s))
		other := newLimiter(t, core.InFlight(1), core.WithStore(s))
		for _, after := range []time.Duration{time.Millisecond, time.Second, time.Minute} {
			held := allowed(t, other, "k", true)
			begun := time.Now()
			time.AfterFunc(after, func() { release(t, held) })
			d, err := l.Wait(t.Context(), "k")
			if late := time.Since(begun) - after; err != nil || !d.Allowed || late < 0 || late > time.Second {
				t.Errorf("%v, %v: admitted %v after the release", d, err, late)
			}
			release(t, d)
		}
		held := allowed(t, l, "k", true)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if d, err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || d.Allowed {
			t.Errorf("%v, %v", d, err)
		}
		release(t, held)
		if d, err := l.Peek(t.Context(), "k"); err != nil || d.Used != 0 {
			t.Errorf("%v, %v", d, err)
		}
	})
}

// A window that is full as well is waited for, and ends a wait that would be too long.
func TestWaitForSlotAndWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.Limits{core.InFlight(1), core.PerMinute(1)})
		held := allowed(t, l, "k", true)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		begun := time.Now()
		if d, err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 0 {
			t.Errorf("%v, %v after %v", d, err, time.Since(begun))
		}
		time.AfterFunc(time.Second, func() { release(t, held) })
		d, err := l.Wait(t.Context(), "k")
		if err != nil || !d.Allowed || time.Since(begun) != time.Minute {
			t.Errorf("%v, %v after %v", d, err, time.Since(begun))
		}
		release(t, d)
	})
}
