// Package nethttp is sash for net/http: exact sliding-window rate limiting as one line of middleware.
//
//	http.ListenAndServe(":8080", nethttp.New(core.PerMinute(100), core.ByIP())(mux))
package nethttp

import (
	"net/http"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// New makes middleware from a policy (how much is allowed), a key (whose quota it is) and options. Callbacks take an
// *http.Request.
//
// It panics on a wrong configuration and lists every mistake, because a program that runs without its limits is worse.
// [core.New] returns them as an error.
func New(p core.Policy, k core.Key, opts ...core.Option) func(http.Handler) http.Handler {
	return From(adapter.Must(core.NewFor[*http.Request](p, k, opts...)))
}

// From makes middleware from a limiter of [core.New]. It panics if the limiter's callbacks are written for another
// framework.
func From(l *core.Limiter) func(http.Handler) http.Handler {
	return FromRequest(l, func(r *http.Request) adapter.Targeter { return request{r} })
}

// FromRequest is From for packages that adapt a router on net/http: of returns the request as the limiter reads it.
func FromRequest(l *core.Limiter, of func(*http.Request) adapter.Targeter) func(http.Handler) http.Handler {
	deny, fail := adapter.Bound(core.Bind[*http.Request](l, answerDenied, answerError))
	keeps := l.KeepsContext()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			own := r
			defer func() { adapter.PassBack(own, r) }()
			seen := of(r)
			var k *keeper
			if keeps {
				k = &keeper{seen, r}
				seen = k
			}
			d, err := l.Check(seen)
			if k != nil {
				r = k.r
			}
			d.SetHeaders(w.Header())
			switch {
			case err != nil:
				adapter.Refuse(w, core.ProblemOf(err).Status, func(w http.ResponseWriter) { fail(w, r, err) })
			case !d.Allowed:
				adapter.Refuse(w, http.StatusTooManyRequests, func(w http.ResponseWriter) { deny(w, r, d) })
			default:
				response := d.Response()
				if ctx, asked := d.Context(r.Context()); asked {
					if r = r.WithContext(ctx); response != nil {
						response.Copied(of(r))
					}
				}
				d.Serve(func() int { return serve(next, w, r, response) })
			}
		})
	}
}

// WithDeny answers denied requests instead of the problem document. The header fields are set already, and so is the
// status, 429, unless the handler writes another. A panic goes on to the server, as in any other handler.
func WithDeny(f func(http.ResponseWriter, *http.Request, core.Decision)) core.Option {
	return core.OnDeny[*http.Request](f)
}

// WithError answers requests that could not be decided: no key, no store. A handler that writes no status answers with
// the status of [core.ProblemOf]. Do not send the error's text to clients.
func WithError(f func(http.ResponseWriter, *http.Request, error)) core.Option {
	return core.OnError[*http.Request](f)
}

// Rules makes middleware that limits requests by the rules of a file. set is a *rules.Set of package rules. The options
// are [WithDeny], [WithError] and [core.WithHeaders]. It panics on a wrong option, and if set is nil.
func Rules(set core.RuleSet, opts ...core.Option) func(http.Handler) http.Handler {
	return From(core.LimiterOf(set, opts...))
}

// Explain returns what the rules of a set do with a request: set is a *rules.Set, and E is rules.Explanation.
func Explain[E any](set adapter.Explainer[E], r *http.Request) E {
	return set.Explain(request{r})
}
