package adapter

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// StatusClientClosedRequest is the status of a request whose client left before the response: nginx logs 499 for the
// same. It is never sent to anybody.
const StatusClientClosedRequest = 499

// Response finds out the status of a response for core.WithRefund. A client that disconnects before the response makes
// many handlers fail, a proxy with 502, for example. So that clients cannot get refunds by disconnecting, the status is
// [StatusClientClosedRequest] if the request's context was canceled before anything was sent, unless the handler has
// chosen a status below 500.
type Response struct {
	request Request
	ctx     context.Context // of the limiter: inner middleware may give the request one that it cancels itself

	mu     sync.Mutex
	status int   // what was sent, or 0
	gone   bool  // the client had left by then, or when the handler ended
	asks   Asker // is set when the handler has ended, until Sent
}

// Asker gets the status of a response.
type Asker interface{ Status(status int) }

// Init prepares a zero Response for a request that is about to be served.
func (r *Response) Init(of Request) { r.request, r.ctx = of, of.Context() }

// Copied is called before the request is served if handlers get a copy of it, for the callback to get that as well.
func (r *Response) Copied(to Request) { r.request = to }

// Request returns the request.
func (r *Response) Request() Request { return r.request }

// Context returns the context that the request had when it was about to be served.
func (r *Response) Context() context.Context { return r.ctx }

// Sent is called when the response's header goes out, before the client can have any of it. The first status counts;
// those from 100 to 199 do not, except 101, which a connection that is taken over has as well. Call it while the
// handler runs, also if the handler panics afterwards. If the framework chooses the status after the middleware has
// ended, call it then.
func (r *Response) Sent(status int) {
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	r.mu.Lock()
	if r.status == 0 {
		if r.asks == nil { // afterwards, outer middleware may have canceled the context
			r.gone = r.left()
		}
		r.status = r.seen(status)
	}
	asks, status := r.asks, r.status
	r.asks = nil
	r.mu.Unlock()
	if asks != nil {
		asks.Status(status)
	}
}

// End is called when the handler has ended. It passes the status to asks, now or, if the status is not known yet, when
// Sent is called. status is what the handler has returned, or 0; returned is false if it has panicked.
func (r *Response) End(status int, returned bool, asks Asker) {
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
		r.asks, asks = asks, nil
	}
	status = r.status
	r.mu.Unlock()
	if asks != nil {
		asks.Status(status)
	}
}

// seen is the status that the callback gets.
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
