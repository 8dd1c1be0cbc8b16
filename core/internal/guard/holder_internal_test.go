package guard

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/lease"
	"github.com/sashlimit/sash/core/store"
)

// A lease ends when the monotonic or the wall clock has reached its end, however the other one is set or stands still.
// Moving the instant from which the monotonic clock counts moves that clock against the wall clock.
func TestEitherClockEndsALease(t *testing.T) {
	defer func(start time.Time) { processStart = start }(processStart)
	const d = 100 * time.Millisecond
	for _, c := range []struct {
		name    string
		passed  time.Duration // by the wall clock
		ahead   time.Duration // by which the monotonic clock has gone on for longer
		isSpent bool
	}{
		{"both before the end", d / 2, 0, true},
		{"wall clock set back", 0, d, false},
		{"wall clock set back, before the end", 0, d / 2, true},
		{"wall clock set forward", d, -d, false},
		{"both at the end", d, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &holder{lease: &Lease{Lease: lease.New(5, instant().End(d))}}
			time.Sleep(c.passed)
			processStart = processStart.Add(-c.ahead)
			if u := h.spend(&store.Take{Cost: 1}, new(store.Answer)); u.IsLeased() != c.isSpent {
				t.Errorf("%s: spent %v, want %v", c.name, u.IsLeased(), c.isSpent)
			}
		})
	}
}

type nobody struct{}

func (nobody) idle(*holder) {}

// A log gets a holder for what its requests are over several times the length of a lease, and not for a few that come
// together, unless these are many.
func TestDemand(t *testing.T) {
	for _, c := range []struct {
		name     string
		requests []int // in the time of a lease, then in the next one
		want     int   // when there is a holder, or -1
	}{
		{"steady", []int{7, 7, 7, 7, 7, 7, 7, 7, 7}, 7},
		{"busy", []int{24, 1}, 1},
		{"many at once", []int{0, sureDemand}, 1},
		{"some at once", []int{sureDemand - 1, 0, 0, 0, 3}, -1},
		{"a few", []int{4, 5, 4, 3, 4, 6, 4, 3, 5, 4, 4, 3, 5, 4, 4}, -1},
		{"a few, more for a moment", []int{2, 1, 2, 12, 1, 2, 2, 3, 1}, -1},
	} {
		ls, got := &leases{length: time.Second}, -1
		take := &store.Take{Key: store.NewKey("p", "k"), Plan: planOf(1000, time.Minute), Cost: 1}
		for period, n := range c.requests {
			for range n {
				h := ls.wanted(take, take.Key.Hash(), time.Duration(period)*ls.length, nobody{})
				if h != nil && got < 0 {
					got = period
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: a holder in the time of lease %d, want %d", c.name, got, c.want)
		}
	}
}

// booker is a store that books nothing.
type booker struct{ *faultyStore }

func (b booker) Book(ctx context.Context, _ store.Booking) (booked store.Booked, err error) {
	return booked, b.call(ctx, "book", func(fault) {})
}

// A holder is removed although its key is not asked for again, also one that was made while the store was away.
func TestHoldersEnd(t *testing.T) {
	for _, f := range []fault{answers, refuses} {
		synctest.Test(t, func(t *testing.T) {
			logs := newSharedLogs().connect()
			g := New(Config{Store: booker{logs}, Timeout: time.Second, LocalKeys: 100, Lease: 20 * time.Millisecond})
			defer g.Close()
			logs.down(f)
			plan, most := planOf(1000, time.Minute), int64(0)
			for i := range 200 {
				takes := []store.Take{{Key: store.NewKey("p", strconv.Itoa(i%4)), Plan: plan, Cost: 1}}
				g.TakeLeased(t.Context(), takes, make([]store.Answer, 1), make([]Use, 1))
				most = max(most, g.leases.count.Load())
				time.Sleep(100 * time.Microsecond)
			}
			logs.up(0)
			time.Sleep(time.Minute)
			if n := g.leases.count.Load(); n > 0 || most == 0 {
				t.Errorf("the store %v: %d holders, %d of them a minute later", f, most, n)
			}
		})
	}
}
