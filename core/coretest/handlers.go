package coretest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
)

// Middleware wraps handlers of a framework whose context is C.
type Middleware[C any] = func(next func(C) error) func(C) error

// HandlersConfig says how a framework whose handlers return errors is used with the adapter under test. C is the
// framework's context.
type HandlersConfig[C any] struct {
	// App serves / behind middleware, whatever the method. Errors are answered by onError, unless something has been
	// sent already, or by the framework's own handler if onError is nil.
	App func(onError func(C, error) error, handler func(C) error, middleware ...Middleware[C]) http.Handler

	// Buffers is true if the answer is sent when all handlers have returned, and a panic would end the process. The
	// limiter then answers panics of WithDeny and WithError, and, with WithRefund, errors of handlers.
	Buffers bool

	New       func(core.Policy, core.Key, ...core.Option) Middleware[C]
	From      func(*core.Limiter) Middleware[C]
	WithDeny  func(func(C, core.Decision) error) core.Option
	WithError func(func(C, error) error) core.Option

	Header     func(c C, name string) string
	SetHeader  func(c C, name, value string) // of the request
	SetStatus  func(c C, status int)
	Write      func(c C, text string) error // without a status
	Answer     func(c C, status int, text string) error
	Set        func(c C, key string, value any)
	Context    func(C) context.Context
	SetContext func(C, context.Context)

	Error   func(status int, text string, cause error) error // of the framework's type
	IsError func(error) (status int, text string, ok bool)
	Body    func(status int, text string) string // with which the framework's own handler answers an Error
	Plain   func(text string) string             // and any other error

	// Hijack takes over the connection, where a status of 101 is to be known without having been written.
	Hijack func(C) (net.Conn, *bufio.ReadWriter, error)

	Late       Middleware[C]            // of the framework: a timeout of a nanosecond, answered with 503
	Middleware map[string]Middleware[C] // the framework's, for both sides of the limiter
	Refunds    []Refund[C]              // of the framework
}

// Refund is a handler and how its errors, if any, are answered by the framework's own handler.
type Refund[C any] struct {
	Desc   string
	Serve  func(C) error
	Status int
	Body   string
	Err    error // that outer middleware sees, if the framework does not buffer
}

// handlers is the suite of one adapter.
type handlers[C any] struct{ HandlersConfig[C] }

// Handlers tests what an adapter adds for a framework whose handlers return errors: WithDeny, WithError, callbacks, the
// answers of error handlers, and which status WithRefund gets. [Adapter] tests everything else.
func Handlers[C any](t *testing.T, c HandlersConfig[C]) {
	s := handlers[C]{c}
	c.Middleware["nothing"] = func(next func(C) error) func(C) error { return next }
	for name, test := range map[string]func(*testing.T){
		"Deny": s.deny, "ReturnErrors": s.returnErrors, "Panics": s.panics, "Callbacks": s.callbacks,
		"Values": s.values, "Refusals": s.refusals, "Refunds": s.refunds,
		"RefundsAndMiddleware": s.refundsAndMiddleware, "RefundsOfPanics": s.refundsOfPanics,
		"TwoRefunds": s.twoRefunds, "AnsweredOutside": s.answeredOutside, "ClientGone": s.clientGone,
		"Hijack": s.hijack, "Calls": s.calls, "TimedOut": s.timedOut, "KeepsTheKey": s.keepsTheKey,
		"Logged": s.logged, "ContextOfKeys": s.contextOfKeys, "Pooled": s.pooled,
	} {
		t.Run(name, test)
	}
}

// The bodies of the refusals of one a minute.
var minuteBody = strings.NewReplacer("10 seconds", "60 seconds", "3-per-10s", "1-per-minute").Replace(deniedBody)

var (
	errConflict = errors.New("a conflict")
	errPlain    = errors.New("plain")
	errUnknown  = errors.New("what the application's own handler returns, where it may")
)

