package nethttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/nethttp"
)

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

func app(text func() string, limiters ...*core.Limiter) http.Handler {
	h := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text()) }
	return mount(http.HandlerFunc(h), limiters...)
}

func mount(h http.Handler, limiters ...*core.Limiter) http.Handler {
	for _, l := range slices.Backward(limiters) {
		h = nethttp.From(l)(h)
	}
	return h
}

func newLimiter(t *testing.T, p core.Policy, k core.Key, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// used returns what a key has used.
func used(t *testing.T, l *core.Limiter, key string) int {
	t.Helper()
	d, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

func TestAdapter(t *testing.T) {
	coretest.Adapter(t, coretest.AdapterConfig{App: app, Handler: mount})
}

func get(h http.Handler, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/", nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A callback for another framework, such as echo, is refused before the first request.
func TestForeignCallbacks(t *testing.T) {
	type foreign struct{}
	message := func(f func()) (s string) {
		defer func() { s, _ = recover().(error).Error(), true }()
		f()
		return ""
	}
	got := message(func() {
		nethttp.New(core.Limit{}, core.By(func(*foreign) (string, error) { return "", nil }),
			core.WithSkip(func(foreign) bool { return false }), core.WithName("A B"),
			core.WithRefund[*http.Request](nil))
	})
	for _, want := range []string{
		"the quota is out of range", "By(func(*nethttp_test.foreign))", "*http.Request",
		"WithSkip(func(nethttp_test.foreign))", `WithName("A B")`, "WithRefund(nil)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the panic says\n%s\nwant %q in it", got, want)
		}
	}
	l := newLimiter(t, core.PerSecond(1), core.By(func(*foreign) (string, error) { return "", nil }),
		core.WithRefund(func(foreign, int) bool { return true }))
	got = message(func() { nethttp.From(l) })
	for _, want := range []string{"By(func(*nethttp_test.foreign))", "WithRefund(func(nethttp_test.foreign))"} {
		if !strings.Contains(got, want) {
			t.Errorf("From: %s", got)
		}
	}
	if got := message(func() { nethttp.From(nil) }); !strings.Contains(got, "core.New") {
		t.Errorf("From(nil): %s", got)
	}
}
