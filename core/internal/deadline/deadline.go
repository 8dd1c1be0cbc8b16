// Package deadline makes contexts that end after a timeout, whatever becomes of the request. Time in which this process
// could not run does not count: an answer may have arrived in it that nobody could read.
package deadline

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Contexts made within this part of the timeout share a deadline. While there are calls, a tick in each such part
	// finds out whether this process runs.
	part = 16
	// If this process could not run for some time, a context lasts longer by patience times that: another goroutine may
	// wait longer than a tick did, and several times in one call.
	patience = 8
	// MaxStall is how much longer a context lasts at most.
	MaxStall = 5 * time.Second
	// maxStallOfOne is the same for one operation.
	maxStallOfOne = 2 * time.Second
	// punctual is how late a tick may be: some timers are a millisecond late on an idle machine.
	punctual = 2 * time.Millisecond
)

// Deadlines makes contexts with one timeout. Contexts made at about the same time share a deadline: if this process
// runs, each lasts at least fifteen sixteenths of the timeout, and never longer than it. A deadline for each context
// would double the time of a take on a store that answers at once, from 170 to 330 ns, and allocate twice more.
type Deadlines struct {
	// Round returns when goroutines have run that were ready. It is runtime.Gosched but in tests.
	Round func()

	timeout time.Duration
	onStall func(time.Duration)

	latest atomic.Pointer[deadline]
	calls  atomic.Int64 // in flight

	mu      sync.Mutex
	pending []*deadline
	timer   *time.Timer // runs tick, if there are pending deadlines
	due     time.Time   // when the next tick should end
	stalled time.Duration
	lately  time.Time // when stalled has last grown
}

// deadline ends at end, or later if Deadlines.stalled has grown since it was made.
type deadline struct {
	set    *Deadlines
	end    time.Time
	before time.Duration // Deadlines.stalled when it was made
	waits  int64         // it is later by so many times what stalled has grown
	most   time.Duration // but not by more than that
	done   chan struct{}
}

// New returns Deadlines of a timeout. If onStall is not nil, it is called when this process could not run for that long
// while there were calls.
func New(timeout time.Duration, onStall func(time.Duration)) *Deadlines {
	return &Deadlines{timeout: timeout, onStall: onStall, Round: runtime.Gosched}
}

// Begin notes that a call begins. While there are calls, contexts last longer if this process cannot run.
func (d *Deadlines) Begin() { d.calls.Add(1) }

// End notes that a call has ended.
func (d *Deadlines) End() { d.calls.Add(-1) }

// Within returns a context that has the values of ctx, but not its deadline.
func (d *Deadlines) Within(ctx context.Context, now time.Time) context.Context {
	latest := d.latest.Load()
	if latest == nil || latest.end.Sub(now) < d.timeout-d.timeout/part {
		latest = d.add(now)
	}
	return Context{deadline: latest, values: ctx}
}

// add makes a deadline, unless another goroutine has just made one.
func (d *Deadlines) add(now time.Time) *deadline {
	d.mu.Lock()
	defer d.mu.Unlock()
	if latest := d.latest.Load(); latest != nil && latest.end.Sub(now) >= d.timeout-d.timeout/part {
		return latest
	}
	next := &deadline{d, now.Add(d.timeout), d.stalledAt(now), patience, MaxStall, make(chan struct{})}
	d.latest.Store(next)
	d.pending = append(d.pending, next)
	if len(d.pending) == 1 || d.due.Sub(now) > d.timeout/part && d.timer.Stop() {
		d.due = now.Add(d.timeout / part)
		// A new one, because one that a testing/synctest bubble has made must not be used outside of it.
		d.timer = time.AfterFunc(d.timeout/part, d.tick)
	}
	return next
}

// stalledAt returns for how long this process could not run, up to now.
func (d *Deadlines) stalledAt(now time.Time) time.Duration {
	if late := now.Sub(d.due); late > punctual && len(d.pending) > 0 {
		return d.stalled + late
	}
	return d.stalled
}

// Stalled returns for how long this process could not run when it was to tick.
func (d *Deadlines) Stalled() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stalled
}

