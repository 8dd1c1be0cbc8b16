package echolimit

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// request shows an echo.Context to core.
type request struct{ c echo.Context }

func (q request) Context() context.Context    { return q.c.Request().Context() }
func (q request) Peer() adapter.Peer          { return adapter.PeerOf(q.c.Request()) }
func (q request) Header(name string) []string { return q.c.Request().Header.Values(name) }
func (q request) Native() any                 { return q.c }
func (q request) Value(key any) any {
	name, _ := key.(string)
	return cmp.Or(q.c.Get(name), q.c.Request().Context().Value(key))
}

func (q request) SetContext(ctx context.Context) { q.c.SetRequest(q.c.Request().WithContext(ctx)) }

func (q request) Target() adapter.Target {
	t, route := adapter.TargetOf(q.c.Request()), q.c.Path()
	if t.AnyEnd = route == ""; t.AnyEnd { // it has not been routed yet: RemoveTrailingSlash may follow
		route = routeOf(q.c)
	}
	t.RawPath = adapter.RestOfPath(route, t.RawPath, q.c.Request().URL)
	// RemoveTrailingSlash of Use, where it comes too late for the router, may have been in front.
	t.AnyRest = strings.HasSuffix(q.c.Path(), "*") && q.c.Param("*") == ""
	return t
}

// routeOf returns the route that will serve a request, as far as is known before it is routed.
func routeOf(c echo.Context) string {
	e, r := c.Echo(), c.Request()
	own, router := e.AcquireContext(), e.Router()
	defer e.ReleaseContext(own)
	if its := e.Routers()[r.Host]; its != nil {
		router = its
	}
	own.Reset(r, nil)
	router.Find(r.Method, echo.GetPath(r), own)
	return own.Path()
}

// refuse answers with status unless the handler has written or returns an error of its own. For
// d.Err() and cause, which it may return, it answers as without the handler.
func refuse(c echo.Context, status int, cause error, handler func() error) error {
	c.Response().Status = status
	err := handler()
	switch {
	case adapter.IsRefusal[*echo.HTTPError, *core.LimitedError](err, cause):
		return answerError(c, err)
	case err != nil || c.Response().Committed:
		return err
	}
	return c.NoContent(c.Response().Status)
}

func answerDenied(c echo.Context, d core.Decision) error { return answer(c, d.Problem(), d.Err) }
func answerError(c echo.Context, err error) error {
	return answer(c, core.ProblemOf(err), func() error { return err })
}

// answer writes the problem document, unless the application answers errors itself. It never does both:
// after an error the Timeout middleware drops what was written.
func answer(c echo.Context, p adapter.Problem, cause func() error) error {
	switch e := c.Echo(); {
	case c.Response().Committed:
		return nil
	case reflect.ValueOf(e.HTTPErrorHandler).Pointer() != reflect.ValueOf(e.DefaultHTTPErrorHandler).Pointer():
		p.SetRetryAfter(c.Response().Header())
		return &echo.HTTPError{Code: p.Status, Message: p.Title, Internal: cause()}
	}
	if p.AnswerRPC(c.Response(), c.Request()) {
		return nil
	}
	p.SetHeaders(c.Response().Header())
	c.Blob(p.Status, adapter.ProblemType, p.JSON()) // an error only says that the client is gone
	return nil
}

// serve runs the handler. The status of an error is known when the error handler writes it.
func serve(next echo.HandlerFunc, c echo.Context, d core.Decision) (err error) {
	if ctx, asked := d.Context(c.Request().Context()); asked {
		c.SetRequest(c.Request().WithContext(ctx))
	}
	seen := d.Response()
	if seen == nil {
		d.Serve(func() int { err = next(c); return 0 })
		return err
	}
	response := c.Response()
	if c.Request().Header.Get("Upgrade") != "" { // echo's response does not tell when it is hijacked
		w := response.Writer
		response.Writer = seen.Upgrade(w)
		defer func() { response.Writer = w }()
	}
	serving := true
	response.Before(func() {
		if serving {
			seen.Sent(response.Status)
		}
	})
	d.Serve(func() int {
		err = next(c)
		serving = false
		r := c.Response() // a handler may have put another one in its place
		switch {
		case r.Committed && r.Status >= http.StatusOK: // after a 103 echo sends no other, and net/http sends 200
			return r.Status
		case err != nil && !r.Committed:
			r.Before(func() { seen.Sent(r.Status) }) // only now, so that the inner limiter asks first
			return 0
		}
		return http.StatusOK
	})
	return err
}
