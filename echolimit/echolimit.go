// Package echolimit is sash for echo v4: exact sliding-window rate limiting as
// one line of middleware.
//
//	e.Use(echolimit.New(core.PerMinute(100), core.ByIP()))
package echolimit

import (
	"net/http"
	"reflect"

	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/core"
)

// New limits what the handlers behind it serve: how much, whose, and options by name. Callbacks take an
// echo.Context. It panics on a wrong configuration: a program that runs without its limits is worse.
func New(p core.Policy, k core.Key, opts ...core.Option) echo.MiddlewareFunc {
	l, err := core.NewFor[echo.Context](p, k, opts...)
	if err != nil {
		panic(err)
	}
	return From(l)
}

// From is New for a limiter of [core.New]. A refusal is returned as an *echo.HTTPError around
// its cause, such as [*core.LimitedError], for an HTTPErrorHandler of your own to answer. With echo's
// default handler the problem document is written already. It panics on callbacks for another framework.
func From(l *core.Limiter) echo.MiddlewareFunc {
	deny, fail, err := core.Bind[echo.Context](l, answerDenied, answerError)
	if err != nil {
		panic(err)
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			h := c.Response().Header()
			d, err := l.Check(request{c}, h)
			d.SetHeaders(h)
			switch {
			case err != nil:
				c.Response().Status = core.ProblemOf(err).Status
				return finish(c, fail(c, err))
			case !d.Allowed:
				c.Response().Status = http.StatusTooManyRequests
				return finish(c, deny(c, d))
			}
			return serve(next, c, d)
		}
	}
}

// WithDeny answers denied requests instead of the problem document. Header fields and status (429) are set already.
func WithDeny(f func(echo.Context, core.Decision) error) core.Option {
	return core.OnDeny[echo.Context](f)
}

// WithError answers requests that could not be decided: no key, no store. A handler that
// writes no status answers with that of [core.ProblemOf]. Keep the error's text from clients.
func WithError(f func(echo.Context, error) error) core.Option { return core.OnError[echo.Context](f) }

// ByRoute is the pattern of the request's route, such as "/users/:id". Requests that
// match none share one key, and so do all under Echo.Pre, which runs before routing.
func ByRoute() core.Key {
	return core.By(func(c echo.Context) (string, error) { return "route " + c.Path(), nil })
}

func answerDenied(c echo.Context, d core.Decision) error { return answer(c, d.Problem(), d.Err()) }
func answerError(c echo.Context, err error) error        { return answer(c, core.ProblemOf(err), err) }
func answer(c echo.Context, p core.Problem, cause error) error {
	p.SetHeaders(c.Response().Header())
	if e := c.Echo(); reflect.ValueOf(e.HTTPErrorHandler).Pointer() == reflect.ValueOf(e.DefaultHTTPErrorHandler).Pointer() {
		c.Blob(p.Status, core.ProblemType, p.JSON()) // an error only says that the client is gone
	}
	return &echo.HTTPError{Code: p.Status, Message: p.Title, Internal: cause}
}

// finish answers with the status that is set, unless a handler has written or returned an error.
func finish(c echo.Context, err error) error {
	if err != nil || c.Response().Committed {
		return err
	}
	return c.NoContent(c.Response().Status)
}