// tick lets ready goroutines run, and then ends the deadlines that are over. If there are calls, it comes again soon.
func (d *Deadlines) tick() {
	d.Round()
	d.mu.Lock()
	now := time.Now()
	before := d.stalled
	d.stalled = d.stalledAt(now)
	stalled := d.stalled - before
	if stalled > 0 {
		d.lately = now
	}
	next := d.timeout
	if latest := d.latest.Load(); d.calls.Load() > 0 || now.Sub(latest.end) < d.timeout/part-d.timeout {
		next = d.timeout / part
	}
	d.pending = slices.DeleteFunc(d.pending, func(pending *deadline) bool {
		remaining := d.remaining(pending, now)
		if remaining <= 0 {
			close(pending.done)
			return true
		}
		next = min(next, remaining)
		return false
	})
	if len(d.pending) > 0 {
		d.due = now.Add(next)
		d.timer.Reset(next)
	}
	d.mu.Unlock()
	if stalled >= d.timeout && d.calls.Load() > 0 && d.onStall != nil {
		d.onStall(stalled)
	}
}

// remaining returns how long a deadline lasts from now on, if this process runs.
func (d *Deadlines) remaining(pending *deadline, now time.Time) time.Duration {
	return pending.end.Sub(now) + min(time.Duration(pending.waits)*(d.stalledAt(now)-pending.before), pending.most)
}

// Context ends at a deadline and has the values of another context.
type Context struct {
	*deadline

	values context.Context
	again  bool
}

// Again returns a context as Within does, for a call that is made once more: an earlier one may have been executed.
func (d *Deadlines) Again(ctx context.Context, now time.Time) Context {
	c, _ := d.Within(ctx, now).(Context)
	c.again = true
	return c
}

// Repeated returns ctx for a call that is made once more within it.
func Repeated(ctx context.Context) context.Context {
	c, ok := ctx.(Context)
	if !ok {
		return ctx
	}
	c.again = true
	return c
}

// IsAgain reports whether ctx is of a call that is made once more.
func IsAgain(ctx context.Context) bool {
	c, ok := ctx.(Context)
	return ok && c.again
}

// Deadline returns when an operation has to end that begins now. If this process could not run since the context was
// made, an operation has a quarter of the timeout at least, and never more than the timeout: so a store that does not
// answer is found out as soon as otherwise.
func (c Context) Deadline() (time.Time, bool) {
	d := c.set
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now() // not before, as the lock may take long
	remaining := d.remaining(c.deadline, now)
	if now.Add(remaining).After(c.end) && c.Err() == nil {
		remaining = min(max(remaining, d.timeout/4), d.timeout)
	}
	return now.Add(remaining), true
}

// IsLate reports whether the context would have ended long ago if this process had run.
func (c Context) IsLate() bool { return time.Since(c.end) > c.set.timeout/4 }

// HasStalled reports whether this process could not run for some time since the context was made.
func (c Context) HasStalled() bool {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	return c.set.stalledAt(time.Now())-c.before > c.set.timeout/part
}

// Done is closed when the context ends.
func (c Context) Done() <-chan struct{} { return c.done }

// Value returns the value that the other context has for key.
func (c Context) Value(key any) any {
	if key == (contextKey{}) {
		return c
	}
	return c.values.Value(key)
}

type contextKey struct{}

// Stalls reports whether ctx is of a call and this process cannot run, or could not since shortly before the call.
func Stalls(ctx context.Context) bool {
	c, ok := ctx.(Context)
	if !ok {
		return false
	}
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	now := time.Now()
	return now.Sub(c.set.due) > punctual && len(c.set.pending) > 0 || now.Sub(c.set.lately) < c.set.timeout
}

// ForOne returns a context that ends as the Context does that ctx is or was made of, but waits for this process only as
// long as one operation may have to. It does not end when ctx is canceled. ok is false if there is no such Context.
func ForOne(ctx context.Context) (one Context, ok bool) {
	c, ok := ctx.Value(contextKey{}).(Context)
	if !ok {
		return c, false
	}
	d := c.set
	d.mu.Lock()
	defer d.mu.Unlock()
	next := &deadline{d, c.end, c.before, 1, maxStallOfOne, make(chan struct{})}
	if d.remaining(next, time.Now()) <= 0 {
		close(next.done)
	} else {
		d.pending = append(d.pending, next)
	}
	return Context{deadline: next, values: ctx}, true
}

// Without returns a context that does not end, with the values of ctx. ForOne finds no Context of it.
func Without(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), contextKey{}, nil)
}

// Err returns [context.DeadlineExceeded] when the context has ended.
func (c Context) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// EndsAfter reports whether c ends after other. Contexts that share a deadline end together.
func (c Context) EndsAfter(other Context) bool { return c.end.After(other.end) }
