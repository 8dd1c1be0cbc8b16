// Package ginlimit is sash for gin: exact sliding-window rate limiting as one line of middleware.
//
//	r.Use(ginlimit.New(core.PerMinute(100), core.ByIP()))
package ginlimit

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// New makes middleware from a policy (how much is allowed), a key (whose quota it is) and options. Callbacks take a
// *gin.Context.
//
// It panics on a wrong configuration and lists every mistake, because a program that runs without its limits is worse.
// [core.New] returns them as an error.
func New(p core.Policy, k core.Key, opts ...core.Option) gin.HandlerFunc {
	return From(adapter.Must(core.NewFor[*gin.Context](p, k, opts...)))
}

// From makes middleware from a limiter of [core.New]. It panics if the limiter's callbacks are written for another
// framework.
func From(l *core.Limiter) gin.HandlerFunc {
	deny, fail := adapter.Bound(core.Bind[*gin.Context](l, answerDenied, answerError))
	return func(c *gin.Context) {
		own := c.Request
		defer func() { adapter.PassBack(own, c.Request) }()
		h := c.Writer.Header()
		d, err := l.Check(request{c})
		d.SetHeaders(h)
		switch {
		case err != nil:
			refuse(c, core.ProblemOf(err).Status, func() { fail(c, err) })
		case !d.Allowed:
			refuse(c, http.StatusTooManyRequests, func() { deny(c, d) })
		default:
			serve(c, &d)
		}
	}
}

// WithDeny answers denied requests instead of the problem document. The header fields are set already, and so is the
// status, 429, unless the handler writes another. The request has been aborted, so c.Next does nothing. A panic goes
// on to gin.Recovery, and http.ErrAbortHandler to the server.
func WithDeny(f func(*gin.Context, core.Decision)) core.Option { return core.OnDeny[*gin.Context](f) }

// WithError answers requests that could not be decided: no key, no store. A handler that writes no status answers with
// the status of [core.ProblemOf]. Do not send the error's text to clients.
func WithError(f func(*gin.Context, error)) core.Option { return core.OnError[*gin.Context](f) }

// ByRoute is the pattern of the request's route, such as "/users/:id", without the method. Requests that match no route
// share one key.
func ByRoute() core.Key {
	return core.By(func(c *gin.Context) (string, error) { return "route " + c.FullPath(), nil })
}

// Rules makes middleware that limits requests by the rules of a file. set is a *rules.Set of package rules. The options
// are [WithDeny], [WithError] and [core.WithHeaders]. It panics on a wrong option, and if set is nil.
func Rules(set core.RuleSet, opts ...core.Option) gin.HandlerFunc {
	return From(core.LimiterOf(set, opts...))
}

// Explain returns what the rules of a set do with a request: set is a *rules.Set, and E is rules.Explanation.
func Explain[E any](set adapter.Explainer[E], c *gin.Context) E { return set.Explain(request{c}) }
