package echolimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/echolimit/v5"
)

// If a handler returns the refusal as an error, the limiter answers. Any other error goes to the error handler.
func TestHandlersReturnErrors(t *testing.T) {
	const deniedBody = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Quota Exceeded","status":429,` +
		`"detail":"Try again in 60 seconds.","violated-policies":["1-per-minute"]}`
	const noKeyBody = `{"type":"about:blank",` +
		`"title":"Bad Request","status":400,"detail":"The request does not identify whose quota it uses."}`
	const broken = "{\"message\":\"Internal Server Error\"}\n"
	errOwn := errors.New("own")
	for _, c := range []struct {
		desc    string
		deny    func(*echo.Context, core.Decision) error // of the second request, or
		fail    func(*echo.Context, error) error         // of one without a key
		status  int
		body    string // of the default error handler
		central string // of the application's
	}{
		{"d.Err()", func(_ *echo.Context, d core.Decision) error { return d.Err() },
			nil, 429, deniedBody, "central Quota Exceeded"},
		{"d.Err(), wrapped", func(_ *echo.Context, d core.Decision) error { return fmt.Errorf("denied: %w", d.Err()) },
			nil, 429, deniedBody, "central Quota Exceeded"},
		{"d.Err() after a body", func(c *echo.Context, d core.Decision) error {
			c.String(503, "slow down")
			return d.Err()
		}, nil, 503, "slow down", "slow down"},
		{"an HTTPError around d.Err()", func(_ *echo.Context, d core.Decision) error {
			return echo.NewHTTPError(420, "calm").Wrap(d.Err())
		}, nil, 420, "{\"message\":\"calm\"}\n", "central calm"},
		{"another error", func(*echo.Context, core.Decision) error { return errOwn }, nil, 500, broken, "central"},
		{"err", nil, func(_ *echo.Context, err error) error { return err }, 400, noKeyBody, "central Bad Request"},
		{"err, wrapped", nil, func(_ *echo.Context, err error) error { return fmt.Errorf("here: %w", err) },
			400, noKeyBody, "central Bad Request"},
		{"another error for err", nil, func(*echo.Context, error) error { return errOwn }, 500, broken, "central"},
	} {
		for name, outer := range outside {
			for _, own := range []bool{false, true} {
				body := c.body
				e := echo.New()
				if own {
					body = c.central
					e.HTTPErrorHandler = func(c *echo.Context, err error) {
						var he *echo.HTTPError
						switch {
						case isCommitted(c):
						case errors.As(err, &he):
							c.String(he.Code, fmt.Sprint("central ", he.Message))
						default:
							c.String(500, "central")
						}
					}
				}
				var opts []core.Option
				header := []string{"X-API-Key", "a"}
				if c.deny != nil {
					opts = append(opts, echolimit.WithDeny(c.deny))
				} else {
					opts, header = append(opts, echolimit.WithError(c.fail)), nil
				}
				e.Use(outer, echolimit.New(core.PerMinute(1), core.ByHeader("X-API-Key", core.Unverified), opts...))
				e.GET("/", served)
				get(e, "/", header...)
				if w := getCompressed(t, e, header...); w.Code != c.status || w.Body.String() != body {
					t.Errorf("%s behind %s, own handler %v: status %d, body %q; want %d, %q",
						c.desc, name, own, w.Code, w.Body, c.status, body)
				}
			}
		}
	}
}

// A panic in a handler of refusals is passed on to the middleware that recovers from it.
func TestRefusalPanics(t *testing.T) {
	for _, value := range []any{"boom", http.ErrAbortHandler} {
		e := echo.New()
		e.Use(echolimit.New(core.PerMinute(1), core.ByHeader("X-API-Key", core.Unverified),
			echolimit.WithError(func(*echo.Context, error) error { panic(value) })))
		e.GET("/", func(*echo.Context) error { t.Error("served"); return nil })
		func() {
			defer func() {
				if p := recover(); p != value {
					t.Errorf("recovered %v, want %v", p, value)
				}
			}()
			get(e, "/")
		}()
	}
}

// What a user writes is the answer to calls of gRPC as well: the limiter's handlers, and the application's own.
func TestHandlersAnswerCalls(t *testing.T) {
	deny := echolimit.WithDeny(func(c *echo.Context, _ core.Decision) error { return c.String(503, "denied") })
	for _, own := range []bool{false, true} {
		e := echo.New()
		denied := "503 denied"
		opts := []core.Option{deny}
		if own {
			opts, denied = nil, "429 central"
			e.HTTPErrorHandler = func(c *echo.Context, _ error) { c.String(429, "central") }
		}
		e.Use(echolimit.New(core.PerMinute(1), core.ByIP(), opts...))
		e.POST("/", func(c *echo.Context) error { return c.NoContent(200) })
		for _, want := range []string{"200 ", denied} {
			q := httptest.NewRequest(http.MethodPost, "/", nil)
			q.Header.Set("Content-Type", "application/grpc")
			w := httptest.NewRecorder()
			e.ServeHTTP(w, q)
			if got := fmt.Sprint(w.Code, " ", w.Body); got != want || w.Header().Get("Grpc-Status") != "" {
				t.Errorf("%q, header %v; want %q", got, w.Header(), want)
			}
		}
	}
}
