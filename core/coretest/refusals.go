package coretest

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// The bodies of the refusals of one a minute.
var minuteBody = strings.NewReplacer("10 seconds", "60 seconds", "3-per-10s", "1-per-minute").Replace(deniedBody)

// The handler of denials answers, and the handler behind the limiter does not run.
func (s handlers[C]) deny(t *testing.T) {
	type denial struct {
		desc   string
		deny   func(C, core.Decision) error
		status int
		body   string
	}
	denials := []denial{
		{"writes nothing", func(C, core.Decision) error { return nil }, 429, ""},
		{"sets a status", func(c C, _ core.Decision) error { s.SetStatus(c, 418); return nil }, 418, ""},
		{"writes a body", func(c C, _ core.Decision) error { return s.Write(c, "slow down") }, 429, "slow down"},
		{"writes both", func(c C, d core.Decision) error {
			return s.Answer(c, 503, fmt.Sprint(d.RetryAfter.Seconds() > 59))
		}, 503, "true"},
	}
	if s.Error != nil {
		denials = append(denials, denial{"returns an error", func(C, core.Decision) error {
			return s.Error(420, "calm", nil)
		}, 420, s.Body(420, "calm")})
	}
	for _, c := range denials {
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

// What a user writes is the answer to gRPC as well: the limiter's handlers, and the application's own.
func (s handlers[C]) calls(t *testing.T) {
	limit := func(opts ...core.Option) Middleware[C] { return s.New(core.PerMinute(1), core.Global(), opts...) }
	deny := s.WithDeny(func(c C, _ core.Decision) error { return s.Answer(c, 503, "denied") })
	apps := map[string]http.Handler{"503 denied": s.App(nil, s.served, limit(deny))}
	if s.Error != nil {
		apps["429 central Quota Exceeded"] = s.App(s.central(new([]error)), s.served, limit())
	}
	for want, app := range apps {
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
