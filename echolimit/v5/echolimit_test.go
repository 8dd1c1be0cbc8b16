package echolimit_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/echolimit/v5"
)

// limited serves all paths behind limiters, and these behind other middleware.
func limited(serve echo.HandlerFunc, limiters []*core.Limiter, outer []echo.MiddlewareFunc) http.Handler {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(outer...)
	for _, l := range limiters {
		e.Use(echolimit.From(l))
	}
	e.Any("/*", serve)
	return e
}

// config is of the suite for apps with outer middleware.
func config(outer ...echo.MiddlewareFunc) coretest.AdapterConfig {
	return coretest.AdapterConfig{
		App: func(text func() string, limiters ...*core.Limiter) http.Handler {
			return limited(func(c *echo.Context) error { return c.String(http.StatusOK, text()) }, limiters, outer)
		},
		Handler: func(next http.Handler, limiters ...*core.Limiter) http.Handler {
			return limited(echo.WrapHandler(next), limiters, outer)
		},
	}
}

func TestAdapter(t *testing.T) { coretest.Adapter(t, config()) }

// unwrapped is a writer that leaves all but writing to http.ResponseController.
type unwrapped struct{ http.ResponseWriter }

func (w unwrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Behind middleware that has a writer of its own the answers are the same, and so is what WithRefund and InFlight know.
func TestAdapterBehindAWriter(t *testing.T) {
	coretest.Adapter(t, config(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { c.SetResponse(unwrapped{c.Response()}); return next(c) }
	}))
}

// response returns echo's response behind the writers of middleware.
func response(c *echo.Context) *echo.Response {
	r, err := echo.UnwrapResponse(c.Response())
	if err != nil {
		panic(err)
	}
	return r
}

// coded is an error with a status of its own.
type coded int

func (c coded) Error() string   { return "coded" }
func (c coded) StatusCode() int { return int(c) }

var errTeapot = echo.NewHTTPError(418, "I'm a teapot")

func get(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	return send(h, http.MethodGet, path, header...)
}

func send(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func served(c *echo.Context) error { return c.String(http.StatusOK, "served") }

type (
	handle = func(*echo.Context) error
	wrap   = coretest.Middleware[*echo.Context]
)

// plain returns echo's middleware with echo's types unnamed.
func plain(m echo.MiddlewareFunc) wrap { return func(next handle) handle { return m(next) } }

func serve(onError func(*echo.Context, error) error, handler handle, middleware ...wrap) http.Handler {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	if onError != nil {
		e.HTTPErrorHandler = func(c *echo.Context, err error) {
			if !response(c).Committed {
				onError(c, err)
			}
		}
	}
	for _, m := range middleware {
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc { return m(next) })
	}
	e.Any("/", handler)
	return e
}

func TestHandlers(t *testing.T) {
	message := func(text string) string { return "{\"message\":\"" + text + "\"}\n" }
	coretest.Handlers(t, coretest.HandlersConfig[*echo.Context]{
		App:       serve,
		New:       func(p core.Policy, k core.Key, opts ...core.Option) wrap { return plain(echolimit.New(p, k, opts...)) },
		From:      func(l *core.Limiter) wrap { return plain(echolimit.From(l)) },
		WithDeny:  echolimit.WithDeny,
		WithError: echolimit.WithError,
		Header:    func(c *echo.Context, name string) string { return c.Request().Header.Get(name) },
		SetStatus: func(c *echo.Context, status int) { response(c).Status = status },
		Write: func(c *echo.Context, text string) error {
			_, err := c.Response().Write([]byte(text))
			return err
		},
		Answer: func(c *echo.Context, status int, text string) error {
			if text == "" {
				return c.NoContent(status)
			}
			return c.String(status, text)
		},
		Set:        func(c *echo.Context, key string, value any) { c.Set(key, value) },
		Context:    func(c *echo.Context) context.Context { return c.Request().Context() },
		SetContext: func(c *echo.Context, ctx context.Context) { c.SetRequest(c.Request().WithContext(ctx)) },
		Error: func(status int, text string, cause error) error {
			if cause == nil {
				return echo.NewHTTPError(status, text)
			}
			return echo.NewHTTPError(status, text).Wrap(cause)
		},
		IsError: func(err error) (status int, text string, ok bool) {
			he, ok := err.(*echo.HTTPError) //nolint:errorlint // as most error handlers look for it
			if !ok {
				return 0, "", false
			}
			return he.Code, he.Message, true
		},
		Body:  func(_ int, text string) string { return message(text) },
		Plain: func(string) string { return message("Internal Server Error") },
		Late:  plain(middleware.ContextTimeout(time.Nanosecond)),
		Middleware: map[string]wrap{
			"ContextTimeout":       plain(middleware.ContextTimeout(time.Hour)),
			"Recover":              plain(middleware.Recover()),
			"Gzip":                 plain(middleware.Gzip()),
			"Gzip of long answers": plain(middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1 << 10})),
			"BodyDump":             plain(middleware.BodyDump(func(*echo.Context, []byte, []byte, error) {})),
			"BodyLimit":            plain(middleware.BodyLimit(1 << 20)),
			"CORS":                 plain(middleware.CORS("*")),
			"RequestID":            plain(middleware.RequestID()),
			"Secure":               plain(middleware.Secure()),
			"Logger": plain(middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
				HandleError:   true,
				LogValuesFunc: func(*echo.Context, middleware.RequestLoggerValues) error { return nil },
			})),
		},
		Refunds: []coretest.Refund[*echo.Context]{
			{Desc: "of net/http", Serve: echo.WrapHandler(http.NotFoundHandler()), Status: 404, Body: "404 page not found\n"},
			{Desc: "an HTTPError within", Serve: func(*echo.Context) error {
				return echo.NewHTTPError(500, "outer").Wrap(echo.ErrNotFound)
			}, Status: 500, Body: message("outer"), Err: echo.ErrNotFound},
			{Desc: "an error with a status", Serve: func(*echo.Context) error {
				return fmt.Errorf("here: %w", coded(451))
			}, Status: 451, Body: message("Unavailable For Legal Reasons"), Err: coded(451)},
			{Desc: "an error with status 0", Serve: func(*echo.Context) error { return coded(0) },
				Status: 500, Body: message("Internal Server Error"), Err: coded(0)},
			{Desc: "an error after the answer", Serve: func(c *echo.Context) error {
				c.String(201, "made")
				return io.EOF
			}, Status: 201, Body: "made", Err: io.EOF},
			{Desc: "an error that is answered already", Serve: func(c *echo.Context) error {
				c.Echo().HTTPErrorHandler(c, errTeapot)
				return errTeapot
			}, Status: 418, Body: message("I'm a teapot"), Err: errTeapot},
		},
	})
}
