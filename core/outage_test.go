package core_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
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

// Clients that were denied, and clients that have used up their quota, stay denied when the store fails, however many
// they are.
func TestDenialsHoldWhileTheStoreIsAway(t *testing.T) {
	for _, c := range []struct {
		desc    string
		clients int
		tries   int
		options []core.Option
	}{
		{"denied", 1000, 3, nil},
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
