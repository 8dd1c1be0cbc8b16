package echolimit

import (
	"cmp"
	"context"
	"net/url"
	"reflect"
	"runtime"
	"strings"

	"github.com/labstack/echo/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// request shows an *echo.Context to core.
type request struct{ c *echo.Context }

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
	if t.RawPath != "" { // a router with UseEscapedPathForMatching reads the decoded path
		t.Routed = adapter.RestOfPath(route, "", &url.URL{Path: t.Path})
	}
	t.RawPath = adapter.RestOfPath(route, t.RawPath, q.c.Request().URL)
	// RemoveTrailingSlash of Use, where it comes too late for the router, may have been in front.
	t.AnyRest = strings.HasSuffix(q.c.Path(), "*") && q.c.Param("*") == ""
	return t
}

// routeOf returns the route that will serve a request, as far as is known before it is routed.
func routeOf(c *echo.Context) string {
	own := c.Echo().AcquireContext()
	defer c.Echo().ReleaseContext(own)
	own.Reset(c.Request(), nil)
	c.Echo().Router().Route(own)
	return own.Path()
}

// refuse answers with status unless the handler has written or returns an error of its own. For
// d.Err() and cause, which it may return, it answers as without the handler.
func refuse(c *echo.Context, status int, cause error, handler func() error) error {
	w, restore := watch(c)
	defer restore()
	w.setStatus(status)
	err := handler()
	switch {
	case adapter.IsRefusal[echo.HTTPStatusCoder, *core.LimitedError](err, cause):
		return answerError(c, err)
	case err != nil || isWritten(c):
		return err
	}
	return c.NoContent(w.implicit())
}

func answerDenied(c *echo.Context, d core.Decision) error { return answer(c, d.Problem(), d.Err) }
func answerError(c *echo.Context, err error) error {
	return answer(c, core.ProblemOf(err), func() error { return err })
}

// answer writes the problem document, unless the application answers errors itself. It never does both: an error
// handler would find an answer that is written already.
func answer(c *echo.Context, p adapter.Problem, cause func() error) error {
	switch {
	case isWritten(c):
		return nil
	case !isDefault(c.Echo().HTTPErrorHandler):
		p.SetRetryAfter(c.Response().Header())
		return echo.NewHTTPError(p.Status, p.Title).Wrap(cause())
	}
	if p.AnswerRPC(c.Response(), c.Request()) {
		return nil
	}
	p.SetHeaders(c.Response().Header())
	c.Blob(p.Status, adapter.ProblemType, p.JSON()) // an error only says that the client is gone
	return nil
}

// isDefault reports whether h is of echo.DefaultHTTPErrorHandler. The compiler makes another function for each call
// that it inlines. What they have in common is their place in echo's source.
func isDefault(h echo.HTTPErrorHandler) bool {
	entry := reflect.ValueOf(h).Pointer()
	if entry == defaultEntry {
		return true
	}
	f := runtime.FuncForPC(entry)
	if f == nil {
		return false
	}
	file, line := f.FileLine(entry)
	return file == defaultFile && line == defaultLine
}

var (
	defaultEntry             = reflect.ValueOf(echo.New().HTTPErrorHandler).Pointer()
	defaultFile, defaultLine = runtime.FuncForPC(defaultEntry).FileLine(defaultEntry)
)

// serve runs the handler. The status of an error is known when the error handler writes it.
func serve(next echo.HandlerFunc, c *echo.Context, d core.Decision) (err error) {
	if ctx, asked := d.Context(c.Request().Context()); asked {
		c.SetRequest(c.Request().WithContext(ctx))
	}
	seen := d.Response()
	if seen == nil {
		d.Serve(func() int { err = next(c); return 0 })
		return err
	}
	if c.Request().Header.Get("Upgrade") != "" { // a response does not tell when it is hijacked
		if r, _ := echo.UnwrapResponse(c.Response()); r != nil {
			w := r.ResponseWriter
			r.ResponseWriter = seen.Upgrade(w)
			defer func() { r.ResponseWriter = w }()
		}
	}
	w, restore := watch(c)
	if w.response == nil { // then the status of an error is that which the error handler writes to w
		w.sent, restore = seen.Sent, func() {}
	}
	defer restore()
	serving := true
	w.before(func(status int) {
		if serving {
			seen.Sent(status)
		}
	})
	d.Serve(func() int {
		err = next(c)
		serving = false
		status, known := w.answered(c)
		if known || err == nil {
			return status
		}
		w.before(seen.Sent) // only now, so that the inner limiter asks first
		return 0
	})
	return err
}
