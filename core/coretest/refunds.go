package coretest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// Refund is a handler and how its errors, if any, are answered by the framework's own handler.
type Refund[C any] struct {
	Desc   string
	Serve  func(C) error
	Status int
	Body   string
	Err    error // that outer middleware sees, if the framework does not buffer
}

// refunded is a handler behind limiters with WithRefund, whose callback is to be called once, with the status that the
// client gets.
type refunded[C any] struct {
	Refund[C]

	own          bool            // errors go to the application's own handler
	handled      int             // which it gets
	outer, inner []Middleware[C] // of the limiters
	anyErr       bool            // outer middleware may see any error
	asked        []int           // statuses; nil is the client's
}

// refunds tries each handler behind a limiter and behind two, with a unit that is given back and one that is not.
func (s handlers[C]) refunds(t *testing.T) {
	for _, c := range slices.Concat(s.endings(), s.middleware(), s.panicking(), s.answeredOutside()) {
		for limiters := 1; limiters <= 2; limiters++ {
			var asked []string
			var handled []error
			var outer error
			onError := s.central(&handled)
			if !c.own {
				onError = nil
			}
			chain := append(slices.Clone(c.outer), s.observe(&outer))
			var all []*core.Limiter
			for n := range limiters {
				l := nine(t, core.WithName(fmt.Sprint(n)), core.WithRefund(func(c C, status int) bool {
					asked = append(asked, fmt.Sprint(n, " ", status))
					return s.Header(c, "Back") != ""
				}))
				all, chain = append(all, l), append(chain, s.From(l))
			}
			app := s.App(onError, c.Serve, append(chain, c.inner...)...)
			if c.asked == nil {
				c.asked = []int{c.Status}
			}
			var want []string
			for _, status := range c.asked {
				for n := limiters - 1; n >= 0; n-- { // the inner one first
					want = append(want, fmt.Sprint(n, " ", status))
				}
			}
			for i, back := range []string{"1", ""} {
				asked, handled, outer = nil, nil, nil
				w := get(t, app, "Back", back)
				if w.Code != c.Status || w.Body.String() != c.Body {
					t.Errorf("%s: status %d, body %.99q; want %d, %.99q", c.Desc, w.Code, w.Body, c.Status, c.Body)
				}
				if !slices.Equal(asked, want) {
					t.Errorf("%s: asked about %q, want %q", c.Desc, asked, want)
				}
				for _, l := range all {
					if n := used(t, l); n != i+1-len(c.asked) { // without a status the unit stays
						t.Errorf("%s: request %d: %d units used", c.Desc, i+1, n)
					}
				}
				if !s.Buffers && !c.anyErr && !errors.Is(outer, c.Err) || c.own && len(handled) != c.handled {
					t.Errorf("%s: outer middleware sees %v, the error handler %v; want %v",
						c.Desc, outer, handled, c.Err)
				}
			}
			if s.Buffers && c.Err != nil && !c.anyErr { // without the option the error goes on
				app := s.App(onError, c.Serve, s.observe(&outer), s.From(nine(t)))
				if w := get(t, app); w.Code != c.Status || !errors.Is(outer, c.Err) {
					t.Errorf("%s: without the option: status %d, outer middleware sees %v", c.Desc, w.Code, outer)
				}
			}
		}
	}
}

// endings are the ways in which handlers end.
func (s handlers[C]) endings() (all []refunded[C]) {
	fail := func(err error) func(C) error { return func(C) error { return err } }
	gone := s.Error(404, "gone", errPlain)
	for _, r := range append([]Refund[C]{
		{"nothing", func(C) error { return nil }, 200, "", nil},
		{"a body", s.served, 200, text, nil},
		{"a status", func(c C) error { s.SetStatus(c, 404); return s.Write(c, "gone") }, 404, "gone", nil},
		{"500", func(c C) error { return s.Answer(c, 500, "down") }, 500, "down", nil},
		{"the framework's error", fail(gone), 404, s.Body(404, "gone"), gone},
		{"a plain error", fail(errPlain), 500, s.Plain("plain"), errPlain},
		{"an error after a status", func(c C) error { s.SetStatus(c, 200); return errPlain },
			500, s.Plain("plain"), errPlain},
	}, s.Refunds...) {
		all = append(all, refunded[C]{Refund: r})
	}
	own := func(handled int, r Refund[C]) { all = append(all, refunded[C]{Refund: r, own: true, handled: handled}) }
	own(0, Refund[C]{"own: a body", s.served, 200, text, nil})
	own(1, Refund[C]{"own: a domain error", fail(fmt.Errorf("here: %w", errConflict)), 409, "conflict", errConflict})
	own(1, Refund[C]{"own: the framework's error", fail(gone), 404, "central gone", errPlain})
	own(1, Refund[C]{"own: a plain error", fail(errPlain), 500, "central", errPlain})
	if s.Buffers {
		own(1, Refund[C]{"own: it fails", fail(errUnknown), 500, "Internal Server Error", errUnknown})
		return all // a server that buffers does not look for its client while a handler runs
	}
	leaves := Refund[C]{"the client leaves", func(c C) error {
		hangUp(s.Context(c))
		return s.Context(c).Err()
	}, 500, s.Plain("context canceled"), context.Canceled}
	return append(all, refunded[C]{Refund: leaves, asked: []int{adapter.StatusClientClosedRequest}})
}

