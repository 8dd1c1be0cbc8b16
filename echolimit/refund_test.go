package echolimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/echolimit"
)

var errConflict = errors.New("a conflict")

// custom answers an error of the application's own, and notes what it is called with.
func custom(seen *[]error) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		*seen = append(*seen, err)
		var he *echo.HTTPError
		switch {
		case c.Response().Committed:
		case errors.Is(err, errConflict):
			c.String(409, "conflict")
		case errors.As(err, &he):
			c.String(he.Code, "central")
		default:
			c.String(500, "central")
		}
	}
}

func used(t *testing.T, l *core.Limiter) int {
	t.Helper()
	d, err := l.Peek(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

// WithRefund's callback is called once, with the status that the client gets.
func TestRefund(t *testing.T) {
	plain := errors.New("plain")
	const notFound = "{\"message\":\"Not Found\"}\n"
	const internal = "{\"message\":\"Internal Server Error\"}\n"
	for _, c := range []struct {
		desc    string
		handler echo.HandlerFunc
		custom  bool // the application has an error handler of its own
		status  int
		body    string
		err     error // that outer middleware and the error handler see
	}{
		{"nothing", func(echo.Context) error { return nil }, false, 200, "", nil},
		{"a body", served, false, 200, "served", nil},
		{"NoContent", func(c echo.Context) error { return c.NoContent(304) }, false, 304, "", nil},
		{"404", func(c echo.Context) error { return c.String(404, "gone") }, false, 404, "gone", nil},
		{"500", func(c echo.Context) error { return c.String(500, "down") }, false, 500, "down", nil},
		{"of net/http", echo.WrapHandler(http.NotFoundHandler()), false, 404, "404 page not found\n", nil},
		{"an HTTPError", func(echo.Context) error { return echo.ErrNotFound }, false, 404, notFound, echo.ErrNotFound},
		{"an HTTPError within", func(echo.Context) error {
			return &echo.HTTPError{Code: 500, Message: "outer", Internal: echo.ErrNotFound}
		}, false, 404, notFound, echo.ErrNotFound},
		{"a plain error", func(echo.Context) error { return plain }, false, 500, internal, plain},
		{"a plain error after a status", func(c echo.Context) error {
			c.Response().Status = 200
			return plain
		}, false, 500, internal, plain},
		{"an error after the answer", func(c echo.Context) error {
			c.String(201, "made")
			return plain
		}, false, 201, "made", plain},
		{"an error that is answered already", func(c echo.Context) error {
			c.Error(echo.ErrTeapot)
			return echo.ErrTeapot
		}, false, 418, "{\"message\":\"I'm a teapot\"}\n", echo.ErrTeapot},

		{"own: nothing", served, true, 200, "served", nil},
		{"own: a domain error", func(echo.Context) error {
			return fmt.Errorf("here: %w", errConflict)
		}, true, 409, "conflict", errConflict},
		{"own: an HTTPError", func(echo.Context) error {
			return echo.NewHTTPError(404, "gone").SetInternal(plain)
		}, true, 404, "central", plain},
		{"own: a plain error", func(echo.Context) error { return plain }, true, 500, "central", plain},
	} {
		t.Run(c.desc, func(t *testing.T) {
			var asked []int
			var handled []error
			var outer error
			l, err := core.New(core.PerMinute(9), core.ByHeader("User", core.Unverified),
				core.WithRefund(func(c echo.Context, status int) bool {
					asked = append(asked, status)
					return c.Request().Header.Get("Back") != ""
				}))
			if err != nil {
				t.Fatal(err)
			}
			e := echo.New()
			e.HTTPErrorHandler = func(err error, c echo.Context) {
				handled = append(handled, err)
				e.DefaultHTTPErrorHandler(err, c)
			}
			if c.custom {
				e.HTTPErrorHandler = custom(&handled)
			}
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error { outer = next(c); return outer }
			})
			e.Use(echolimit.From(l))
			e.GET("/", c.handler)
			for i, header := range [][]string{{"User", "ann", "Back", "1"}, {"User", "ann"}} {
				asked, handled, outer = nil, nil, nil
				w := get(e, "/", header...)
				if w.Code != c.status || w.Body.String() != c.body {
					t.Errorf("status %d, body %q; want %d, %q", w.Code, w.Body, c.status, c.body)
				}
				if !slices.Equal(asked, []int{c.status}) {
					t.Errorf("asked about %v, want %d once", asked, c.status)
				}
				if n := used(t, l); n != i { // the first is given back, the second is not
					t.Errorf("%d units used, want %d", n, i)
				}
				answered := c.desc == "an error that is answered already" // by a call of its own
				if !errors.Is(outer, c.err) || (len(handled) == 0) != (c.err == nil) || len(handled) > 1 && !answered {
					t.Errorf("outer middleware sees %v, the error handler %v; want %v", outer, handled, c.err)
				}
			}
		})
	}
}

