package chilimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

// app mounts the limiters on routers within routers.
func app(text func() string, limiters ...*core.Limiter) http.Handler {
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
	coretest.Adapter(t, coretest.AdapterConfig{App: app, Handler: mount})
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func served(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") }