// middleware are those of the framework, in front of the limiters or behind them.
func (s handlers[C]) middleware() (all []refunded[C]) {
	much := strings.Repeat("x", 1<<16)
	rows := []Refund[C]{
		{"a body", s.served, 200, text, nil},
		{"an empty body", func(c C) error { return s.Answer(c, 204, "") }, 204, "", nil},
		{"much", func(c C) error { return s.Answer(c, 404, much) }, 404, much, nil},
		{"an error", func(C) error { return s.Error(418, "teapot", nil) }, 418, s.Body(418, "teapot"), nil},
		{"a plain error", func(C) error { return errPlain }, 500, s.Plain("plain"), nil},
	}
	if s.Buffers { // else a timeout may drop what was written before an error
		rows = append(rows, s.Refunds...)
	}
	both := func(name string, m Middleware[C], r Refund[C]) {
		r.Desc += ", " + name
		all = append(all, refunded[C]{Refund: r, anyErr: true, outer: []Middleware[C]{m}})
		r.Desc += " behind"
		all = append(all, refunded[C]{Refund: r, anyErr: true, inner: []Middleware[C]{m}})
	}
	for name, m := range s.Middleware {
		for _, r := range rows {
			both(name, m, r)
		}
	}
	if s.Late != nil { // a timeout of the server's is not taken for a client that has gone
		both("too late", s.Late, Refund[C]{"a context", func(c C) error {
			<-s.Context(c).Done()
			return s.Context(c).Err()
		}, 503, s.Body(503, "Service Unavailable"), nil})
	}
	return all
}

// panicking are handlers whose panic becomes an error, which counts as 500 if that happens outside the limiters.
func (s handlers[C]) panicking() (all []refunded[C]) {
	onError := s.central(new([]error))
	conflict := Refund[C]{"a panic", func(C) error { panic(errConflict) }, 409, "conflict", nil}
	for _, answer := range []bool{false, true} {
		catch := []Middleware[C]{func(next func(C) error) func(C) error {
			return func(c C) (err error) {
				defer func() {
					if err, _ = recover().(error); answer {
						err = onError(c, err)
					}
				}()
				return next(c)
			}
		}}
		handled := 1
		if answer {
			handled = 0
		}
		c := refunded[C]{Refund: conflict, own: true, handled: handled, anyErr: true}
		outside, inside := c, c
		outside.outer, outside.asked = catch, []int{500}
		inside.inner = catch
		all = append(all, outside, inside)
	}
	return all
}

// answeredOutside are errors that middleware answers on their way to the error handler.
func (s handlers[C]) answeredOutside() (all []refunded[C]) {
	if s.Buffers {
		return nil // the limiter answers
	}
	onError := s.central(new([]error))
	for _, c := range []struct {
		desc    string
		answer  func(C, error) error
		status  int
		body    string
		handled int
	}{
		{"answered", func(c C, _ error) error { return s.Answer(c, 418, "teapot") }, 418, "teapot", 0},
		{"made another error", func(C, error) error { return s.Error(502, "down", nil) }, 502, "central down", 1},
		{"by the error handler", onError, 409, "conflict", 0},
		{"by the error handler, and returned", func(c C, err error) error { onError(c, err); return err },
			409, "conflict", 0},
		{"forgotten", func(C, error) error { return nil }, 200, "", 0},
	} {
		one := refunded[C]{
			Refund: Refund[C]{c.desc, func(C) error { return errConflict }, c.status, c.body, errConflict},
			own:    true, handled: c.handled,
			outer: []Middleware[C]{func(next func(C) error) func(C) error {
				return func(ctx C) error { return c.answer(ctx, next(ctx)) }
			}},
		}
		if c.desc == "forgotten" {
			one.asked = []int{}
		}
		all = append(all, one)
	}
	return all
}