// The status of an answer to an error counts, whether the error handler answers or middleware on the way to it.
func TestRefundOfAnErrorThatIsAnsweredOutside(t *testing.T) {
	for _, c := range []struct {
		desc   string
		outer  func(echo.Context, error) error
		status int
		asked  []int
	}{
		{"answered", func(c echo.Context, _ error) error { return c.String(418, "teapot") }, 418, []int{418}},
		{"made another error", func(echo.Context, error) error { return echo.ErrBadGateway }, 502, []int{502}},
		{"by c.Error", func(c echo.Context, err error) error {
			c.Error(err)
			return nil
		}, 409, []int{409}},
		{"by c.Error, and returned", func(c echo.Context, err error) error {
			c.Error(err)
			return err
		}, 409, []int{409}},
		{"forgotten", func(echo.Context, error) error { return nil }, 200, nil}, // without a status the unit stays
	} {
		var asked []int
		var handled []error
		l, err := core.New(core.PerMinute(9), core.ByHeader("User", core.Unverified),
			core.WithRefund(func(_ echo.Context, status int) bool { asked = append(asked, status); return true }))
		if err != nil {
			t.Fatal(err)
		}
		e := echo.New()
		e.HTTPErrorHandler = custom(&handled)
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(ctx echo.Context) error { return c.outer(ctx, next(ctx)) }
		})
		e.Use(echolimit.From(l))
		e.GET("/", func(echo.Context) error { return errConflict })
		w := get(e, "/", "User", "ann")
		if w.Code != c.status || !slices.Equal(asked, c.asked) || used(t, l) != 1-len(c.asked) {
			t.Errorf("%s: status %d, asked about %v, %d units used", c.desc, w.Code, asked, used(t, l))
		}
	}
}

// catch is what echo's own Recover does, in a package that needs more modules than this: it answers an error
// itself, or returns it.
func catch(answer bool) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			defer func() {
				p := recover()
				if p == nil {
					return
				}
				if err = p.(error); answer {
					c.Error(err)
					err = nil
				}
			}()
			return next(c)
		}
	}
}

// A panic counts as 500 and is passed on to the middleware that recovers from it.
func TestRefundPanic(t *testing.T) {
	quiet, returned := catch(true), catch(false)
	for _, c := range []struct {
		desc   string
		use    func(limit echo.MiddlewareFunc) []echo.MiddlewareFunc
		asked  int
		status int
	}{
		// Outside the limiter, the panic becomes an error only after the limiter has counted it as 500.
		{"caught outside", func(limit echo.MiddlewareFunc) []echo.MiddlewareFunc {
			return []echo.MiddlewareFunc{quiet, limit}
		}, 500, 409},
		{"caught inside", func(limit echo.MiddlewareFunc) []echo.MiddlewareFunc {
			return []echo.MiddlewareFunc{limit, quiet}
		}, 409, 409},
		{"caught inside and returned", func(limit echo.MiddlewareFunc) []echo.MiddlewareFunc {
			return []echo.MiddlewareFunc{limit, returned}
		}, 409, 409},
	} {
		var asked []int
		var handled []error
		refund := core.WithRefund(func(_ echo.Context, status int) bool {
			asked = append(asked, status)
			return len(asked) == 1
		})
		l, err := core.New(core.PerMinute(9), core.ByHeader("User", core.Unverified), refund)
		if err != nil {
			t.Fatal(err)
		}
		e := echo.New()
		e.HTTPErrorHandler = custom(&handled)
		e.Use(c.use(echolimit.From(l))...)
		e.GET("/", func(echo.Context) error { panic(errConflict) })
		for i := range 2 {
			if w := get(e, "/", "User", "ann"); w.Code != c.status {
				t.Errorf("%s: status %d, want %d", c.desc, w.Code, c.status)
			}
			if n := used(t, l); n != i {
				t.Errorf("%s: %d units used, want %d", c.desc, n, i)
			}
		}
		if !slices.Equal(asked, []int{c.asked, c.asked}) || len(handled) != 2 {
			t.Errorf("%s: asked about %v, want %d twice; %d errors handled", c.desc, asked, c.asked, len(handled))
		}
	}
}

