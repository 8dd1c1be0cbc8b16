// Package chilimit is sash for chi v5: exact sliding-window rate limiting as one line of middleware.
//
//	r.Use(chilimit.New(core.PerMinute(100), core.ByIP()))
//
// chi uses net/http, so this is package nethttp with one more key: [ByRoute].
package chilimit

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/nethttp"
)

// New makes middleware from a policy (how much is allowed), a key (whose quota it is) and options. Callbacks take an
// *http.Request. It panics on a wrong configuration, with every mistake listed; see [nethttp.New].
func New(p core.Policy, k core.Key, opts ...core.Option) func(http.Handler) http.Handler {
	return nethttp.New(p, k, opts...)
}

// From makes middleware from a limiter of [core.New]. It panics if the limiter's callbacks are written for another
// framework.
func From(l *core.Limiter) func(http.Handler) http.Handler { return nethttp.From(l) }

// WithDeny answers denied requests instead of the problem document; see [nethttp.WithDeny].
func WithDeny(f func(http.ResponseWriter, *http.Request, core.Decision)) core.Option {
	return nethttp.WithDeny(f)
}

// WithError answers requests that could not be decided; see [nethttp.WithError].
func WithError(f func(http.ResponseWriter, *http.Request, error)) core.Option {
	return nethttp.WithError(f)
}

var errNoRoute = &adapter.ConstantError{Err: &core.ConfigError{
	Option:  "chilimit.ByRoute",
	Problem: "the route is not known yet, because middleware of Use runs before routing",
	Remedy:  "mount the limiter with With, as in r.With(limit).Get(pattern, handler)",
}}

// ByRoute is the pattern of the request's route, such as "/users/{id}", without the method. chi sets it in time where
// the limiter is mounted with With on the route itself:
//
//	r.With(chilimit.New(core.PerMinute(10), chilimit.ByRoute())).Get("/users/{id}", show)
//
// Under Use the pattern is not set yet: every request is refused (500), and the log has the reason. The same holds for
// Use of a router within a router, where the pattern is that of the mount.
func ByRoute() core.Key {
	return core.By(func(r *http.Request) (string, error) {
		c := chi.RouteContext(r.Context())
		pattern := c.RoutePattern()
		if pattern == "" || isMount(c, r) && !isRoute(c, r) {
			return "", errNoRoute
		}
		return "route " + pattern, nil
	})
}

// Rules makes middleware that limits requests by the rules of a file. set is a *rules.Set of package rules. The options
// are [WithDeny], [WithError] and [core.WithHeaders]. It panics on a wrong option, and if set is nil.
//
// chi's CleanPath, StripSlashes and URLFormat may be in front of it or behind it: a path is matched as it was sent, and
// as each of them may leave it for the router. Other middleware that rewrites paths has to be in front.
func Rules(set core.RuleSet, opts ...core.Option) func(http.Handler) http.Handler {
	l := core.LimiterOf(set, opts...)
	return nethttp.FromRequest(l, func(r *http.Request) adapter.Targeter { return request{r} })
}

// Explain returns what the rules of a set do with a request: set is a *rules.Set, and E is rules.Explanation.
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
