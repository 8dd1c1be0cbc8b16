// Package echolimit is sash for echo v5: exact sliding-window rate limiting as one line of middleware.
//
//	e.Use(echolimit.New(core.PerMinute(100), core.ByIP()))
//
// It is a module of its own, whose major version is echo's.
package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// New makes middleware from a policy (how much is allowed), a key (whose quota it is) and options. Callbacks take an
// *echo.Context. It panics on a wrong configuration, because a program that runs without its limits is worse.
func New(p core.Policy, k core.Key, opts ...core.Option) echo.MiddlewareFunc {
	return From(adapter.Must(core.NewFor[*echo.Context](p, k, opts...)))
}

// From makes middleware from a limiter of [core.New]. A refusal is returned as an *echo.HTTPError around its cause,
// such as [*core.LimitedError], for an HTTPErrorHandler of your own to answer. Where the handler is one of
// [echo.DefaultHTTPErrorHandler], the problem document is written and nil returned. It panics on callbacks for another
// framework.
func From(l *core.Limiter) echo.MiddlewareFunc {
	deny, fail := adapter.Bound(core.Bind[*echo.Context](l, answerDenied, answerError))
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			own := c.Request()
			defer func() { adapter.PassBack(own, c.Request()) }()
			h := c.Response().Header()
			d, err := l.Check(request{c})
			d.SetHeaders(h)
			switch {
			case err != nil:
				return refuse(c, core.ProblemOf(err).Status, err, func() error { return fail(c, err) })
			case !d.Allowed:
				return refuse(c, http.StatusTooManyRequests, nil, func() error { return deny(c, d) })
			}
			return serve(next, c, d)
		}
	}
}

// WithDeny answers denied requests instead of the problem document. Header fields and status (429) are set
// already. A handler that returns [core.Decision.Err] leaves the answer to the limiter. A panic goes on to
// echo's Recover, and http.ErrAbortHandler to the server.
func WithDeny(f func(*echo.Context, core.Decision) error) core.Option {
	return core.OnDeny[*echo.Context](f)
}

// WithError answers requests that could not be decided: no key, no store. A handler that writes no status answers with
// the status of [core.ProblemOf], and one that returns its error leaves the answer to the limiter. Do not send the
// error's text to clients.
func WithError(f func(*echo.Context, error) error) core.Option { return core.OnError[*echo.Context](f) }

// ByRoute is the pattern of the request's route, such as "/users/:id", without the method. Requests that
// match none share one key, and so do all under Echo.Pre, which runs before routing.
func ByRoute() core.Key {
	return core.By(func(c *echo.Context) (string, error) { return "route " + c.Path(), nil })
}

// Rules makes middleware that limits requests by the rules of a file. set is a *rules.Set of package rules. The options
// are [WithDeny], [WithError] and [core.WithHeaders]. It panics on a wrong option, and if set is nil.
func Rules(set core.RuleSet, opts ...core.Option) echo.MiddlewareFunc {
	return From(core.LimiterOf(set, opts...))
}

// Explain returns what the rules of a set do with a request: set is a *rules.Set, and E is rules.Explanation.
func Explain[E any](set adapter.Explainer[E], c *echo.Context) E { return set.Explain(request{c}) }
