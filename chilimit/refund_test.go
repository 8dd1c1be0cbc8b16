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
		desc, path   string
		handler      http.HandlerFunc
		outer, inner uses // of the limiter
		status       int
	}{
		{"no route", "/nowhere", served, nil, nil, 404},
		{"no method", "/post", served, nil, nil, 405},
		{"a panic caught by middleware.Recoverer", "/", boom, uses{quiet, middleware.Recoverer}, nil, 500},
		{"a wrapped writer", "/", http.NotFound, uses{middleware.Compress(5)}, uses{middleware.Compress(5)}, 404},
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
			r.Use(c.outer...)
			r.Use(chilimit.From(l))
			r.Use(c.inner...)
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
			if !slices.Equal(asked, []int{c.status, c.status}) {
				t.Errorf("asked about %v, want %d twice", asked, c.status)
			}
		})
	}
}

func boom(http.ResponseWriter, *http.Request) { panic("boom") }

type uses = []func(http.Handler) http.Handler

// quiet discards what chi's middleware would print.
func quiet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, middleware.WithLogEntry(r, silence{}))
	})
}

type silence struct{}

func (silence) Write(int, int, http.Header, time.Duration, any) {}
func (silence) Panic(any, []byte)                               {}
