package core

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/sashlimit/sash/core/internal/inflight"
)

// StatusClientClosedRequest is the status that [WithRefund] is asked about where the client left before the
// response: nginx logs 499 for the same. It is never sent to anybody.
const StatusClientClosedRequest = 499

// Response is for adapters: it learns the status of a response that [WithRefund] asks about. A client that leaves
// before the response makes many handlers fail, a proxy with 502, say. So that it cannot bring about
// a refund by leaving, the status is [StatusClientClosedRequest] if the request's context was canceled before
// anything was sent, unless the handler has chosen a status below 500.
//
// Where a framework's contexts do not tell that a client has left, an adapter's [Request] has a method Gone() bool,
// which is asked instead.
type Response struct {
	request Request
	ctx     context.Context // of the limiter: inner middleware may give the request one that it cancels itself

	mu      sync.Mutex
	status  int       // what was sent, or 0
	gone    bool      // the client had left by then, or when the handler ended
	pending *Decision // served, and waits for Sent
}

func newResponse(r Request) *Response { return &Response{request: r, ctx: r.Context()} }

// Response is for adapters: it is nil unless somebody asks for the status.
func (d *Decision) Response() *Response { return d.response }

// Serve is for adapters: it runs the handler of an allowed request. It must be called for every one that
// [Limiter.Check] has allowed. handler returns the response's status, or 0 if that is not known yet: then
// [Response.Sent] tells it later. A panic is status 500 where Sent has not been called.
func (d *Decision) Serve(handler func() (status int)) {
	status, returned := 0, false
	defer func() {
		if d.token != (inflight.Token{}) {
			d.limiter.inFlight.Release(d.token)
		}
		if d.response != nil {
			d.response.served(d, status, returned)
		}
	}()
	status = handler()
	returned = true
}

// Sent is for adapters: it is called when the response's header goes out, before the client can have any of it. The
// first status counts; those from 100 to 199 do not, except 101, which is that of a connection taken over as well. Call
// it while the handler runs, also where the handler panics afterwards, or, if the framework chooses
// the status after the middleware has ended, then.
func (r *Response) Sent(status int) {
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	r.mu.Lock()
	if r.status == 0 {
		if r.pending == nil { // afterwards, outer middleware may have canceled the context
			r.gone = r.left()
		}
		r.status = r.seen(status)
	}
	d, status := r.pending, r.status
	r.pending = nil
	r.mu.Unlock()
	if d != nil {
		d.limiter.refund(d, status)
	}
}

// served asks about the status, or waits for it.
func (r *Response) served(d *Decision, status int, returned bool) {
	r.mu.Lock()
	if r.status == 0 {
		r.gone = r.left()
	}
	switch {
	case r.status != 0:
	case !returned:
		r.status = r.seen(http.StatusInternalServerError)
	case status == http.StatusOK && r.gone: // of a handler that has written nothing
		r.status = StatusClientClosedRequest
	case status != 0:
		r.status = r.seen(status)
	default:
		later := *d
		r.pending = &later
	}
	status, pending := r.status, r.pending != nil
	r.mu.Unlock()
	if !pending {
		d.limiter.refund(d, status)
	}
}

// seen is what the callback is told of status.
func (r *Response) seen(status int) int {
	if status >= http.StatusInternalServerError && r.gone {
		return StatusClientClosedRequest
	}
	return status
}

func (r *Response) left() bool {
	if request, ok := r.request.(interface{ Gone() bool }); ok {
		return request.Gone()
	}
	return errors.Is(r.ctx.Err(), context.Canceled)
}
