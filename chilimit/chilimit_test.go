package chilimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

// handler mounts the limiters on routers within routers.
func handler(text func() string, limiters ...*core.Limiter) http.Handler {
	root := chi.NewRouter()
	r := chi.Router(root)
	for i, l := range limiters {
		r.Use(chilimit.From(l))
		if i < len(limiters)-1 {
			inner := chi.NewRouter()
			r.Mount("/", inner)
			r = inner
		}
	}
	r.HandleFunc("/*", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text()) })
	return root
}

func mount(next http.Handler, limiters ...*core.Limiter) http.Handler {
	r := chi.NewRouter()
	for _, l := range limiters {
		r.Use(chilimit.From(l))
	}
	r.Handle("/*", next)
	return r
}

func TestAdapter(t *testing.T) {
	coretest.Adapter(t, coretest.AdapterConfig{
		Serve: func(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
			return coretest.HTTP1(t, handler(text, limiters...))
		},
		HTTP2: func(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
			return coretest.HTTP2(t, handler(text, limiters...))
		},
		Handler: mount,
	})
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func served(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") }

// Middleware mounted by Use runs before chi has found the pattern. That is an error, which says what to do.
func TestByRouteTooEarly(t *testing.T) {
	var said error
	limit := chilimit.New(core.PerMinute(2), core.First(chilimit.ByRoute(), core.ByIP()),
		chilimit.WithError(func(_ http.ResponseWriter, _ *http.Request, err error) { said = err }))
	r := chi.NewRouter()
	r.Use(limit)
	r.Get("/users/{id}", served)
	for range 3 {
		const remedy = "r.With(limit).Get(pattern, handler)"
		if w := get(r, "/users/1"); w.Code != 500 || said == nil || !strings.Contains(said.Error(), remedy) {
			t.Errorf("status %d, error %v", w.Code, said)
		}
	}
	if w := get(limit(http.HandlerFunc(served)), "/"); w.Code != 500 {
		t.Errorf("without chi: status %d", w.Code)
	}
}

func TestDenyHandler(t *testing.T) {
	r := chi.NewRouter()
	r.Use(chilimit.New(core.PerMinute(1), core.ByIP(),
		chilimit.WithDeny(func(w http.ResponseWriter, r *http.Request, d core.Decision) {
			w.WriteHeader(503)
			io.WriteString(w, r.URL.Path+" "+d.Policy)
		})))
	r.Get("/", served)
	get(r, "/")
	if w := get(r, "/"); w.Code != 503 || w.Body.String() != "/ 1-per-minute" {
		t.Errorf("status %d, body %s", w.Code, w.Body)
	}
}

func TestClientIP(t *testing.T) {
	serve := func(_ *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
		return coretest.InProcess(handler(text, limiters...))
	}
	coretest.ClientIP(t, serve)
}
