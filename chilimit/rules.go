package chilimit

import (
	"context"
	"net/http"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/nethttp"
)

// Rules limits what the handlers behind it serve by the rules of a file. set is a *rules.Set of package rules. The
// options are [WithDeny], [WithError] and [core.WithHeaders]. It panics on a wrong option, and if set is nil.
//
// chi's CleanPath, StripSlashes and URLFormat may be in front of it or behind it: a path is matched as it was sent, and
// as each of them may leave it for the router. Other middleware that rewrites paths has to be in front.
func Rules(set core.RuleSet, opts ...core.Option) func(http.Handler) http.Handler {
	l := core.LimiterOf(set, opts...)
	return nethttp.FromRequest(l, func(r *http.Request) adapter.Request { return request{r} })
}

// Explain tells what the rules of a set say about a request: set is a *rules.Set, and E is rules.Explanation.
func Explain[E any](set adapter.Explainer[E], r *http.Request) E { return set.Explain(request{r}) }

// request shows a request of chi to core.
type request struct{ r *http.Request }

func (q request) Context() context.Context    { return q.r.Context() }
func (q request) Peer() adapter.Peer          { return adapter.PeerOf(q.r) }
func (q request) Header(name string) []string { return q.r.Header.Values(name) }
func (q request) Value(key any) any           { return q.r.Context().Value(key) }
func (q request) Native() any                 { return q.r }

func (q request) Target() adapter.Target {
	t := adapter.TargetOf(q.r)
	t.Routed, t.AnyEnd = routed(q.r), true
	return t
}
