// Package fiberlimit is sash for fiber v3: exact sliding-window rate limiting as one line of middleware.
//
//	app.Use(fiberlimit.New(core.PerMinute(100), core.ByIP()))
//
// It is a module of its own, whose major version is fiber's. Requests of App.Test, which have no address, come from
// 192.0.2.1, as those of httptest.NewRequest do.
package fiberlimit

import (
	"github.com/gofiber/fiber/v3"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/fasthttpadapter"
)

// New makes middleware from a policy (how much is allowed), a key (whose quota it is) and options. Callbacks take a
// fiber.Ctx. It panics on a wrong configuration, because a program that runs without its limits is worse.
func New(p core.Policy, k core.Key, opts ...core.Option) fiber.Handler {
	return From(adapter.Must(core.NewFor[fiber.Ctx](p, k, opts...)))
}

// From makes middleware from a limiter of [core.New]. An ErrorHandler of the app's own gets a refusal as an error which
// is a *fiber.Error and its cause, such as [*core.LimitedError]; fiber's default would lose the problem document.
func From(l *core.Limiter) fiber.Handler {
	deny, fail := adapter.Bound(core.Bind[fiber.Ctx](l, answerDenied, answerError))
	return func(c fiber.Ctx) error {
		d, err := l.Check(request{c})
		d.SetHeaders(fasthttpadapter.Header{ResponseHeader: &c.Response().Header})
		switch {
		case err != nil:
			return refuse(c, l, core.ProblemOf(err).Status, err, func() error { return fail(c, err) })
		case !d.Allowed:
			return refuse(c, l, fiber.StatusTooManyRequests, nil, func() error { return deny(c, d) })
		}
		return serve(c, d)
	}
}

// WithDeny answers denied requests instead of the problem document. Header fields and status (429, unless the handler
// sets another) are set already. A handler that returns [core.Decision.Err] leaves the answer to the limiter. It
// must not call c.Next, which would serve the request: fiber gives no way to prevent that. A panic is answered with
// 500, http.ErrAbortHandler too, because fiber does not survive one.
func WithDeny(f func(fiber.Ctx, core.Decision) error) core.Option { return core.OnDeny[fiber.Ctx](f) }

// WithError answers requests that could not be decided: no key, no store. The status is the one of [core.ProblemOf],
// unless the handler sets another. One that returns its error leaves the answer to the limiter; a panic is answered as
// with [WithDeny]. Do not send the error's text to clients.
func WithError(f func(fiber.Ctx, error) error) core.Option { return core.OnError[fiber.Ctx](f) }

// ByRoute is the route's pattern, as in app.Get("/users/:id", limit, handler), without the method; under Use, the path
// given to Use.
func ByRoute() core.Key {
	return core.By(func(c fiber.Ctx) (string, error) { return "route " + c.Route().Path, nil })
}

// Rules makes middleware that limits requests by the rules of a file. set is a *rules.Set of package rules. The options
// are [WithDeny], [WithError] and [core.WithHeaders]. It panics on a wrong option, and if set is nil.
func Rules(set core.RuleSet, opts ...core.Option) fiber.Handler {
	return From(core.LimiterOf(set, opts...))
}

// Explain returns what the rules of a set do with a request: set is a *rules.Set, and E is rules.Explanation.
func Explain[E any](set adapter.Explainer[E], c fiber.Ctx) E { return set.Explain(request{c}) }
