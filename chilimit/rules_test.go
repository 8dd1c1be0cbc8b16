package chilimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/nethttp"
)

const loginRules = `
rules:
- {name: login, match: {path: /api/acme/login}, key: ip, limits: [100/day]}
- {name: page, match: {path: /api/acme/2024-06}, key: ip, limits: [100/day]}
- {name: files, match: {path: /api/acme/files/}, key: ip, limits: [100/day]}
- {name: rest, key: ip, limits: [100/day]}
`

// policies returns the rules that have decided about a request.
func policies(w *httptest.ResponseRecorder) string {
	var names []string
	for policy := range strings.SplitSeq(w.Header().Get("RateLimit-Policy"), ", ") {
		name, _, _ := strings.Cut(strings.Trim(policy, `"`), "-")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// Below a mount, chi's own path is what is left of the request's. Rules match the whole path all the same.
func TestRulesInMountedRouters(t *testing.T) {
	set, err := rules.Parse([]byte(loginRules), "limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rewrite := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if path, old := strings.CutPrefix(r.URL.Path, "/old"); old {
				chi.RouteContext(r.Context()).RoutePath = path
			}
			next.ServeHTTP(w, r)
		})
	}
	var explained string
	explain := func(_ http.ResponseWriter, r *http.Request) {
		explained = ""
		for _, rule := range chilimit.Explain(set, r).Rules {
			if rule.Applies {
				explained += " " + rule.Name
			}
		}
	}
	routes := func(r chi.Router) {
		r.Get("/login", explain)
		r.Get("/{year}-{month}", explain)
		r.Get("/files/*", explain)
		r.Get("/", explain)
		r.Get("/x{id}", explain)
	}
	for name, mount := range map[string]func(r chi.Router){
		"use": func(r chi.Router) {
			r.Route("/api/{tenant:[a-z]{4}}", func(r chi.Router) { r.Use(chilimit.Rules(set)); routes(r) })
		},
		"with": func(r chi.Router) {
			r.Route("/api/{tenant}", func(r chi.Router) { routes(r.With(chilimit.Rules(set))) })
		},
		"twice": func(r chi.Router) {
			r.Route("/api", func(r chi.Router) {
				r.Route("/{tenant}", func(r chi.Router) { r.Use(chilimit.Rules(set)); routes(r) })
			})
		},
		"with mount": func(r chi.Router) {
			inner := chi.NewRouter()
			routes(inner)
			r.With(chilimit.Rules(set)).Mount("/api/{tenant}", inner)
		},
	} {
		for path, want := range map[string]string{
			"/api/acme/login": "login", "/api/acme/login/": "login rest", "/api/acme/login.json": "login rest",
			"/old/api/acme/login": "login rest", "/old/api/acme/login/": "login rest",
			"//api//acme//login": "login rest",
			"/api/acme/2024-06":  "page", "/old/api/acme/2024-06": "page rest", "/api/acme/files/a/": "files",
			"/old/api/acme/files/x": "files rest", "/api/acme": "rest",
			"/api/acme/": "rest", "/api/acme/x7": "rest", "/old/api/acme/x7": "rest",
		} {
			r := chi.NewRouter()
			r.Use(rewrite, middleware.CleanPath, middleware.StripSlashes, middleware.URLFormat)
			mount(r)
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://a.example"+path, nil))
			if got := policies(w); w.Code != 200 || got != want || explained != " "+want {
				t.Errorf("%s: %s: %d, %s explained as%s, want %s", name, path, w.Code, got, explained, want)
			}
		}
	}
}

// Reading chi's path, and what may be left of the request's, costs nothing where rules are the same for all of them.
func TestRulesAllocateNothing(t *testing.T) {
	set, err := rules.Parse([]byte(loginRules), "limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cost := func(path string, limit func(http.Handler) http.Handler) float64 {
		r := chi.NewRouter()
		r.Use(middleware.CleanPath)
		r.Route("/api/{tenant}", func(r chi.Router) {
			r.Use(limit)
			r.Get("/*", func(http.ResponseWriter, *http.Request) {})
		})
		q, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
		return testing.AllocsPerRun(200, func() {
			clear(w.Header())
			r.ServeHTTP(w, q)
		})
	}
	for _, path := range []string{"/api/acme/login", "/api/acme/files/app.min.js"} {
		if got, want := cost(path, chilimit.Rules(set)), cost(path, nethttp.Rules(set)); got > want {
			t.Errorf("%s: %v allocations, want the %v of package nethttp", path, got, want)
		}
	}
}