// A panic that no middleware catches reaches the server.
func TestRefundPanicGoesOn(t *testing.T) {
	asked := 0
	e := echo.New()
	refund := core.WithRefund(func(_ echo.Context, status int) bool { asked = status; return true })
	e.Use(echolimit.New(core.PerMinute(9), core.ByIP(), refund))
	e.GET("/", func(echo.Context) error { panic("boom") })
	defer func() {
		if p := recover(); p != "boom" || asked != 500 {
			t.Errorf("recovered %v, asked about %d", p, asked)
		}
	}()
	get(e, "/")
}

// Each limiter's callback is called, with the same status.
func TestRefundTwoLimiters(t *testing.T) {
	var asked []string
	var handled []error
	limit := func(name string) echo.MiddlewareFunc {
		refund := core.WithRefund(func(_ echo.Context, status int) bool {
			asked = append(asked, fmt.Sprint(name, " ", status))
			return true
		})
		return echolimit.New(core.PerMinute(1), core.ByIP(), core.WithName(name), refund)
	}
	e := echo.New()
	e.HTTPErrorHandler = custom(&handled)
	e.Use(limit("outer"), limit("inner"))
	e.GET("/", func(echo.Context) error { return errConflict })
	e.GET("/fine", served)
	for range 3 {
		asked, handled = nil, nil
		w := get(e, "/")
		if w.Code != 409 || len(handled) != 1 || !slices.Equal(asked, []string{"inner 409", "outer 409"}) {
			t.Errorf("status %d, %d errors handled, asked %q", w.Code, len(handled), asked)
		}
		asked = nil // echo reuses contexts, which must keep nothing of the request before
		if w := get(e, "/fine"); w.Code != 200 || !slices.Equal(asked, []string{"inner 200", "outer 200"}) {
			t.Errorf("status %d, asked %q", w.Code, asked)
		}
	}
}

// A client that has gone gets its unit back, whether the handler returns an error for that or not.
func TestRefundClientGone(t *testing.T) {
	for desc, result := range map[string]func(context.Context) error{
		"nothing":  func(context.Context) error { return nil },
		"an error": func(ctx context.Context) error { return ctx.Err() },
	} {
		begun, told := make(chan bool), make(chan bool, 9)
		l, err := core.New(core.PerMinute(9), core.ByHeader("User", core.Unverified),
			core.WithRefund(func(c echo.Context, _ int) bool { return c.Request().Context().Err() != nil }),
			core.WithObserver(func(_ context.Context, e core.Event) {
				if e.Outcome == event.Refunded {
					told <- true
				}
			}))
		if err != nil {
			t.Fatal(err)
		}
		e := echo.New()
		e.Use(echolimit.From(l))
		e.GET("/", func(c echo.Context) error {
			begun <- true
			ctx := c.Request().Context()
			<-ctx.Done()
			return result(ctx)
		})
		server := httptest.NewServer(e)
		defer server.Close()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-begun
			cancel()
		}()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User", "ann")
		if response, err := http.DefaultClient.Do(r); err == nil {
			response.Body.Close()
			t.Errorf("%s: status %d", desc, response.StatusCode)
		}
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Fatalf("%s: nothing was given back", desc)
		}
		if n := used(t, l); n != 0 {
			t.Errorf("%s: %d units used, want 0", desc, n)
		}
	}
}

// unwrapped is a writer of which only http.ResponseController finds out that it can be hijacked.
type unwrapped struct{ http.ResponseWriter }

func (w unwrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Middleware around echo may have a writer that leaves all but writing to http.ResponseController.
func TestRefundUpgradeBehindUnwrap(t *testing.T) {
	asked := make(chan int, 1)
	e := echo.New()
	e.Use(echolimit.New(core.PerMinute(9), core.ByIP(), core.WithRefund(func(_ echo.Context, status int) bool {
		asked <- status
		return false
	})))
	e.GET("/", func(c echo.Context) error {
		connection, rw, err := c.Response().Hijack()
		if err != nil {
			return err
		}
		defer connection.Close()
		io.Copy(io.Discard, rw)
		return nil
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.ServeHTTP(unwrapped{w}, r)
	}))
	defer server.Close()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: sash.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	c.Close()
	if status := <-asked; status != http.StatusSwitchingProtocols {
		t.Errorf("asked about %d, want 101", status)
	}
}
