package coretest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
)

// WithRefund's callback is called once, with the status that the client gets.
func (s handlers[C]) refunds(t *testing.T) {
	fail := func(err error) func(C) error { return func(C) error { return err } }
	gone := s.Error(404, "gone", errPlain)
	for _, own := range []bool{false, true} {
		cases := append([]Refund[C]{
			{"nothing", func(C) error { return nil }, 200, "", nil},
			{"a body", s.served, 200, text, nil},
			{"a status", func(c C) error { s.SetStatus(c, 404); return s.Write(c, "gone") }, 404, "gone", nil},
			{"500", func(c C) error { return s.Answer(c, 500, "down") }, 500, "down", nil},
			{"the framework's error", fail(gone), 404, s.Body(404, "gone"), gone},
			{"a plain error", fail(errPlain), 500, s.Plain("plain"), errPlain},
			{"an error after a status", func(c C) error { s.SetStatus(c, 200); return errPlain },
				500, s.Plain("plain"), errPlain},
		}, s.Refunds...)
		if own {
			cases = []Refund[C]{
				{"own: a body", s.served, 200, text, nil},
				{"own: a domain error", fail(fmt.Errorf("here: %w", errConflict)), 409, "conflict", errConflict},
				{"own: the framework's error", fail(gone), 404, "central gone", errPlain},
				{"own: a plain error", fail(errPlain), 500, "central", errPlain},
			}
			if s.Buffers {
				const body = "Internal Server Error"
				cases = append(cases, Refund[C]{"own: it fails", fail(errUnknown), 500, body, errUnknown})
			}
		}
		for _, c := range cases {
			var asked []int
			var handled []error
			var outer error
			l := nine(t, core.WithRefund(func(c C, status int) bool {
				asked = append(asked, status)
				return s.Header(c, "Back") != ""
			}))
			onError := s.central(&handled)
			if !own {
				onError = nil
			}
			app := s.App(onError, c.Serve, s.observe(&outer), s.From(l))
			for i, back := range []string{"1", ""} {
				asked, handled, outer = nil, nil, nil
				w := get(t, app, "Back", back)
				if w.Code != c.Status || w.Body.String() != c.Body {
					t.Errorf("%s: status %d, body %q; want %d, %q", c.Desc, w.Code, w.Body, c.Status, c.Body)
				}
				if !slices.Equal(asked, []int{c.Status}) {
					t.Errorf("%s: asked about %v, want %d once", c.Desc, asked, c.Status)
				}
				if n := used(t, l); n != i { // the first is given back, the second is not
					t.Errorf("%s: %d units used, want %d", c.Desc, n, i)
				}
				if !s.Buffers && !errors.Is(outer, c.Err) || own && (len(handled) == 1) != (c.Err != nil) {
					t.Errorf("%s: outer middleware sees %v, the error handler %v; want %v",
						c.Desc, outer, handled, c.Err)
				}
			}
			if s.Buffers && c.Err != nil { // without the option the error goes on
				outer = nil
				app := s.App(onError, c.Serve, s.observe(&outer), s.From(nine(t)))
				if w := get(t, app); w.Code != c.Status || !errors.Is(outer, c.Err) {
					t.Errorf("%s: without the option: status %d, outer middleware sees %v", c.Desc, w.Code, outer)
				}
			}
		}
	}
}

// WithRefund gets the client's status also with the framework's middleware in front of the limiter or behind it.
func (s handlers[C]) refundsAndMiddleware(t *testing.T) {
	much := strings.Repeat("x", 1<<16)
	var more []Refund[C]
	if s.Buffers { // else a timeout may drop what was written before an error
		more = s.Refunds
	}
	for name, m := range s.Middleware {
		for _, behind := range []bool{false, true} {
			for _, c := range append([]Refund[C]{
				{"a body", s.served, 200, text, nil},
				{"an empty body", func(c C) error { return s.Answer(c, 204, "") }, 204, "", nil},
				{"much", func(c C) error { return s.Answer(c, 404, much) }, 404, much, nil},
				{"an error", func(C) error { return s.Error(418, "teapot", nil) }, 418, s.Body(418, "teapot"), nil},
				{"a plain error", func(C) error { return errPlain }, 500, s.Plain("plain"), nil},
			}, more...) {
				asked := make(chan int, 9)
				limit := s.New(core.PerMinute(9), byUser, core.WithRefund(func(_ context.Context, status int) bool {
					asked <- status
					return true
				}))
				both := []Middleware[C]{m, limit}
				if behind {
					slices.Reverse(both)
				}
				w := get(t, s.App(nil, c.Serve, both...))
				close(asked)
				if got := <-asked; w.Code != c.Status || got != c.Status || len(asked) > 0 ||
					w.Body.String() != c.Body {
					t.Errorf("%s, behind %v: %s: status %d, body %.50q, asked about %d and %d more; want %d",
						name, behind, c.Desc, w.Code, w.Body, got, len(asked), c.Status)
				}
			}
		}
	}
}

