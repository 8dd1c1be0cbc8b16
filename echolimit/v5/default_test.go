package echolimit_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/echolimit/v5"
)

//go:noinline
func notInlined(expose bool) echo.HTTPErrorHandler { return echo.DefaultHTTPErrorHandler(expose) }

type handlers struct{ last echo.HTTPErrorHandler }

var global = handlers{echo.DefaultHTTPErrorHandler(false)}

// Every handler of echo.DefaultHTTPErrorHandler is the default one, wherever it was made: the compiler makes a function
// of its own for each call that it inlines. No other handler is.
func TestDefaultErrorHandlers(t *testing.T) {
	indirect := echo.DefaultHTTPErrorHandler
	expose := strings.Contains(t.Name(), "Default")
	for desc, c := range map[string]struct {
		handler   echo.HTTPErrorHandler
		isDefault bool
	}{
		"New":                {echo.New().HTTPErrorHandler, true},
		"NewWithConfig":      {echo.NewWithConfig(echo.Config{}).HTTPErrorHandler, true},
		"made here":          {echo.DefaultHTTPErrorHandler(false), true},
		"exposing":           {echo.DefaultHTTPErrorHandler(true), true},
		"exposing, variable": {echo.DefaultHTTPErrorHandler(expose), true},
		"made elsewhere":     {notInlined(true), true},
		"by a variable":      {indirect(true), true},
		"global":             {global.last, true},
		"closure":            {func() echo.HTTPErrorHandler { return echo.DefaultHTTPErrorHandler(expose) }(), true},
		"around it": {func(c *echo.Context, err error) {
			echo.DefaultHTTPErrorHandler(false)(c, err)
		}, false},
		"own":    {func(c *echo.Context, _ error) { c.NoContent(http.StatusTooManyRequests) }, false},
		"method": {new(handlers).answer, false},
	} {
		e := echo.New()
		e.HTTPErrorHandler = c.handler
		e.Use(echolimit.New(core.PerMinute(1), core.ByIP()))
		e.GET("/", served)
		get(e, "/")
		w := get(e, "/")
		if problem := w.Header().Get("Content-Type") == adapter.ProblemType; w.Code != 429 || problem != c.isDefault {
			t.Errorf("%s: status %d, %s", desc, w.Code, w.Header().Get("Content-Type"))
		}
	}
}

func (h *handlers) answer(c *echo.Context, _ error) { c.NoContent(http.StatusTooManyRequests) }

// plainWriter is a writer of middleware that does not show what it wraps.
type plainWriter struct{ http.ResponseWriter }

// Where a writer does not show echo's response, the status is that which is written to it.
func TestRefundBehindAWriterThatHides(t *testing.T) {
	for desc, c := range map[string]struct {
		handler echo.HandlerFunc
		status  int
	}{
		"a body":   {served, 200},
		"nothing":  {func(*echo.Context) error { return nil }, 200},
		"404":      {func(c *echo.Context) error { return c.NoContent(404) }, 404},
		"an error": {func(*echo.Context) error { return echo.ErrNotFound }, 404},
		"net/http": {echo.WrapHandler(http.NotFoundHandler()), 404},
	} {
		var asked []int
		e := echo.New()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error { c.SetResponse(plainWriter{c.Response()}); return next(c) }
		})
		e.Use(echolimit.New(core.PerMinute(1), core.ByIP(), core.WithRefund(func(_ *echo.Context, status int) bool {
			asked = append(asked, status)
			return false
		})))
		e.GET("/", c.handler)
		if w := get(e, "/"); w.Code != c.status || len(asked) != 1 || asked[0] != c.status {
			t.Errorf("%s: status %d, asked about %v; want %d", desc, w.Code, asked, c.status)
		}
		if w := get(e, "/"); w.Code != 429 || !strings.Contains(w.Body.String(), "Quota Exceeded") {
			t.Errorf("%s: the denial has status %d, %s", desc, w.Code, w.Body)
		}
	}
}

// A handler may answer through a response of its own.
func TestRefundOfAResponseInItsPlace(t *testing.T) {
	var asked []int
	e := echo.New()
	e.Use(echolimit.New(core.PerMinute(9), core.ByIP(), core.WithRefund(func(_ *echo.Context, status int) bool {
		asked = append(asked, status)
		return false
	})))
	e.GET("/", func(c *echo.Context) error {
		c.SetResponse(echo.NewResponse(response(c).ResponseWriter, slog.Default()))
		return c.String(404, "gone")
	})
	if w := get(e, "/"); w.Code != 404 || len(asked) != 1 || asked[0] != 404 {
		t.Errorf("status %d, asked about %v", w.Code, asked)
	}
}
