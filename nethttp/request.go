package nethttp

import (
	"context"
	"net/http"

	"github.com/sashlimit/sash/core/adapter"
)

// request shows an *http.Request to core.
type request struct{ r *http.Request }

func (q request) Context() context.Context { return q.r.Context() }

func (q request) Peer() adapter.Peer { return adapter.PeerOf(q.r) }

func (q request) Header(name string) []string { return q.r.Header.Values(name) }

func (q request) Value(key any) any { return q.r.Context().Value(key) }

func (q request) Native() any { return q.r }

func (q request) Target() adapter.Target { return adapter.TargetOf(q.r) }

// keeper is a request whose context can be replaced.
type keeper struct {
	adapter.Request

	r *http.Request // the latest
}

func (k *keeper) Context() context.Context { return k.r.Context() }

func (k *keeper) Native() any { return k.r }

func (k *keeper) SetContext(ctx context.Context) { k.r = k.r.WithContext(ctx) }

// Target is not changed by the context.
func (k *keeper) Target() adapter.Target {
	if t, ok := k.Request.(adapter.Targeter); ok {
		return t.Target()
	}
	return adapter.TargetOf(k.r)
}
