package echolimit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/echolimit/v5"
)

func handler(text func() string, limiters []*core.Limiter, outer ...echo.MiddlewareFunc) http.Handler {
	e := app(limiters, outer)
	all := []string{"GET", "HEAD", "POST", "OPTIONS"}
	e.Match(all, "/*", func(c *echo.Context) error { return c.String(http.StatusOK, text()) })
	return e
}

func mount(next http.Handler, limiters []*core.Limiter, outer ...echo.MiddlewareFunc) http.Handler {
	e := app(limiters, outer)
	e.Any("/*", echo.WrapHandler(next))
	return e
}

func app(limiters []*core.Limiter, outer []echo.MiddlewareFunc) *echo.Echo {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(outer...)
	for _, l := range limiters {
		e.Use(echolimit.From(l))
	}
	return e
}

func TestAdapter(t *testing.T) {
	coretest.Adapter(t, coretest.AdapterConfig{
		Serve: func(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
			return coretest.HTTP1(t, handler(text, limiters))
		},
		HTTP2: func(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
			return coretest.HTTP2(t, handler(text, limiters))
		},
		Handler: func(next http.Handler, limiters ...*core.Limiter) http.Handler { return mount(next, limiters) },
	})
}

// Behind middleware that has a writer of its own the answers are the same, and so is what WithRefund and InFlight know.
func TestAdapterBehindAWriter(t *testing.T) {
	outer := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { c.SetResponse(unwrapped{c.Response()}); return next(c) }
	}
	coretest.Adapter(t, coretest.AdapterConfig{
		Serve: func(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
			return coretest.HTTP1(t, handler(text, limiters, outer))
		},
		Handler: func(next http.Handler, limiters ...*core.Limiter) http.Handler {
			return mount(next, limiters, outer)
		},
	})
}

func get(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// response returns echo's response behind the writers of middleware.
func response(c *echo.Context) *echo.Response {
	r, err := echo.UnwrapResponse(c.Response())
	if err != nil {
		panic(err)
	}
	return r
}

func isCommitted(c *echo.Context) bool { return response(c).Committed }

var errTeapot = echo.NewHTTPError(418, "I'm a teapot")

func served(c *echo.Context) error { return c.String(http.StatusOK, "served") }

func TestDenyHandlers(t *testing.T) {
	for _, c := range []struct {
		desc   string
		deny   func(*echo.Context, core.Decision) error
		status int
		body   string
	}{
		{"writes nothing", func(*echo.Context, core.Decision) error { return nil }, 429, ""},
		{"writes JSON", func(c *echo.Context, d core.Decision) error {
			return c.JSON(503, map[string]any{"wait": d.RetryAfter.Seconds() > 59})
		}, 503, "{\"wait\":true}\n"},
		{"sets a status", func(c *echo.Context, _ core.Decision) error {
			response(c).Status = 418
			return nil
		}, 418, ""},
		{"writes a body", func(c *echo.Context, _ core.Decision) error {
			_, err := c.Response().Write([]byte("slow down"))
			return err
		}, 429, "slow down"},
		{"returns an error", func(*echo.Context, core.Decision) error {
			return echo.NewHTTPError(420, "calm")
		}, 420, "{\"message\":\"calm\"}\n"},
	} {
		ran := 0
		e := echo.New()
		e.Use(echolimit.New(core.PerMinute(1), core.ByIP(), echolimit.WithDeny(c.deny)))
		e.GET("/", func(c *echo.Context) error { ran++; return served(c) })
		get(e, "/")
		w := get(e, "/")
		if w.Code != c.status || w.Body.String() != c.body || ran != 1 || w.Header().Get("Retry-After") != "60" {
			t.Errorf("%s: status %d, body %q, handler ran %d times, header %v", c.desc, w.Code, w.Body, ran, w.Header())
		}
	}
}

// A central error handler sees the decision, knows the status, and is alone to write.
func TestCentralErrorHandler(t *testing.T) {
	var seen error
	e := echo.New()
	e.HTTPErrorHandler = func(c *echo.Context, err error) {
		seen = err
		status := 500
		if he, ok := err.(*echo.HTTPError); ok { //nolint:errorlint // as most error handlers look for it
			status = he.Code
		}
		c.String(status, "central")
	}
	e.Use(echolimit.New(core.PerMinute(1), core.First(core.ByHeader("X-API-Key", core.Unverified))))
	e.GET("/", served)
	get(e, "/", "X-API-Key", "a")
	w := get(e, "/", "X-API-Key", "a")
	var limited *core.LimitedError
	if !errors.As(seen, &limited) || limited.Decision.Allowed || limited.Decision.RetryAfter == 0 {
		t.Errorf("it saw %v, want a LimitedError with its decision", seen)
	}
	if w.Code != 429 || w.Body.String() != "central" || w.Header().Get("Retry-After") != "60" {
		t.Errorf("status %d, body %q, header %v", w.Code, w.Body, w.Header())
	}
	if w := get(e, "/"); w.Code != 400 || !errors.Is(seen, core.ErrNoKey) {
		t.Errorf("no key: status %d, error %v", w.Code, seen)
	}
}

// Outer middleware sees the error that an error handler is to answer, and none where the answer is written.
func TestOuterMiddlewareSeesTheError(t *testing.T) {
	for _, own := range []bool{false, true} {
		var seen error
		e := echo.New()
		if own {
			e.HTTPErrorHandler = func(c *echo.Context, err error) { echo.DefaultHTTPErrorHandler(false)(c, err) }
		}
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error { seen = next(c); return seen }
		})
		e.Use(echolimit.New(core.PerMinute(1), core.ByIP()))
		e.GET("/", served)
		get(e, "/")
		w := get(e, "/")
		if errors.As(seen, new(*core.LimitedError)) != own || (seen == nil) == own || w.Code != 429 {
			t.Errorf("own handler %v: status %d, error %v", own, w.Code, seen)
		}
		if (w.Header().Get("Content-Type") == adapter.ProblemType) == own {
			t.Errorf("own handler %v: header %v", own, w.Header())
		}
	}
}

