package chilimit_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
)

// The callback is asked once, about the status that the client gets, wherever the limiter is mounted.
func TestRefund(t *testing.T) {
	for _, c := range []struct {
		desc    string
		path    string
		handler http.HandlerFunc
		inner   func(http.Handler) http.Handler
		outer   func(http.Handler) http.Handler
		status  int
		asked   int
	}{
		{"no route", "/nowhere", served, nil, nil, 404, 404},
		{"no method", "/post", served, nil, nil, 405, 405},
		{"a panic caught by middleware.Recoverer", "/", boom, nil, quiet(middleware.Recoverer), 500, 500},
		{"a wrapped writer", "/", http.NotFound, middleware.Compress(5), middleware.Compress(5), 404, 404},
	} {
		t.Run(c.desc, func(t *testing.T) {
			var asked []int
			l, err := core.New(core.PerMinute(9), core.ByIP(), core.WithRefund(func(_ *http.Request, status int) bool {
				asked = append(asked, status)
				return len(asked) == 1
			}))
			if err != nil {
				t.Fatal(err)
			}
			r := chi.NewRouter()
			if c.outer != nil {
				r.Use(c.outer)
			}
			r.Use(chilimit.From(l))
			if c.inner != nil {
				r.Use(c.inner)
			}
			r.Get("/", c.handler)
			r.Post("/post", served)
			for i := range 2 { // the first is given back, the second is not
				if w := get(r, c.path); w.Code != c.status {
					t.Errorf("status %d, want %d", w.Code, c.status)
				}
				if d, err := l.Peek(t.Context(), "192.0.2.1"); err != nil || d.Used != i {
					t.Errorf("%d units used, %v; want %d", d.Used, err, i)
				}
			}
			if !slices.Equal(asked, []int{c.asked, c.asked}) {
				t.Errorf("asked about %v, want %d twice", asked, c.asked)
			}
		})
	}
}

func boom(http.ResponseWriter, *http.Request) { panic("boom") }

// quiet discards what chi's middleware would print.
func quiet(of func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		h := of(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, middleware.WithLogEntry(r, silence{}))
		})
	}
}

type silence struct{}

func (silence) Write(int, int, http.Header, time.Duration, any) {}
func (silence) Panic(any, []byte)                               {}
