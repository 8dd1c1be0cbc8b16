package coretest

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// minuteBody is the body of a denial by one a minute.
var minuteBody = strings.NewReplacer("10 seconds", "60 seconds", "3-per-10s", "1-per-minute").Replace(deniedBody)

// refused is a request that is not served. It is the second of a user whom deny answers, or if that is nil, one
// without a key. By default, the limiter answers with its problem document.
type refused[C any] struct {
	desc    string
	deny    func(C, core.Decision) error
	fail    func(C, error) error
	status  int
	body    string // of the framework's own error handler
	central string // of the application's
	plain   bool   // neither handler is set
}

func (s handlers[C]) refused() []refused[C] {
	all := []refused[C]{
		{desc: "writes nothing", deny: func(C, core.Decision) error { return nil }, status: 429},
		{desc: "sets a status", status: 418,
			deny: func(c C, _ core.Decision) error { s.SetStatus(c, 418); return nil }},
		{desc: "writes a body", deny: func(c C, _ core.Decision) error { return s.Write(c, "slow") }, status: 429,
			body: "slow", central: "slow"},
		{desc: "writes both", deny: func(c C, d core.Decision) error {
			return s.Answer(c, 503, fmt.Sprint(d.RetryAfter.Seconds() > 59))
		}, status: 503, body: "true", central: "true"},
	}
	if s.Error == nil {
		return all
	}
	errOwn := errors.New("own")
	late := refused[C]{desc: "d.Err() after a body", deny: func(c C, d core.Decision) error {
		s.Answer(c, 503, "slow down")
		return d.Err()
	}, status: 503, body: "slow down", central: "slow down"}
	if s.Buffers {
		late.status, late.body, late.central = 429, minuteBody, "central Quota Exceeded"
	}
	denial := func(_ C, d core.Decision) error { return d.Err() }
	const exceeded, bad = "central Quota Exceeded", "central Bad Request"
	return append(all, late,
		refused[C]{"a denial", denial, nil, 429, minuteBody, exceeded, true},
		refused[C]{"no key", nil, nil, 400, noKeyBody, bad, true},
		refused[C]{"d.Err()", denial, nil, 429, minuteBody, exceeded, false},
		refused[C]{"d.Err(), wrapped", func(_ C, d core.Decision) error { return fmt.Errorf("denied: %w", d.Err()) },
			nil, 429, minuteBody, exceeded, false},
		refused[C]{"an error", func(C, core.Decision) error { return s.Error(420, "calm", nil) },
			nil, 420, s.Body(420, "calm"), "central calm", false},
		refused[C]{"an error around d.Err()", func(_ C, d core.Decision) error { return s.Error(420, "calm", d.Err()) },
			nil, 420, s.Body(420, "calm"), "central calm", false},
		refused[C]{"another error", func(C, core.Decision) error { return errOwn }, nil, 500, s.Plain("own"),
			"central", false},
		refused[C]{"err", nil, func(_ C, err error) error { return err }, 400, noKeyBody, bad, false},
		refused[C]{"err, wrapped", nil, func(_ C, err error) error { return fmt.Errorf("here: %w", err) },
			400, noKeyBody, bad, false},
		refused[C]{"another error for err", nil, func(C, error) error { return errOwn }, 500, s.Plain("own"),
			"central", false},
		refused[C]{"a status for err", nil, func(c C, err error) error {
			return s.Answer(c, 401, core.ProblemOf(err).Title)
		}, 401, "Bad Request", "Bad Request", false},
	)
}

