package chilimit_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
)

// The callback is asked once, about the status that the client gets, wherever the limiter is mounted.
func TestRefund(t *testing.T) {
	for _, c := range []struct {
		desc, path string
		around     []func(http.Handler) http.Handler // in front of the limiter and behind it
		status     int
	}{
		{"no route", "/nowhere", nil, 404},
		{"no method", "/post", nil, 405},
		{"a wrapped writer", "/", chi.Middlewares{middleware.Compress(5)}, 404},
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
			r.Use(c.around...)
			r.Use(chilimit.From(l))
			r.Use(c.around...)
			r.Get("/", http.NotFound)
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
