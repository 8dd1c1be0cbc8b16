package chilimit_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
)

// Under Use of a router within a router the pattern is that of the mount, which all its routes would share.
func TestByRouteUnderUseOfInnerRouter(t *testing.T) {
	limit := func() func(http.Handler) http.Handler { return chilimit.New(core.PerMinute(1), chilimit.ByRoute()) }
	inner := func(r chi.Router) {
		r.Use(limit())
		r.Get("/users/{id}", served)
		r.Get("/posts/*", served)
		r.Get("/", served)
	}
	r := chi.NewRouter()
	r.Route("/v1", inner)
	r.Route("/a", func(r chi.Router) { r.Route("/{b}", inner) })
	r.With(limit()).Get("/plain", served)
	r.Route("/", func(r chi.Router) { r.Use(limit()); r.Get("/", served) })
	r.Group(func(r chi.Router) { // runs after routing
		r.Use(limit())
		r.Get("/group/{id}", served)
		r.Get("/files/*", served)
	})
	r.Route("/v2", func(r chi.Router) {
		r.With(limit()).Get("/users/{id}", served)
		r.With(limit()).Get("/posts/*", served)
		r.With(limit()).Get("/*", served)
	})
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/v1/users/1", 500}, {"/v1/posts/1", 500}, {"/v1/posts/", 500}, {"/v1/", 500}, {"/v1/nowhere", 500},
		{"/a/b/users/1", 500}, {"/a/b/", 500}, {"/", 500},
		{"/group/1", 200}, {"/files/1", 200}, {"/files/", 429},
		{"/v2/users/1", 200}, {"/v2/posts/1", 200}, {"/v2/posts/", 429},
		{"/v2/x", 200}, {"/v2/y", 429}, {"/v2/x%2Fy", 429}, {"/v2/", 200},
		{"/plain", 200}, {"/plain", 429},
	} {
		if w := get(r, c.path); w.Code != c.status {
			t.Errorf("%s: status %d, want %d", c.path, w.Code, c.status)
		}
	}
}

// A route that is all there is has the same pattern as a router that is mounted at "/".
func TestByRouteOfAllPaths(t *testing.T) {
	for _, clean := range []func(http.Handler) http.Handler{middleware.CleanPath, middleware.StripSlashes} {
		r := chi.NewRouter()
		r.Use(clean)
		r.With(chilimit.New(core.PerMinute(3), chilimit.ByRoute())).Get("/*", served)
		for i, path := range []string{"/", "//", "/a", "/"} {
			if w := get(r, path); w.Code != []int{200, 200, 200, 429}[i] {
				t.Errorf("%s: status %d", path, w.Code)
			}
		}
	}
}

// Middleware mounted by Use runs before chi has found the pattern. That is an error, and the log says what to do.
func TestByRouteTooEarly(t *testing.T) {
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	defer slog.SetDefault(before)
	r := chi.NewRouter()
	limit := chilimit.New(core.PerMinute(2), core.First(chilimit.ByRoute(), core.ByIP()))
	r.Use(limit)
	r.Get("/users/{id}", served)
	for range 3 {
		if w := get(r, "/users/lovelace"); w.Code != 500 {
			t.Errorf("status %d", w.Code)
		}
	}
	if w := get(limit(http.HandlerFunc(served)), "/"); w.Code != 500 {
		t.Errorf("without chi: status %d", w.Code)
	}
	got := b.String()
	for _, want := range []string{"a request is refused (500)", "policy=2-per-minute",
		"chilimit.ByRoute: the route is not known yet", "r.With(limit).Get(pattern, handler)"} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %s:\n%s", want, got)
		}
	}
	if strings.Count(got, "\n") != 1 || strings.Contains(got, "lovelace") || strings.Contains(got, "192.0.2.1") {
		t.Errorf("logged\n%s", got)
	}
}
