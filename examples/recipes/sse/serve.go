// Package sse limits server-sent events.
package sse

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// New returns a handler that sends events as JSON, which has no line breaks: so no event can contain another one, or a
// field such as retry. The request has paid for the first event, and each further one takes the same again.
func New(limits core.Policy, key core.Key, events func(*http.Request) iter.Seq[any]) http.Handler {
	limit := nethttp.New(limits, key, core.WithName("events"), core.WithDecisionInContext())
	return limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		request, _ := core.DecisionFrom(r.Context())
		paid := true
		for event := range events(r) {
			if !paid && !admit(r.Context(), w, request) {
				return
			}
			paid = false
			text, err := json.Marshal(event)
			if err != nil {
				slog.ErrorContext(r.Context(), "an event cannot be sent", "error", err)
				return
			}
			fmt.Fprintf(w, "data: %s\n\n", text)
			if http.NewResponseController(w).Flush() != nil {
				return // the client has gone
			}
		}
	}))
}

// admit takes for one more event what the request has taken. If there is no room, the stream ends: a browser connects
// again by itself after the milliseconds that retry says.
func admit(ctx context.Context, w http.ResponseWriter, request core.Decision) (ok bool) {
	event, err := request.Again(ctx) // WaitAgain would slow the stream down instead
	if err != nil {
		slog.ErrorContext(ctx, "a stream ends", "error", err)
		return false
	}
	if !event.Allowed {
		wait := (event.RetryAfter + time.Millisecond - 1).Milliseconds()
		fmt.Fprintf(w, "retry: %d\nevent: limited\ndata: %d\n\n", wait, wait)
	}
	return event.Allowed
}
