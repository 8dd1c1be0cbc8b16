package engine

import (
	"context"

	"github.com/sashlimit/sash/core/internal/permits"
	"github.com/sashlimit/sash/core/store"
)

// hold notes which permits a request has taken, until it is released. If requests of this process hold all of them
// already, the log has lost some, as in a Redis that was restarted: then the decision becomes a denial.
func (e *Engine) hold(ctx context.Context, r *Result) {
	var held []permits.Permit
	takes, _ := r.all()
	for i := range takes {
		if t := &takes[i]; t.Limit.Permits && t.Cost > 0 {
			held = append(held, permits.Permit{Key: t.Key.Clone(), Limit: t.Limit, ID: t.ID, Degraded: r.isLocal()})
		}
	}
	if held == nil {
		return
	}
	if r.held = e.store.permits.Hold(ctx, held); r.held == nil {
		e.denyHeld(ctx, r, held)
	}
}

// denyHeld makes r a denial, because requests of this process hold all permits. It gives back what was taken with them.
func (e *Engine) denyHeld(ctx context.Context, r *Result, held []permits.Permit) {
	for i := range r.Set.Limits {
		switch t, a := r.of(i); {
		case t == nil:
		case t.Limit.Permits:
			a.Used = max(a.Used, held[0].Taken)
			a.Allowed = a.Used < t.Limit.Quota
			held = held[1:]
		default:
			e.store.Settle(ctx, store.Settlement{ //nolint:errcheck // it is done later then
				Key: t.Key, Limit: t.Limit, ID: t.ID, Was: r.taken(t, a), Age: r.age(), Period: a.Period,
			}, r.isLocal())
			e.wake(&t.Key, t.Limit)
			if a.Used == 0 {
				a.Reset = 0
			}
		}
	}
	r.Allowed, r.Granted = false, 0
}

// Holds reports whether the request has permits, which are to be released.
func (r *Result) Holds() bool { return r.held != nil }

// Defer notes that the permits are not released when the handler ends, because what it has begun holds them still.
func (r *Result) Defer() { r.held.Deferred = true }

// IsDeferred reports whether there was a [Result.Defer].
func (r *Result) IsDeferred() bool { return r.held.Deferred }

// Release ends what the request holds: permits. It does so once, unless it fails.
func (r *Result) Release(ctx context.Context) error {
	if !r.Holds() {
		return nil
	}
	err := r.held.Release(ctx)
	for i := range r.held.Permits {
		p := &r.held.Permits[i]
		r.engine.wake(&p.Key, p.Limit)
	}
	return err
}

// ReleaseServed is Release for a request that has been served. The client may have left, so the request's context does
// not end it. The guard logs failures of the store, and the lease ends the permit.
func (r *Result) ReleaseServed() {
	r.Release(context.WithoutCancel(r.held.Context)) //nolint:errcheck // as above
}