func TestErrorHandler(t *testing.T) {
	e := echo.New()
	e.Use(echolimit.New(core.PerMinute(1), core.ByHeader("X-API-Key", core.Unverified),
		echolimit.WithError(func(c *echo.Context, err error) error {
			return c.JSON(401, map[string]any{"error": core.ProblemOf(err).Title})
		})))
	e.GET("/", served)
	if w := get(e, "/"); w.Code != 401 || w.Body.String() != "{\"error\":\"Bad Request\"}\n" {
		t.Errorf("status %d, body %s", w.Code, w.Body)
	}
}

func TestCallbacksOfEcho(t *testing.T) {
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("user", c.Request().Header.Get("User"))
			return next(c)
		}
	})
	e.Use(echolimit.New(
		core.LimitBy(func(c *echo.Context) core.Limits {
			if c.Request().Header.Get("Plan") == "pro" {
				return core.Limits{core.PerMinute(20)}
			}
			return core.Limits{core.PerMinute(4)}
		}),
		core.First(
			core.ByValue("user"),
			core.By(func(c *echo.Context) (string, error) { return c.QueryParam("user"), nil }),
			core.ByIP(),
		),
		core.WithSkip(func(c *echo.Context) bool { return c.Path() == "/healthz" }),
		core.WithCost(func(c *echo.Context) int { return len(c.Request().Header["Unit"]) + 1 }),
	))
	e.GET("/", served)
	e.GET("/healthz", served)
	ask := func(want string, path string, header ...string) {
		t.Helper()
		if got := get(e, path, header...).Header().Get("RateLimit"); got != want {
			t.Errorf("%s %v: RateLimit %s, want %s", path, header, got, want)
		}
	}
	ask(`"4-per-minute";r=3;t=60`, "/", "User", "ann")
	ask(`"4-per-minute";r=3;t=60`, "/?user=bob")
	ask(`"4-per-minute";r=3;t=60`, "/")
	ask(``, "/healthz")
	ask(`"4-per-minute";r=1;t=60`, "/", "User", "ann", "Unit", "")
	ask(`"20-per-minute";r=16;t=60`, "/", "User", "ann", "Plan", "pro")
}

func TestByRoute(t *testing.T) {
	e := echo.New()
	e.Use(echolimit.New(core.PerMinute(2), echolimit.ByRoute()))
	e.GET("/users/:id", served)
	e.GET("/posts/:id", served)
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/users/1", 200}, {"/users/2", 200}, {"/users/3", 429}, {"/posts/1", 200},
		{"/nowhere", 404}, {"/elsewhere", 404}, {"/nothing", 429}, {"/posts/2", 200},
	} {
		if w := get(e, c.path); w.Code != c.status {
			t.Errorf("%s: status %d, want %d", c.path, w.Code, c.status)
		}
	}
}

func TestClientIP(t *testing.T) {
	serve := func(_ *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
		h := handler(text, limiters)
		return func(r *http.Request) *http.Response {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Result()
		}
	}
	coretest.ClientIP(t, serve)
}

type contextKey struct{}

// ByValue finds values that earlier middleware has set in echo's context or in the request's.
func TestByValue(t *testing.T) {
	for _, put := range []func(*echo.Context){
		func(c *echo.Context) { c.Set("user", "ann") },
		func(c *echo.Context) {
			c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), contextKey{}, "ann")))
		},
	} {
		e := echo.New()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error { put(c); return next(c) }
		})
		e.Use(echolimit.New(core.PerMinute(1), core.First(core.ByValue("user"), core.ByValue(contextKey{}))))
		e.GET("/", served)
		if first, second := get(e, "/"), get(e, "/"); first.Code != 200 || second.Code != 429 {
			t.Errorf("status %d, then %d", first.Code, second.Code)
		}
	}
}

// Mounted with Pre, rules see paths before middleware that removes slashes.
func TestRulesBeforeSlashesAreRemoved(t *testing.T) {
	set, err := rules.Parse([]byte("rules:\n- {name: a, match: {path: /login}, key: ip, limits: [5/day]}\n"), "a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.Pre(echolimit.Rules(set), middleware.RemoveTrailingSlash())
	e.GET("/login", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
	for _, path := range []string{"/login", "/login/"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK || w.Header().Get("RateLimit") == "" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}