// A panic counts as 500 and is passed on to the middleware that recovers from it.
func (s handlers[C]) refundsOfPanics(t *testing.T) {
	var handled []error
	onError := s.central(&handled)
	catch := func(answer bool) Middleware[C] {
		return func(next func(C) error) func(C) error {
			return func(c C) (err error) {
				defer func() {
					if err, _ = recover().(error); answer {
						err = onError(c, err)
					}
				}()
				return next(c)
			}
		}
	}
	for _, answer := range []bool{false, true} {
		for _, inside := range []bool{false, true} {
			var asked []int
			handled = nil
			l := nine(t, core.WithRefund(func(_ C, status int) bool {
				asked = append(asked, status)
				return len(asked) == 1
			}))
			// Outside the limiter, the panic becomes an error only after the limiter has counted it as 500.
			both, status := []Middleware[C]{catch(answer), s.From(l)}, 500
			if inside {
				slices.Reverse(both)
				status = 409
			}
			app := s.App(onError, func(C) error { panic(errConflict) }, both...)
			for i := range 2 {
				if w := get(t, app); w.Code != 409 || used(t, l) != i {
					t.Errorf("inside %v: status %d, %d units used; want %d", inside, w.Code, used(t, l), i)
				}
			}
			if !slices.Equal(asked, []int{status, status}) || len(handled) != 2 {
				t.Errorf("inside %v: asked about %v; %d errors handled", inside, asked, len(handled))
			}
		}
	}
}

// Each limiter's callback is called, with the same status.
func (s handlers[C]) twoRefunds(t *testing.T) {
	var asked []string
	var handled []error
	limit := func(name string) Middleware[C] {
		return s.New(core.PerMinute(1), byUser, core.WithName(name), core.WithRefund(func(_ C, status int) bool {
			asked = append(asked, fmt.Sprint(name, " ", status))
			return true
		}))
	}
	app := s.App(s.central(&handled), func(c C) error {
		if s.Header(c, "Fine") != "" {
			return s.served(c)
		}
		return errConflict
	}, limit("outer"), limit("inner"))
	for range 3 {
		asked, handled = nil, nil
		w := get(t, app)
		if w.Code != 409 || len(handled) != 1 || !slices.Equal(asked, []string{"inner 409", "outer 409"}) {
			t.Errorf("status %d, %d errors handled, asked %q", w.Code, len(handled), asked)
		}
		asked = nil // contexts are used again, and must keep nothing of the request before
		if w := get(t, app, "Fine", "1"); w.Code != 200 || !slices.Equal(asked, []string{"inner 200", "outer 200"}) {
			t.Errorf("status %d, asked %q", w.Code, asked)
		}
	}
}

// The status of an answer to an error counts, whether the error handler answers or middleware on the way to it.
func (s handlers[C]) answeredOutside(t *testing.T) {
	if s.Buffers {
		t.Skip("the limiter answers")
	}
	onError := s.central(new([]error))
	for _, c := range []struct {
		desc   string
		outer  func(C, error) error
		status int
		asked  []int
	}{
		{"answered", func(c C, _ error) error { return s.Answer(c, 418, "teapot") }, 418, []int{418}},
		{"made another error", func(C, error) error { return s.Error(502, "down", nil) }, 502, []int{502}},
		{"by the error handler", onError, 409, []int{409}},
		{"by the error handler, and returned", func(c C, err error) error {
			onError(c, err)
			return err
		}, 409, []int{409}},
		{"forgotten", func(C, error) error { return nil }, 200, nil}, // without a status the unit stays
	} {
		var asked []int
		l := nine(t, core.WithRefund(func(_ C, status int) bool { asked = append(asked, status); return true }))
		app := s.App(onError, func(C) error { return errConflict }, func(next func(C) error) func(C) error {
			return func(ctx C) error { return c.outer(ctx, next(ctx)) }
		}, s.From(l))
		if w := get(t, app); w.Code != c.status || !slices.Equal(asked, c.asked) || used(t, l) != 1-len(c.asked) {
			t.Errorf("%s: status %d, asked about %v, %d units used", c.desc, w.Code, asked, used(t, l))
		}
	}
}

// A client that has gone gets its unit back although the handler returns an error for that.
func (s handlers[C]) clientGone(t *testing.T) {
	if s.Buffers {
		t.Skip("a server that buffers does not look while a handler runs")
	}
	begun, told := make(chan bool), make(chan bool, 9)
	l := nine(t, core.WithRefund(func(c C, _ int) bool { return s.Context(c).Err() != nil }),
		core.WithObserver(func(_ context.Context, e core.Event) {
			if e.Outcome == event.Refunded {
				told <- true
			}
		}))
	server := httptest.NewServer(s.App(nil, func(c C) error {
		begun <- true
		<-s.Context(c).Done()
		return s.Context(c).Err()
	}, s.From(l)))
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
		t.Errorf("status %d", response.StatusCode)
	}
	select {
	case <-told:
	case <-time.After(maxWait):
		t.Fatal("nothing was given back")
	}
	if n := used(t, l); n != 0 {
		t.Errorf("%d units used, want 0", n)
	}
}

// A timeout of the server's is not taken for a client that has gone.
func (s handlers[C]) timedOut(t *testing.T) {
	if s.Late == nil {
		t.Skip("the framework has no such timeout")
	}
	for _, behind := range []bool{false, true} {
		var asked []int
		both := []Middleware[C]{s.Late, s.New(core.PerMinute(9), byUser, core.WithRefund(func(_ C, status int) bool {
			asked = append(asked, status)
			return true
		}))}
		if behind {
			slices.Reverse(both)
		}
		w := get(t, s.App(nil, func(c C) error {
			<-s.Context(c).Done()
			return s.Context(c).Err()
		}, both...))
		if w.Code != 503 || !slices.Equal(asked, []int{503}) {
			t.Errorf("behind %v: status %d, asked about %v; want 503", behind, w.Code, asked)
		}
	}
}