func (s handlers[C]) served(c C) error { return s.Write(c, text) }

// central returns an error handler of the application's own, which notes what it is called with.
func (s handlers[C]) central(seen *[]error) func(C, error) error {
	return func(c C, err error) error {
		*seen = append(*seen, err)
		if errors.Is(err, errConflict) {
			return s.Answer(c, 409, "conflict")
		}
		if s.Buffers && errors.Is(err, errUnknown) {
			return err
		}
		if status, text, ok := s.IsError(err); ok {
			return s.Answer(c, status, "central "+text)
		}
		return s.Answer(c, 500, "central")
	}
}

// observe returns middleware that notes the error that passes.
func (s handlers[C]) observe(seen *error) Middleware[C] {
	return func(next func(C) error) func(C) error {
		return func(c C) error { *seen = next(c); return *seen }
	}
}

var byUser = core.ByHeader("User", core.Unverified)

// nine returns a limiter of nine a minute for each user.
func nine(t *testing.T, opts ...core.Option) *core.Limiter {
	t.Helper()
	return limiterFor(t, core.NewMemoryStore(), core.PerMinute(9), byUser, opts...)
}

// used returns what ann has used.
func used(t *testing.T, l *core.Limiter) int {
	t.Helper()
	d, err := l.Peek(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

// get sends GET / to h as ann, with more header fields, and undoes compression.
func get(t *testing.T, h http.Handler, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	header = append([]string{"User", "ann", "Accept-Encoding", "gzip"}, header...)
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Header().Get("Content-Encoding") == "gzip" && w.Body.Len() > 0 {
		in, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		w.Body = new(bytes.Buffer)
		if _, err := w.Body.ReadFrom(in); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (s handlers[C]) deny(t *testing.T) {
	for _, c := range []struct {
		desc   string
		deny   func(C, core.Decision) error
		status int
		body   string
	}{
		{"writes nothing", func(C, core.Decision) error { return nil }, 429, ""},
		{"sets a status", func(c C, _ core.Decision) error { s.SetStatus(c, 418); return nil }, 418, ""},
		{"writes a body", func(c C, _ core.Decision) error { return s.Write(c, "slow down") }, 429, "slow down"},
		{"writes both", func(c C, d core.Decision) error {
			return s.Answer(c, 503, fmt.Sprint(d.RetryAfter.Seconds() > 59))
		}, 503, "true"},
		{"returns an error", func(C, core.Decision) error {
			return s.Error(420, "calm", nil)
		}, 420, s.Body(420, "calm")},
	} {
		ran := 0
		app := s.App(nil, func(c C) error { ran++; return s.served(c) },
			s.New(core.PerMinute(1), byUser, s.WithDeny(c.deny)))
		get(t, app)
		w := get(t, app)
		if w.Code != c.status || w.Body.String() != c.body || ran != 1 || w.Header().Get("Retry-After") != "60" {
			t.Errorf("%s: status %d, body %q, handler ran %d times, header %v", c.desc, w.Code, w.Body, ran, w.Header())
		}
	}
}

// If a handler returns the refusal as an error, the limiter answers. Any other error goes to the error handler.
func (s handlers[C]) returnErrors(t *testing.T) {
	errOwn := errors.New("own")
	late := struct {
		status        int
		body, central string
	}{503, "slow down", "slow down"}
	if s.Buffers {
		late.status, late.body, late.central = 429, minuteBody, "central Quota Exceeded"
	}
	for _, c := range []struct {
		desc    string
		deny    func(C, core.Decision) error // of the second request, or
		fail    func(C, error) error         // of one without a key
		status  int
		body    string // of the default error handler
		central string // of the application's
	}{
		{"d.Err()", func(_ C, d core.Decision) error { return d.Err() },
			nil, 429, minuteBody, "central Quota Exceeded"},
		{"d.Err(), wrapped", func(_ C, d core.Decision) error { return fmt.Errorf("denied: %w", d.Err()) },
			nil, 429, minuteBody, "central Quota Exceeded"},
		{"d.Err() after a body", func(c C, d core.Decision) error {
			s.Answer(c, 503, "slow down")
			return d.Err()
		}, nil, late.status, late.body, late.central},
		{"the framework's error around d.Err()", func(_ C, d core.Decision) error {
			return s.Error(420, "calm", d.Err())
		}, nil, 420, s.Body(420, "calm"), "central calm"},
		{"another error", func(C, core.Decision) error { return errOwn }, nil, 500, s.Plain("own"), "central"},
		{"err", nil, func(_ C, err error) error { return err }, 400, noKeyBody, "central Bad Request"},
		{"err, wrapped", nil, func(_ C, err error) error { return fmt.Errorf("here: %w", err) },
			400, noKeyBody, "central Bad Request"},
		{"another error for err", nil, func(C, error) error { return errOwn }, 500, s.Plain("own"), "central"},
		{"a status for err", nil, func(c C, err error) error {
			return s.Answer(c, 401, core.ProblemOf(err).Title)
		}, 401, "Bad Request", "Bad Request"},
	} {
		for name, outer := range s.Middleware {
			for _, own := range []bool{false, true} {
				body, onError := c.body, (func(C, error) error)(nil)
				if own {
					body, onError = c.central, s.central(new([]error))
				}
				opt, user := s.WithError(c.fail), ""
				if c.deny != nil {
					opt, user = s.WithDeny(c.deny), "ann"
				}
				app := s.App(onError, s.served, outer, s.New(core.PerMinute(1), byUser, opt))
				get(t, app, "User", user)
				w := get(t, app, "User", user)
				if w.Code != c.status || w.Body.String() != body {
					t.Errorf("%s behind %s, own handler %v: status %d, body %q; want %d, %q",
						c.desc, name, own, w.Code, w.Body, c.status, body)
				}
			}
		}
	}
}

// A panic in a handler of refusals goes on to the middleware that recovers from it, or is answered, as in a callback.
func (s handlers[C]) panics(t *testing.T) {
	one := core.PerMinute(1)
	limits := []Middleware[C]{s.New(one, core.By(func(C) (string, error) { panic(http.ErrAbortHandler) }))}
	for _, value := range []any{"boom", http.ErrAbortHandler} {
		limits = append(limits, s.New(one, byUser, s.WithError(func(C, error) error { panic(value) })),
			s.New(one, core.Global(), s.WithDeny(func(C, core.Decision) error { panic(value) })))
	}
	for i, limit := range limits {
		for _, own := range []bool{false, true} {
			body, onError := brokenBody, (func(C, error) error)(nil)
			if own {
				body, onError = "central Internal Server Error", s.central(new([]error))
			}
			app := s.App(onError, s.served, limit)
			func() {
				defer func() {
					switch p := recover(); p {
					case nil, "boom", http.ErrAbortHandler:
						if (p == nil) == (s.Buffers || i == 0) {
							return
						}
						fallthrough
					default:
						t.Errorf("%d: recovered %v", i, p)
					}
				}()
				get(t, app, "User", "")
				if w := get(t, app, "User", ""); w.Code != 500 || w.Body.String() != body {
					t.Errorf("%d: status %d, body %q; want %q", i, w.Code, w.Body, body)
				}
			}()
		}
	}
}

// A panic that the limiter answers is logged, without what it was called with.
func (s handlers[C]) logged(t *testing.T) {
	if !s.Buffers {
		t.Skip("panics go on")
	}
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	defer slog.SetDefault(before)
	app := s.App(nil, s.served, s.New(core.PerMinute(1), core.Global(), core.WithName("api"),
		s.WithDeny(func(C, core.Decision) error { panic("ada@example.com") })))
	for range 4 {
		get(t, app)
	}
	got := b.String()
	for _, want := range []string{
		"a handler of refused requests has panicked", "policy=api", "place=", "value=string",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %s:\n%s", want, got)
		}
	}
	if strings.Count(got, "\n") != 1 || strings.Contains(got, "ada@") {
		t.Errorf("logged\n%s", got)
	}
}

// Callbacks take the framework's context.
func (s handlers[C]) callbacks(t *testing.T) {
	app := s.App(nil, s.served,
		func(next func(C) error) func(C) error {
			return func(c C) error { s.Set(c, "user", s.Header(c, "X-User")); return next(c) }
		},
		s.New(
			core.LimitBy(func(c C) core.Limits {
				if s.Header(c, "Plan") == "pro" {
					return core.Limits{core.PerMinute(20)}
				}
				return core.Limits{core.PerMinute(4)}
			}),
			core.First(
				core.ByValue("user"),
				core.By(func(c C) (string, error) { return s.Header(c, "Id"), nil }),
				core.Global(),
			),
			core.WithSkip(func(c C) bool { return s.Header(c, "Health") != "" }),
			core.WithCost(func(c C) int { return len(s.Header(c, "Unit")) + 1 }),
		))
	ask := func(want string, header ...string) {
		t.Helper()
		if got := get(t, app, header...).Header().Get("RateLimit"); got != want {
			t.Errorf("%v: RateLimit %s, want %s", header, got, want)
		}
	}
	ask(`"4-per-minute";r=3;t=60`, "X-User", "ann")
	ask(`"4-per-minute";r=3;t=60`, "Id", "bob")
	ask(`"4-per-minute";r=3;t=60`)
	ask(``, "Health", "1")
	ask(`"4-per-minute";r=1;t=60`, "X-User", "ann", "Unit", "1")
	ask(`"20-per-minute";r=16;t=60`, "X-User", "ann", "Plan", "pro")
}

type contextKey struct{}

// ByValue finds what earlier middleware has set in the framework's context or in the request's.
func (s handlers[C]) values(t *testing.T) {
	for _, put := range []func(C){
		func(c C) { s.Set(c, "user", "ann") },
		func(c C) { s.SetContext(c, context.WithValue(s.Context(c), contextKey{}, "ann")) },
	} {
		app := s.App(nil, s.served,
			func(next func(C) error) func(C) error { return func(c C) error { put(c); return next(c) } },
			s.New(core.PerMinute(1), core.First(core.ByValue("user"), core.ByValue(contextKey{}))))
		if first, second := get(t, app), get(t, app); first.Code != 200 || second.Code != 429 {
			t.Errorf("status %d, then %d", first.Code, second.Code)
		}
	}
}

// Behind any middleware a refusal reaches the client, as the problem document or as the application's error handler
// writes it. That one is alone to write, and gets the decision. Outer middleware sees no other error.
func (s handlers[C]) refusals(t *testing.T) {
	for name, outer := range s.Middleware {
		for _, own := range []bool{false, true} {
			var seen error
			var handled []error
			onError := s.central(&handled)
			if !own {
				onError = nil
			}
			app := s.App(onError, s.served, outer, s.observe(&seen), s.New(core.PerMinute(1), byUser))
			for i, c := range []struct {
				user    string
				status  int
				body    string
				central string
			}{
				{"ann", 200, text, ""},
				{"ann", 429, minuteBody, "central Quota Exceeded"},
				{"", 400, noKeyBody, "central Bad Request"},
			} {
				seen, handled = nil, nil
				w := get(t, app, "User", c.user)
				refused := c.central != ""
				if own && refused {
					c.body = c.central
				}
				if w.Code != c.status || w.Body.String() != c.body {
					t.Errorf("%s, own handler %v: request %d: status %d, body %q; want %d, %q",
						name, own, i+1, w.Code, w.Body, c.status, c.body)
				}
				if document := w.Header().Get("Content-Type") == adapter.ProblemType; document != (refused && !own) {
					t.Errorf("%s, own handler %v: request %d: header %v", name, own, i+1, w.Header())
				}
				if retry := w.Header().Get("Retry-After"); (retry == "60") != (c.status == 429) {
					t.Errorf("%s, own handler %v: request %d: Retry-After %q", name, own, i+1, retry)
				}
				if (seen != nil) != (own && refused) || (len(handled) == 1) != (own && refused) {
					t.Errorf("%s, own handler %v: request %d: outer middleware sees %v, the error handler %v",
						name, own, i+1, seen, handled)
				}
				var limited *core.LimitedError
				switch isLimited := errors.As(seen, &limited); {
				case isLimited && (limited.Decision.Allowed || limited.Decision.RetryAfter == 0):
					t.Errorf("%s: decision %+v", name, limited.Decision)
				case seen != nil && isLimited != (c.status == 429),
					seen != nil && isLimited == errors.Is(seen, core.ErrNoKey):
					t.Errorf("%s: request %d: the error is %v", name, i+1, seen)
				}
			}
		}
	}
}

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

// unwrapped is a writer of which only http.ResponseController finds out that it can be hijacked.
type unwrapped struct{ http.ResponseWriter }

func (w unwrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Middleware around the framework may have a writer that leaves all but writing to http.ResponseController.
func (s handlers[C]) hijack(t *testing.T) {
	if s.Hijack == nil {
		t.Skip("the framework has no such writers")
	}
	asked := make(chan int, 1)
	app := s.App(nil, func(c C) error {
		connection, rw, err := s.Hijack(c)
		if err != nil {
			return err
		}
		defer connection.Close()
		io.Copy(io.Discard, rw)
		return nil
	}, s.New(core.PerMinute(9), core.ByIP(), core.WithRefund(func(_ C, status int) bool {
		asked <- status
		return false
	})))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		app.ServeHTTP(unwrapped{w}, r)
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

// What a user writes is the answer to gRPC as well: the limiter's handlers, and the application's own.
func (s handlers[C]) calls(t *testing.T) {
	limit := func(opts ...core.Option) Middleware[C] { return s.New(core.PerMinute(1), core.Global(), opts...) }
	deny := s.WithDeny(func(c C, _ core.Decision) error { return s.Answer(c, 503, "denied") })
	for want, app := range map[string]http.Handler{
		"503 denied":                 s.App(nil, s.served, limit(deny)),
		"429 central Quota Exceeded": s.App(s.central(new([]error)), s.served, limit()),
	} {
		for _, want := range []string{"200 " + text, want} {
			w := get(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Method = http.MethodPost
				app.ServeHTTP(w, r)
			}), "Content-Type", "application/grpc")
			if got := fmt.Sprint(w.Code, " ", w.Body); got != want || w.Header().Get("Grpc-Status") != "" {
				t.Errorf("%q, header %v; want %q", got, w.Header(), want)
			}
		}
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

// Handlers may write to a request's memory, and servers use it again. Refunds and events have the key that was charged.
func (s handlers[C]) keepsTheKey(t *testing.T) {
	var events []core.Event
	user := core.By(func(c C) (string, error) { return s.Header(c, "User"), nil })
	store := core.NewMemoryStore()
	unobserved := limiterFor(t, store, core.PerMinute(9), user)
	l := limiterFor(t, store, core.PerMinute(9), user,
		core.WithRefund(func(c C, _ int) bool { return s.Header(c, "Back") != "" }),
		core.WithObserver(func(_ context.Context, e core.Event) { events = append(events, e) }))
	app := s.App(nil, func(c C) error { s.SetHeader(c, "User", "bob"); return nil }, s.From(l))
	get(t, app, "Back", "1")
	if n := used(t, unobserved); n != 0 {
		t.Errorf("%d units used, want 0", n)
	}
	get(t, app)
	get(t, app, "User", "eve")
	want := []core.Event{{Key: "ann"}, {Key: "ann", Outcome: event.Refunded}, {Key: "ann"}, {Key: "eve"}}
	if len(events) != len(want) {
		t.Fatalf("%d events, want %d", len(events), len(want))
	}
	for i, e := range events {
		if e.Key != want[i].Key || e.Outcome != want[i].Outcome || e.Err != nil || !e.Decision.Allowed {
			t.Errorf("event %d: %+v", i+1, e)
		}
	}
	for i, left := range []int{1, 1, 0} { // the second's unit is back already
		if err := events[i].Decision.Undo(t.Context()); err != nil || used(t, unobserved) != left {
			t.Errorf("event %d: %d units used, %v; want %d", i+1, used(t, unobserved), err, left)
		}
	}
}

// What a key leaves in the context, as those of jwtkey leave claims, is there for callbacks and handlers.
func (s handlers[C]) contextOfKeys(t *testing.T) {
	var seen []any
	note := func(c C) { seen = append(seen, s.Context(c).Value(contextKey{})) }
	key := core.KeyOf("plan", func(r adapter.Request) (scope, text string, err error) {
		if q, ok := r.(adapter.ContextSetter); ok {
			q.SetContext(context.WithValue(r.Context(), contextKey{}, "pro"))
		}
		return "", "ann", nil
	})
	app := s.App(nil, func(c C) error { note(c); return s.served(c) },
		s.New(core.LimitBy(func(c C) core.Limits { note(c); return core.Limits{core.PerHour(3)} }), key,
			core.WithRefund(func(c C, _ int) bool { note(c); return false })))
	if w := get(t, app); w.Code != 200 || !slices.Equal(seen, []any{"pro", "pro", "pro"}) {
		t.Errorf("status %d, seen %v", w.Code, seen)
	}
}

// Frameworks use contexts and memory again. What a decision tells of its request stays that of its request, among many
// at the same time, of which some fail or panic.
func (s handlers[C]) pooled(t *testing.T) {
	const clients, rounds, users = 50, 20, 5
	var wrong, asked atomic.Int64
	user := core.By(func(c C) (string, error) { return s.Header(c, "User"), nil })
	l := limiterFor(t, core.NewMemoryStore(), core.Limits{core.PerHour(1 << 20), core.InFlight(clients)}, user,
		core.WithDecisionInContext(), core.WithRefund(func(c C, status int) bool {
			if asked.Add(1); s.Header(c, "Status") != strconv.Itoa(status) {
				wrong.Add(1)
			}
			return status != http.StatusOK
		}))
	app := s.App(nil, func(c C) error {
		if _, ok := core.DecisionFrom(s.Context(c)); !ok {
			wrong.Add(1)
		}
		switch s.Header(c, "Status") {
		case "404":
			return s.Error(404, "gone", nil)
		case "500":
			panic("boom")
		case "502":
			return s.Answer(c, 502, "down")
		}
		return s.served(c)
	}, func(next func(C) error) func(C) error {
		return func(c C) (err error) {
			defer func() {
				if recover() != nil {
					err = errPlain
				}
			}()
			return next(c)
		}
	}, s.From(l))
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for round := range rounds {
				status := []string{"200", "404", "500", "502"}[(i/users+round)%4]
				if w := get(t, app, "User", strconv.Itoa(i%users), "Status", status); strconv.Itoa(w.Code) != status {
					wrong.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if wrong.Load() > 0 || asked.Load() != clients*rounds {
		t.Errorf("%d wrong, %d asked, want %d", wrong.Load(), asked.Load(), clients*rounds)
	}
	for i := range users {
		d, err := l.Peek(t.Context(), strconv.Itoa(i))
		if limits := d.Limits(); err != nil || limits[0].Used != clients*rounds/users/4 || limits[1].Used != 0 {
			t.Errorf("%+v, %v", limits, err)
		}
	}
}
