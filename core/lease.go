package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// WithLease books units ahead where a key has many requests: this process then decides by itself, in some hundred
// nanoseconds, until the lease ends after d, or until its units are used up. Processes that share a log still never
// exceed a quota together. d is 5ms to 1s; 20ms is good. It should be at least four round trips to the store, and at
// most a fiftieth of the shortest window.
//
// Only keys with twelve or more requests in d get leases, and none where little of a quota remains. The price is that a
// unit comes back up to d later than it would, that booked units which are not used are missing to other processes
// until d has passed, and that those of a process that was killed are missing for a window and d. Retry-After and the
// reset count booked units as used, and are up to d longer. A denial is remembered for at most d ([WithDenyCache]).
//
// The process ends a lease by its monotonic clock and by its wall clock, whichever comes first. If all clocks of a
// process stop, as of a virtual machine that is paused, it may use what is left of its leases when it goes on.
//
// Leases are for keys with many requests. With a thousand keys that are all asked evenly by 64 and 256 goroutines,
// measured beside the same limiter without leases, no key had enough requests for a lease of 20ms, and the speed was
// about the same. With 100ms, most were served by leases, at some 30 times the speed. In between, with 40ms, checks
// were up to 7 percent slower. A limiter with leases takes half a megabyte more.
//
// A lease is of one key and its limits. A request that it cannot serve ends it, as [Limiter.Record] and [Limiter.Reset]
// do. Limits of [WithShadow] are asked about each request, so there are no leases with it, and with [WithBan] each
// request still asks whether there is a ban. The store must be able to book (store.Leaser), as those of redisstore are,
// and all limits must be sliding logs.
//
// All processes that share a log must run this version before the first of them uses leases.
func WithLease(d time.Duration) Option {
	wrong := fault{"the time is out of range", "choose 5ms to 1s; 20ms is good"}
	return onceWithin("WithLease", d, 5*time.Millisecond, store.LongestLease, wrong, func(c *config) {
		c.guard.Lease = d.Truncate(time.Microsecond)
	})
}

// cannotLease returns an error if the store cannot book.
func (c *config) cannotLease() error {
	if _, leases := c.store.(store.Leaser); leases || c.guard.Lease == 0 {
		return nil
	}
	return configError("WithLease", fmt.Sprintf("%T", c.store),
		"this store cannot book units ahead: it has no method Book (store.Leaser)",
		"leave the option out, or use another store, such as redisstore.New(client)")
}

// unleasable returns an error if the limits of a plan are not all sliding logs.
func (c *config) unleasable(p *plan.Plan) error {
	if c.guard.Lease == 0 {
		return nil
	}
	n := slices.IndexFunc(p.All(), func(l plan.Limit) bool { return l.InFlight || !l.KeepsEntries() })
	if n < 0 {
		return nil
	}
	return configError("WithLease", p.All()[n].Text, "only units of sliding logs can be booked ahead",
		"leave the option out, or give this limit to a limiter of its own")
}
