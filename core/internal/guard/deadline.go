package guard

import (
	"context"
	"sync/atomic"
	"time"
)

// deadlines makes contexts that end after a timeout, whatever becomes of the request. Contexts made at about the same
// time share a deadline and its timer: each lasts at least fifteen sixteenths of the timeout, and never longer than it.
type deadlines struct {
	timeout time.Duration
	latest  atomic.Pointer[deadline]
}

type deadline struct {
	end  time.Time
	done chan struct{}
}

// Within returns a context for all calls of one decision. It has the values of ctx, but not its deadline.
func (d *deadlines) Within(ctx context.Context, now time.Time) context.Context {
	last := d.latest.Load()
	if last == nil || last.end.Sub(now) < d.timeout-d.timeout/16 {
		next := &deadline{end: now.Add(d.timeout), done: make(chan struct{})}
		if d.latest.CompareAndSwap(last, next) {
			last = next
			time.AfterFunc(d.timeout, func() { close(next.done) })
		} else {
			last = d.latest.Load()
		}
	}
	return bounded{last, ctx}
}

// bounded is a context that ends at a deadline and has the values of another context.
type bounded struct {
	*deadline
	values context.Context
}

func (b bounded) Deadline() (time.Time, bool) { return b.end, true }
func (b bounded) Done() <-chan struct{}       { return b.done }
func (b bounded) Value(key any) any           { return b.values.Value(key) }

func (b bounded) Err() error {
	select {
	case <-b.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
