package deadline_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/deadline"
)

const timeout = 100 * time.Millisecond

// stalling returns Deadlines of a process whose goroutines wait for so long before they run.
func stalling(stall time.Duration, onStall func(time.Duration)) (d *deadline.Deadlines, change func(time.Duration)) {
	var now atomic.Int64
	now.Store(int64(stall))
	d = deadline.New(timeout, onStall)
	d.Round = func() { time.Sleep(time.Duration(now.Load())) }
	return d, func(to time.Duration) { now.Store(int64(to)) }
}

// lasted waits for the context to end, and returns how long that took since begun.
func lasted(ctx context.Context, t *testing.T, begun time.Time) time.Duration {
	t.Helper()
	<-ctx.Done()
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("the context has ended with %v", ctx.Err())
	}
	return time.Since(begun)
}

func operation(ctx context.Context) time.Duration {
	end, _ := ctx.Deadline()
	return time.Until(end)
}

// While a process runs, contexts end after the timeout, whether there are calls or not.
func TestContextsEndAfterTheTimeout(t *testing.T) {
	for _, calls := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, _ := stalling(0, func(time.Duration) { t.Error("a stall") })
			if calls {
				d.Begin()
			}
			begun := time.Now()
			first := d.Within(t.Context(), begun)
			time.Sleep(timeout / 32)
			shared := d.Within(t.Context(), time.Now())
			time.Sleep(timeout / 2)
			second := time.Now()
			other := d.Within(t.Context(), second)
			if first.Done() != shared.Done() || first.Done() == other.Done() {
				t.Error("contexts share no deadline, or all do")
			}
			if first.Err() != nil || operation(first) != timeout-timeout/2-timeout/32 || operation(other) != timeout {
				t.Errorf("%v; operations have %v and %v", first.Err(), operation(first), operation(other))
			}
			if took := lasted(first, t, begun); took != timeout || operation(first) != 0 {
				t.Errorf("the first took %v, and has %v", took, operation(first))
			}
			if took := lasted(other, t, second); took != timeout || d.Stalled() != 0 {
				t.Errorf("the second took %v, %v stalled", took, d.Stalled())
			}
		})
	}
}

// A context does not end before what was ready has run. What begins late has time of its own, but never more than the
// timeout.
func TestProcessThatCannotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = time.Second
		told := 0
		d, change := stalling(stall, func(time.Duration) { told++ })
		d.Begin()
		begun := time.Now()
		ctx := d.Within(t.Context(), begun)
		if operation(ctx) != timeout {
			t.Errorf("the first operation has %v", operation(ctx))
		}
		time.Sleep(stall)
		if ctx.Err() != nil || operation(ctx) != timeout {
			t.Errorf("while nothing runs: %v, an operation has %v", ctx.Err(), operation(ctx))
		}
		change(0)
		// A tick was late by a second, so that another goroutine may wait for longer.
		if took := lasted(ctx, t, begun); took <= timeout+time.Second || took > timeout+deadline.MaxStall {
			t.Errorf("the context lasted %v", took)
		}
		if told != 1 || d.Stalled() != time.Second {
			t.Errorf("%d stalls, %v", told, d.Stalled())
		}
		begun = time.Now()
		if took := lasted(d.Within(t.Context(), begun), t, begun); took != timeout {
			t.Errorf("afterwards a context lasts %v", took)
		}
	})
}

// However long a process cannot run, a context ends.
func TestContextsEndAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 300 * time.Millisecond
		d, _ := stalling(stall, nil)
		d.Begin()
		begun := time.Now()
		ctx := d.Within(t.Context(), begun)
		if took := lasted(ctx, t, begun); took < deadline.MaxStall || took > timeout+deadline.MaxStall+2*stall {
			t.Errorf("the context lasted %v", took)
		}
		if operation(ctx) > 0 {
			t.Errorf("an operation has %v when the context has ended", operation(ctx))
		}
	})
}

// Limiters that are made outside of a bubble may be used inside, and outside again.
func TestInsideAndOutsideOfABubble(t *testing.T) {
	d := deadline.New(timeout, nil)
	synctest.Test(t, func(t *testing.T) {
		<-d.Within(t.Context(), time.Now()).Done()
	})
	<-d.Within(t.Context(), time.Now()).Done()
}
