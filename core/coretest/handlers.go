package coretest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sashlimit/sash/core"
)

// Middleware wraps handlers of a framework whose context is C.
type Middleware[C any] = func(next func(C) error) func(C) error

// HandlersConfig says how a framework with contexts of its own is used with the adapter under test. C is the type of
// these contexts.
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
	SetStatus  func(c C, status int)
	Write      func(c C, text string) error // without a status
	Answer     func(c C, status int, text string) error
	Set        func(c C, key string, value any)
	Context    func(C) context.Context
	SetContext func(C, context.Context)

	// Error, and what follows, is for frameworks whose handlers return errors. Without it, the suite's return nil.
	Error   func(status int, text string, cause error) error // of the framework's type
	IsError func(error) (status int, text string, ok bool)
	Body    func(status int, text string) string // with which the framework's own handler answers an Error
	Plain   func(text string) string             // and any other error

	Late       Middleware[C]            // of the framework: a timeout of a nanosecond, answered with 503
	Middleware map[string]Middleware[C] // the framework's, for both sides of the limiter
	Refunds    []Refund[C]              // of the framework
}

// handlers is the suite of one adapter.
type handlers[C any] struct{ HandlersConfig[C] }

// Handlers tests what an adapter adds for a framework with contexts of its own: WithDeny, callbacks, and what is in
// contexts; and if handlers return errors, WithError, the answers of error handlers, and which status WithRefund gets.
// [Adapter] tests everything else.
func Handlers[C any](t *testing.T, c HandlersConfig[C]) {
	s := handlers[C]{c}
	tests := map[string]func(*testing.T){
		"Refusals": s.refusals, "Callbacks": s.callbacks, "Values": s.values, "Pooled": s.pooled,
	}
	if c.Error != nil {
		c.Middleware["nothing"] = nothing[C]
		tests["Panics"], tests["Refunds"] = s.panics, s.refunds
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

var (
	errConflict = errors.New("a conflict")
	errPlain    = errors.New("plain")
	errUnknown  = errors.New("what the application's own handler returns, where it may")
)

func nothing[C any](next func(C) error) func(C) error { return next }

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

// hangUpKey is for a function in the context of requests, by which the client leaves.
type hangUpKey struct{}

func withHangUp(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, hangUpKey{}, f)
}
func hangUp(ctx context.Context) { ctx.Value(hangUpKey{}).(func())() }

// get sends GET / to h as ann, with more header fields, and undoes compression.
func get(t *testing.T, h http.Handler, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(withHangUp(ctx, cancel), http.MethodGet, "/", nil)
	header = append([]string{"User", "ann", "Accept-Encoding", "gzip"}, header...)
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i+1] == "" {
			r.Header.Del(header[i])
		} else if header[i] == "Content-Type" {
			r.Method = http.MethodPost
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
