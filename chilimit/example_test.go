package chilimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
)

// show prints how h answers a request for path. Requests of httptest.NewRequest come from 192.0.2.1.
func show(h http.Handler, path string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	fmt.Println(path, w.Code, w.Body)
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Hello!") }

// Each client address may send two requests in any hour.
func ExampleNew() {
	r := chi.NewRouter()
	r.Use(chilimit.New(core.PerHour(2), core.ByIP()))
	r.Get("/", hello)

	for range 3 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("Content-Type"))
	}
	// Output:
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=utf-8
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=utf-8
	// 429 "2-per-hour";q=2;w=3600 application/problem+json
}

// The error is for operators: do not send its text to clients.
func ExampleWithError() {
	r := chi.NewRouter()
	r.Use(chilimit.New(core.PerHour(1), core.ByHeader("X-API-Key", core.Unverified),
		chilimit.WithError(func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "send your X-API-Key", core.ProblemOf(err).Status)
		}),
	))
	r.Get("/", hello)

	show(r, "/")
	// Output:
	// / 400 send your X-API-Key
}

// Each client address has a quota for every route. The route is the pattern, so its parameters do not matter. chi
// knows it where the limiter is mounted with With.
func ExampleByRoute() {
	limit := chilimit.New(core.PerHour(1), core.Join(chilimit.ByRoute(), core.ByIP()),
		chilimit.WithDeny(func(w http.ResponseWriter, _ *http.Request, _ core.Decision) {
			io.WriteString(w, "slow down")
		}))
	r := chi.NewRouter()
	r.With(limit).Get("/users/{id}", hello)
	r.With(limit).Get("/teams/{id}", hello)

	show(r, "/users/1")
	show(r, "/users/2")
	show(r, "/teams/1")
	// Output:
	// /users/1 200 Hello!
	// /users/2 429 slow down
	// /teams/1 200 Hello!
}

const limits = `
rules:
- name: login
  match: {path: /login}
  key: ip
  limits: [1/minute]
- name: rest
  key: ip
  limits: [100/minute]
`

// The limits are rules of a file.
func ExampleRules() {
	set, err := rules.Parse([]byte(limits), "limits.yaml") // rules.Load reads a file
	if err != nil {
		fmt.Println(err)
		return
	}
	r := chi.NewRouter()
	r.Use(chilimit.Rules(set))
	r.Get("/*", func(http.ResponseWriter, *http.Request) {})
	for _, path := range []string{"/login", "/login", "/"} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /login 200
	// /login 429
	// / 200
}

// A page for support tells which rules apply to a request, and what they have left.
func ExampleExplain() {
	set, err := rules.Parse([]byte(limits), "limits.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	r := chi.NewRouter()
	r.Get("/*", func(_ http.ResponseWriter, r *http.Request) {
		for _, rule := range chilimit.Explain(set, r).Rules {
			fmt.Println(rule.Name, rule.Applies, rule.Reason)
		}
	})
	r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	// Output:
	// login false match.path: the request's path does not match /login
	// rest true
}
