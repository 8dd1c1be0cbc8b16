package nethttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/nethttp"
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
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Hello!") })

	handler := nethttp.New(core.PerHour(2), core.ByIP())(mux) // and http.ListenAndServe(":8080", handler)

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("Content-Type"))
	}
	// Output:
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=utf-8
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=utf-8
	// 429 "2-per-hour";q=2;w=3600 application/problem+json
}

// Clients with an API key have a quota of their own, wherever they are. All other requests count by address. A key
// function takes an *http.Request.
func ExampleNew_key() {
	customers := map[string]string{"key-1": "ann", "key-2": "bob"}
	customer := func(r *http.Request) (string, error) {
		return customers[r.Header.Get("X-API-Key")], nil // an empty string is no key
	}
	limit := nethttp.New(core.PerHour(1), core.First(core.By(customer), core.ByIP()))
	handler := limit(http.HandlerFunc(hello))

	for _, key := range []string{"key-1", "key-2", "made up", "made up too"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-API-Key", key)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(key, w.Code)
	}
	// Output:
	// key-1 200
	// key-2 200
	// made up 200
	// made up too 429
}

// Each client address has a quota for every pattern of a mux. The mux tells the pattern to the handlers behind it, so
// the limiter goes around each of them and not around the mux.
func ExampleNew_route() {
	route := core.By(func(r *http.Request) (string, error) { return r.Pattern, nil })
	limit := nethttp.New(core.PerHour(1), core.Join(route, core.ByIP()),
		nethttp.WithDeny(func(w http.ResponseWriter, _ *http.Request, _ core.Decision) {
			io.WriteString(w, "slow down")
		}))
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", limit(http.HandlerFunc(hello)))
	mux.Handle("GET /teams/{id}", limit(http.HandlerFunc(hello)))

	show(mux, "/users/1")
	show(mux, "/users/2")
	show(mux, "/teams/1")
	// Output:
	// /users/1 200 Hello!
	// /users/2 429 slow down
	// /teams/1 200 Hello!
}

// Retry-After and the RateLimit fields are set already, and so is the status.
func ExampleWithDeny() {
	limit := nethttp.New(core.PerHour(1), core.ByIP(),
		nethttp.WithDeny(func(w http.ResponseWriter, _ *http.Request, d core.Decision) {
			fmt.Fprintf(w, "slow down: %s", d.Violated[0])
		}))
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Hello!") }))

	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Body, w.Header().Get("Retry-After") != "")
	}
	// Output:
	// 200 Hello! false
	// 429 slow down: 1-per-hour true
}

// The error is for operators: do not send its text to clients.
func ExampleWithError() {
	limit := nethttp.New(core.PerHour(1), core.ByHeader("X-API-Key", core.Unverified),
		nethttp.WithError(func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "send your X-API-Key", core.ProblemOf(err).Status)
		}))

	show(limit(http.HandlerFunc(hello)), "/")
	// Output:
	// / 400 send your X-API-Key
}

// Without a key a request is refused with 400, or with 401 where the key is a credential. Other errors keep their
// status.
func ExampleWithError_unauthorized() {
	verify := func(_ context.Context, token string) (string, error) {
		if token == "Bearer of the database" {
			return "", errors.New("the database does not answer")
		}
		return "", core.ErrNoKey
	}
	limit := nethttp.New(core.PerHour(1), core.ByHeader("Authorization", verify),
		nethttp.WithError(func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, core.ErrNoKey) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="api"`)
				w.WriteHeader(http.StatusUnauthorized)
			}
		}))
	for _, token := range []string{"", "Bearer of nobody", "Bearer of the database"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", token)
		w := httptest.NewRecorder()
		limit(http.HandlerFunc(hello)).ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("WWW-Authenticate"))
	}
	// Output:
	// 401 Bearer realm="api"
	// 401 Bearer realm="api"
	// 500
}

// The limiter of the middleware is also there for your own code, such as that which gives an address its quota back.
func ExampleFrom() {
	limiter, err := core.New(core.PerHour(1), core.ByIP(),
		nethttp.WithDeny(func(w http.ResponseWriter, _ *http.Request, _ core.Decision) {
			io.WriteString(w, "slow down")
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := nethttp.From(limiter)(http.HandlerFunc(hello))

	show(handler, "/")
	show(handler, "/")
	if err := limiter.Reset(context.Background(), "192.0.2.1"); err != nil {
		fmt.Println(err)
	}
	show(handler, "/")
	// Output:
	// / 200 Hello!
	// / 429 slow down
	// / 200 Hello!
}

// A test makes the app anew, so that its memory store is empty, and sends requests with httptest. Clients
// differ by RemoteAddr.
func Example_testing() {
	newApp := func() http.Handler { // that of your program
		return nethttp.New(core.PerHour(1), core.ByIP())(http.HandlerFunc(hello))
	}

	app := newApp()
	for _, client := range []string{"192.0.2.1:1234", "192.0.2.1:1235", "192.0.2.2:1234"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = client
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		fmt.Println(client, w.Code)
	}
	// Output:
	// 192.0.2.1:1234 200
	// 192.0.2.1:1235 429
	// 192.0.2.2:1234 200
}

// The handler learns how many requests are left. A request with a cost is charged that in place of one unit.
func Example_decisionInHandler() {
	limit := nethttp.New(core.PerHour(10), core.ByIP(), core.WithDecisionInContext())
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		decision, ok := core.DecisionFrom(r.Context())
		if cost, err := strconv.Atoi(r.FormValue("cost")); ok && err == nil {
			if err := decision.Settle(r.Context(), cost); err != nil {
				slog.Warn("not charged", "error", err)
			}
		}
		fmt.Fprintf(w, "10 an hour, %d left", decision.Remaining)
	}))

	for _, path := range []string{"/?cost=3", "/", "/"} {
		show(handler, path)
	}
	// Output:
	// /?cost=3 200 10 an hour, 9 left
	// / 200 10 an hour, 6 left
	// / 200 10 an hour, 5 left
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
	handler := nethttp.Rules(set)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, path := range []string{"/login", "/login", "/"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
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
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, rule := range nethttp.Explain(set, r).Rules {
		fmt.Println(rule.Name, rule.Applies, rule.Reason)
	}
	// Output:
	// login false match.path: the request's path does not match /login
	// rest true
}
