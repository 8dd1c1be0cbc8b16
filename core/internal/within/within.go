// Package within has the context of a decision. It ends at an instant, and makes the channel and the timer for that
// only when somebody asks for them: most decisions are made long before.
package within

import (
	"context"
	"sync"
	"time"
)

// Context ends at its deadline, or with Cancel, but not when the context ends whose values it has.
type Context struct {
	values context.Context //nolint:containedctx // it is one
	lasts  time.Duration
	ends   time.Time

	mu    sync.Mutex
	done  chan struct{} // or nil
	timer *time.Timer   // which closes it
	err   error
}

// New returns a context with the values of another one, which ends after a time.
func New(values context.Context, d time.Duration) *Context {
	return &Context{values: values, lasts: d, ends: time.Now().Add(d)}
}

// Began returns when it was made.
func (c *Context) Began() time.Time { return c.ends.Add(-c.lasts) }

// Deadline implements [context.Context].
func (c *Context) Deadline() (time.Time, bool) { return c.ends, true }

// Value implements [context.Context].
func (c *Context) Value(key any) any { return c.values.Value(key) }

// Done implements [context.Context].
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		} else {
			c.timer = time.AfterFunc(time.Until(c.ends), func() { c.end(context.DeadlineExceeded) })
		}
	}
	return c.done
}

// Err implements [context.Context].
func (c *Context) Err() error {
	if c.mu.Lock(); c.err != nil || time.Now().Before(c.ends) {
		defer c.mu.Unlock()
		return c.err
	}
	c.mu.Unlock()
	c.end(context.DeadlineExceeded)
	return context.DeadlineExceeded
}

// Cancel ends the context, if it has not ended.
func (c *Context) Cancel() { c.end(context.Canceled) }

func (c *Context) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
		c.timer.Stop()
	}
}
