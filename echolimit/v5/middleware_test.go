package echolimit_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/echolimit/v5"
)

// outside is echo's middleware that may stand in front of the limiter.
var outside = map[string]echo.MiddlewareFunc{
	"nothing":              func(next echo.HandlerFunc) echo.HandlerFunc { return next },
	"ContextTimeout":       middleware.ContextTimeout(time.Hour),
	"Recover":              middleware.Recover(),
	"Gzip":                 middleware.Gzip(),
	"Gzip of long answers": middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1 << 10}),
	"BodyDump":             middleware.BodyDump(func(*echo.Context, []byte, []byte, error) {}),
	"BodyLimit":            middleware.BodyLimit(1 << 20),
	"CORS":                 middleware.CORS("*"),
	"RequestID":            middleware.RequestID(),
	"Secure":               middleware.Secure(),
	"Logger": middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
		HandleError:   true,
		LogValuesFunc: func(*echo.Context, middleware.RequestLoggerValues) error { return nil },
	}),
}

// getCompressed is get for a client that accepts gzip.
func getCompressed(t *testing.T, h http.Handler, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := get(h, "/", append(header, "Accept-Encoding", "gzip")...)
	if w.Header().Get("Content-Encoding") == "gzip" {
		r, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		w.Body = new(bytes.Buffer)
		if _, err := w.Body.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// With any middleware in front of the limiter a refusal reaches the client: as the problem document, or as the
// application's error handler writes it.
func TestRefusalsBehindMiddleware(t *testing.T) {
	const denied = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Quota Exceeded","status":429,` +
		`"detail":"Try again in 60 seconds.","violated-policies":["1-per-minute"]}`
	const noKey = `{"type":"about:blank","title":"Bad Request","status":400,` +
		`"detail":"The request does not identify whose quota it uses."}`
	for name, outer := range outside {
		for _, own := range []bool{false, true} {
			e := echo.New()
			committed := 0
			var seen error
			if own {
				e.HTTPErrorHandler = func(c *echo.Context, err error) {
					if isCommitted(c) {
						committed++
						return
					}
					he, ok := err.(*echo.HTTPError) //nolint:errorlint // as most error handlers look for it
					if !ok {
						he = echo.NewHTTPError(500, "")
					}
					seen = err
					c.String(he.Code, "central")
				}
			}
			e.Use(outer, echolimit.New(core.PerMinute(1), core.ByHeader("X-API-Key", core.Unverified)))
			e.GET("/", served)
			for i, c := range []struct {
				header []string
				status int
				body   string
				is     func(error) bool
			}{
				{[]string{"X-API-Key", "a"}, 200, "served", nil},
				{[]string{"X-API-Key", "a"}, 429, denied, func(err error) bool {
					return errors.As(err, new(*core.LimitedError))
				}},
				{nil, 400, noKey, func(err error) bool { return errors.Is(err, core.ErrNoKey) }},
			} {
				seen = nil
				kind := adapter.ProblemType
				if own {
					kind = "text/plain; charset=UTF-8"
					if c.is != nil {
						c.body = "central"
					}
				}
				w := getCompressed(t, e, c.header...)
				if w.Code != c.status || w.Body.String() != c.body {
					t.Errorf("%s, own handler %v: request %d: status %d, body %q; want %d, %q",
						name, own, i+1, w.Code, w.Body, c.status, c.body)
				}
				if got := w.Header().Get("Content-Type"); c.is != nil && got != kind {
					t.Errorf("%s, own handler %v: request %d: Content-Type %q, want %q", name, own, i+1, got, kind)
				}
				if own && c.is != nil && !c.is(seen) {
					t.Errorf("%s: request %d: the error handler sees %v", name, i+1, seen)
				}
				if retry := w.Header().Get("Retry-After"); (retry == "60") != (c.status == 429) {
					t.Errorf("%s, own handler %v: request %d: Retry-After %q", name, own, i+1, retry)
				}
			}
			// echo's Logger calls the error handler itself and returns the error as well.
			if own && name != "Logger" && committed > 0 {
				t.Errorf("%s: %d times something was written before the error handler", name, committed)
			}
		}
	}
}

// WithRefund gets the status that the client gets, with echo's middleware in front of the limiter and behind it.
func TestRefundsAndMiddleware(t *testing.T) {
	plain := errors.New("plain")
	for name, m := range outside {
		for _, behind := range []bool{false, true} {
			late := 500
			if name == "ContextTimeout" {
				late = 503
			}
			for _, c := range []struct {
				desc    string
				handler echo.HandlerFunc
				status  int
			}{
				{"a body", served, 200},
				{"an empty body", func(c *echo.Context) error { return c.NoContent(204) }, 204},
				{"much", func(c *echo.Context) error { return c.String(404, strings.Repeat("x", 1<<16)) }, 404},
				{"an HTTPError", func(*echo.Context) error { return errTeapot }, 418},
				{"a plain error", func(*echo.Context) error { return plain }, 500},
				{"the context's error", func(*echo.Context) error { return context.DeadlineExceeded }, late},
			} {
				asked := make(chan int, 9)
				refund := core.WithRefund(func(_ context.Context, status int) bool {
					asked <- status
					return true
				})
				limit := echolimit.New(core.PerMinute(9), core.ByIP(), refund)
				e := echo.New()
				e.Logger = slog.New(slog.DiscardHandler)
				if behind {
					e.Use(limit, m)
				} else {
					e.Use(m, limit)
				}
				e.GET("/", c.handler)
				w := getCompressed(t, e)
				close(asked)
				if got := <-asked; w.Code != c.status || got != c.status || len(asked) > 0 {
					t.Errorf("%s, behind %v: %s: status %d, asked about %d and %d more; want %d",
						name, behind, c.desc, w.Code, got, len(asked), c.status)
				}
			}
		}
	}
}

// A timeout of the server's is not taken for a client that has gone.
func TestRefundTimedOut(t *testing.T) {
	for _, behind := range []bool{false, true} {
		var asked []int
		refund := core.WithRefund(func(_ context.Context, status int) bool {
			asked = append(asked, status)
			return true
		})
		limit := echolimit.New(core.PerMinute(9), core.ByIP(), refund)
		timeout := middleware.ContextTimeout(time.Nanosecond)
		e := echo.New()
		if behind {
			e.Use(limit, timeout)
		} else {
			e.Use(timeout, limit)
		}
		e.GET("/", func(c *echo.Context) error {
			ctx := c.Request().Context()
			<-ctx.Done()
			return ctx.Err()
		})
		if w := get(e, "/"); w.Code != 503 || !slices.Equal(asked, []int{503}) {
			t.Errorf("behind %v: status %d, asked about %v; want 503", behind, w.Code, asked)
		}
	}
}