// refusals: behind any middleware, a refusal reaches the client as a handler of refusals has answered it, else as the
// problem document or as the application's error handler writes it. That one is alone to write, and gets the decision.
// Outer middleware sees no other error, and the handler behind the limiter does not run.
func (s handlers[C]) refusals(t *testing.T) {
	outside := s.Middleware
	if outside == nil {
		outside = map[string]Middleware[C]{"nothing": nothing[C]}
	}
	for _, c := range s.refused() {
		for name, outer := range outside {
			for _, own := range []bool{false, true}[:1+min(len(s.Middleware), 1)] {
				desc := fmt.Sprintf("%s, behind %s, own handler %v", c.desc, name, own)
				ran, user := 0, ""
				var seen error
				var handled []error
				body, onError := c.body, (func(C, error) error)(nil)
				if own {
					body, onError = c.central, s.central(&handled)
				}
				opts := []core.Option{}
				switch {
				case c.deny != nil && !c.plain:
					opts = append(opts, s.WithDeny(c.deny))
				case c.fail != nil:
					opts = append(opts, s.WithError(c.fail))
				}
				app := s.App(onError, func(c C) error { ran++; return s.served(c) }, outer, s.observe(&seen),
					s.New(core.PerMinute(1), byUser, opts...))
				want := 0
				if c.deny != nil {
					user, want = "ann", 1
					if w := get(t, app, "User", user); w.Code != 200 || w.Body.String() != text || seen != nil ||
						len(handled) > 0 || w.Header().Get("Retry-After") != "" {
						t.Errorf("%s: served with status %d, body %q, %v, %v", desc, w.Code, w.Body, seen, handled)
					}
				}
				header := []string{"User", user}
				if name == "nothing" && (own || c.body != minuteBody && c.body != noKeyBody) {
					header = append(header, "Content-Type", "application/grpc") // for which it is the answer, too
				}
				w := get(t, app, header...)
				if retry := w.Header().Get("Retry-After"); w.Code != c.status || w.Body.String() != body ||
					ran != want || (retry == "60") != (user != "") || w.Header().Get("Grpc-Status") != "" {
					t.Errorf("%s: status %d, body %q, Retry-After %q, %d served; want %d, %q",
						desc, w.Code, w.Body, retry, ran, c.status, body)
				}
				if !c.plain {
					continue
				}
				document := w.Header().Get("Content-Type") == adapter.ProblemType
				if document == own || (seen != nil) != own || (len(handled) == 1) != own {
					t.Errorf("%s: header %v, outer middleware sees %v, the error handler %v",
						desc, w.Header(), seen, handled)
				}
				var limited *core.LimitedError
				if isLimited := errors.As(seen, &limited); own && (isLimited != (user != "") ||
					isLimited == errors.Is(seen, core.ErrNoKey)) ||
					isLimited && (limited.Decision.Allowed || limited.Decision.RetryAfter == 0) {
					t.Errorf("%s: the error is %v", desc, seen)
				}
			}
		}
	}
}

var lineOfPanic = regexp.MustCompile(`a handler of refused requests has panicked".* policy=api place=.* value=(\S+)`)

// A panic in a handler of refusals goes on to the middleware that recovers from it, or is answered, as in a callback.
// One that is answered is logged once, without what it was called with.
func (s handlers[C]) panics(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	try := func(onError func(C, error) error, body string, key core.Key, opt core.Option, value any) {
		t.Helper()
		log.Reset()
		app := s.App(onError, s.served, s.New(core.PerMinute(1), key, opt, core.WithName("api")))
		defer func() {
			if p := recover(); p != value && !s.Buffers || p != nil && s.Buffers {
				t.Errorf("recovered %v of %v", p, value)
			}
		}()
		for i := range 4 {
			if w := get(t, app, "User", ""); i > 0 && (w.Code != 500 || w.Body.String() != body) {
				t.Errorf("status %d, body %q; want %q", w.Code, w.Body, body)
			}
		}
		told := lineOfPanic.FindAllStringSubmatch(log.String(), -1)
		if len(told) != 1 || told[0][1] != fmt.Sprintf("%T", value) || strings.Contains(log.String(), "ada@") {
			t.Errorf("logged\n%s; want one line with the type of %v", log.String(), value)
		}
	}
	for _, value := range []any{"ada@example.com", http.ErrAbortHandler} {
		for body, onError := range map[string]func(C, error) error{
			brokenBody: nil, "central Internal Server Error": s.central(new([]error)),
		} {
			try(onError, body, byUser, s.WithError(func(C, error) error { panic(value) }), value)
			try(onError, body, core.Global(), s.WithDeny(func(C, core.Decision) error { panic(value) }), value)
		}
	}
}
