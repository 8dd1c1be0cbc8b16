package echolimit_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/echolimit"
)

// limited serves all paths behind limiters.
func limited(serve echo.HandlerFunc, limiters []*core.Limiter) http.Handler {
	e := echo.New()
	for _, l := range limiters {
		e.Use(echolimit.From(l))
	}
	e.Any("/*", serve)
	return e
}

func TestAdapter(t *testing.T) {
	coretest.Adapter(t, coretest.AdapterConfig{
		App: func(text func() string, limiters ...*core.Limiter) http.Handler {
			return limited(func(c echo.Context) error { return c.String(http.StatusOK, text()) }, limiters)
		},
		Handler: func(next http.Handler, limiters ...*core.Limiter) http.Handler {
			return limited(echo.WrapHandler(next), limiters)
		},
	})
}

type (
	handle = func(echo.Context) error
	wrap   = coretest.Middleware[echo.Context]
)

// plain returns echo's middleware with echo's types unnamed.
func plain(m echo.MiddlewareFunc) wrap { return func(next handle) handle { return m(next) } }

func app(onError func(echo.Context, error) error, serve handle, middleware ...wrap) http.Handler {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	if onError != nil {
		e.HTTPErrorHandler = func(err error, c echo.Context) {
			if !c.Response().Committed {
				onError(c, err)
			}
		}
	}
	for _, m := range middleware {
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc { return m(next) })
	}
	e.Any("/", serve)
	return e
}

func TestHandlers(t *testing.T) {
	message := func(text string) string { return "{\"message\":\"" + text + "\"}\n" }
	coretest.Handlers(t, coretest.HandlersConfig[echo.Context]{
		App: app,
		New: func(p core.Policy, k core.Key, opts ...core.Option) wrap {
			return plain(echolimit.New(p, k, opts...))
		},
		From:      func(l *core.Limiter) wrap { return plain(echolimit.From(l)) },
		WithDeny:  echolimit.WithDeny,
		WithError: echolimit.WithError,
		Header:    func(c echo.Context, name string) string { return c.Request().Header.Get(name) },
		SetStatus: func(c echo.Context, status int) { c.Response().Status = status },
		Write: func(c echo.Context, text string) error {
			_, err := c.Response().Write([]byte(text))
			return err
		},
		Answer: func(c echo.Context, status int, text string) error {
			if text == "" {
				return c.NoContent(status)
			}
			return c.String(status, text)
		},
		Set:        func(c echo.Context, key string, value any) { c.Set(key, value) },
		Context:    func(c echo.Context) context.Context { return c.Request().Context() },
		SetContext: func(c echo.Context, ctx context.Context) { c.SetRequest(c.Request().WithContext(ctx)) },
		Error: func(status int, text string, cause error) error {
			return echo.NewHTTPError(status, text).SetInternal(cause)
		},
		IsError: func(err error) (status int, text string, ok bool) {
			he, ok := err.(*echo.HTTPError) //nolint:errorlint // as most error handlers look for it
			if !ok {
				return 0, "", false
			}
			return he.Code, he.Message.(string), true
		},
		Body:  func(_ int, text string) string { return message(text) },
		Plain: func(string) string { return message("Internal Server Error") },
		Late:  plain(middleware.ContextTimeout(time.Nanosecond)),
		Middleware: map[string]wrap{
			"Timeout":        plain(middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: time.Hour})),
			"ContextTimeout": plain(middleware.ContextTimeout(time.Hour)),
			"Recover":        plain(middleware.Recover()),
			"Gzip":           plain(middleware.Gzip()),
			"Logger":         plain(middleware.LoggerWithConfig(middleware.LoggerConfig{Output: io.Discard})),
		},
		Refunds: []coretest.Refund[echo.Context]{
			{
				Desc: "of net/http", Serve: echo.WrapHandler(http.NotFoundHandler()),
				Status: 404, Body: "404 page not found\n",
			},
			{Desc: "an HTTPError within", Serve: func(echo.Context) error {
				return &echo.HTTPError{Code: 500, Message: "outer", Internal: echo.ErrNotFound}
			}, Status: 404, Body: message("Not Found"), Err: echo.ErrNotFound},
			{Desc: "an error after the answer", Serve: func(c echo.Context) error {
				c.String(201, "made")
				return io.EOF
			}, Status: 201, Body: "made", Err: io.EOF},
			{Desc: "an error that is answered already", Serve: func(c echo.Context) error {
				c.Error(echo.ErrTeapot)
				return echo.ErrTeapot
			}, Status: 418, Body: message("I'm a teapot"), Err: echo.ErrTeapot},
		},
	})
}

// Mounted with Pre, rules see paths before middleware that removes slashes, and before the router.
func TestRulesBeforeSlashesAreRemoved(t *testing.T) {
	set, err := rules.Parse([]byte(`rules:
- {name: a, match: {path: /login}, key: ip, limits: [5/day]}
- {name: b, match: {path: "/users/{id}"}, key: ip, limits: [5/day]}`), "a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.Pre(echolimit.Rules(set), middleware.RemoveTrailingSlash())
	e.GET("/login", hello)
	e.GET("/users/:id", hello)
	for _, path := range []string{"/login", "/login/", "/users/7", "/users/7/%3F", "/users/7/8"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK || w.Header().Get("RateLimit") == "" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}
