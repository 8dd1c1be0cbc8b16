package coretest

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/internal/testlen"
)

// RoutesConfig says how to serve with an adapter's Rules.
type RoutesConfig struct {
	// Serve limits by the rules of a file and returns the address of a server, which has routes for /health, /login,
	// /v1/ with what is below it, and /users/ID. Each answers with its first word.
	Serve func(t *testing.T, rules string) (address string)

	// AnyCase says that the router does not tell capitals from small letters. The last route is then /Users/ID.
	AnyCase bool
}

// Routes tests that the rule for a route applies in whatever spelling of its path the router takes.
func Routes(t *testing.T, c RoutesConfig) {
	const text = `
apply: %s
rules:
- {name: health, match: {path: /health}, unlimited: true}
- {name: login, match: {path: /login}, key: global, limits: [1000000/day]}
- {name: v1, match: {path: /v1/}, key: global, limits: [1000000/day]}
- {name: users, match: {path: "/Users/{id}"}, key: global, limits: [1000000/day]}
`
	for _, apply := range []string{"first", "all"} {
		t.Run(apply, func(t *testing.T) {
			text := fmt.Sprintf(text, apply)
			if !c.AnyCase {
				text = strings.ToLower(text)
			}
			if odd := trySpellings(t, c.Serve(t, text)); odd < 5 {
				t.Errorf("only %d odd spellings were served", odd)
			}
		})
	}
	t.Run("requests", func(t *testing.T) { rulesOfRequests(t, c) })
}

// rulesOfRequests checks what rules see of a request, and how they answer.
func rulesOfRequests(t *testing.T, c RoutesConfig) {
	address := c.Serve(t, `
rules:
- {name: host, match: {host: api.example.com, methods: [GET]}, key: ip, limits: [2/day]}
- name: user
  match: {path: "/users/{id}"}
  key: {header: X-User, verify: unverified}
  limits: [1/day, {limit: 3/day, key: global}]
- {name: v1, match: {path: /v1/, headers: {X-Plan: [free, trial]}}, key: route, limits: [1/day]}
- name: login
  match: {path: /login}
  key: ip
  limits: [1/day]
  deny: {key: {header: X-User, verify: unverified}, values: [mallory]}
`)
	for i, c := range []struct {
		ask, host, user, plan string
		refused               int
		limits                string // RateLimit
	}{
		{ask: "GET /x", host: "API.example.com:99", limits: `"host-2-per-day";r=1;t=86400`},
		{ask: "POST /x", host: "api.example.com"},
		{ask: "GET /x", host: "api.example.com.", limits: `"host-2-per-day";r=0;t=86400`},
		{ask: "GET /y", host: "api.example.com", refused: 429, limits: `"host-2-per-day";r=0;t=86400`},
		{ask: "GET /users/1", user: "a", limits: `"user-1-per-day";r=0;t=86400, "user-3-per-day";r=2;t=86400`},
		{ask: "GET /users/2", user: "a", refused: 429, limits: `"user-1-per-day";r=0;t=86400`},
		{ask: "GET /users/2", refused: 400},
		{ask: "GET /v1/a", plan: "free", limits: `"v1-1-per-day";r=0;t=86400`},
		{ask: "GET /v1/b/c", plan: "trial", refused: 429, limits: `"v1-1-per-day";r=0;t=86400`},
		{ask: "GET /login", user: "mallory", refused: 403},
	} {
		method, path, _ := strings.Cut(c.ask, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		for name, value := range map[string]string{"X-User": c.user, "X-Plan": c.plan} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		w.Body.Close()
		refused := w.StatusCode == 400 || w.StatusCode == 403 || w.StatusCode == 429
		if limits := w.Header.Get("RateLimit"); limits != c.limits || refused != (c.refused > 0) ||
			refused && w.StatusCode != c.refused {
			t.Errorf("%d: %+v: status %d, RateLimit %s", i, c, w.StatusCode, limits)
		}
	}
}

// trySpellings sends paths and returns how many odd ones were served by a route with a limit.
func trySpellings(t *testing.T, address string) (odd int) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range testlen.Of(400, 1500) {
		base := []string{"/login", "/v1", "/v1/x", "/v1/x/y", "/users/7", "/health"}[r.IntN(6)]
		path := spelled(r, base)
		if i == 0 { // fiber's UnescapePath decodes what net/url refuses, and routes by what it has not cleaned
			path = "/v1%2f../x%"
		}
		w, route := getRaw(t, address, path)
		if w.StatusCode != http.StatusOK || route == "" || route == "health" {
			continue
		}
		if path != base {
			odd++
		}
		if limits := w.Header.Get("RateLimit-Policy"); !strings.Contains(limits, `"`+route+"-") {
			t.Errorf("seed %#x: %s is served by %s, and limited by %q", seed, path, route, limits)
		}
	}
	return odd
}

// getRaw sends a path as it is, which an http.Client does not.
func getRaw(t *testing.T, address, path string) (w *http.Response, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a.example\r\n\r\n", path)
	if w, err = http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w, string(b)
}

// spelled returns a path in another spelling.
func spelled(r *rand.Rand, path string) string {
	for range r.IntN(4) {
		at := r.IntN(len(path))
		switch r.IntN(11) {
		case 0:
			path += "/"
		case 1:
			path = path[:at] + strings.ToUpper(path[at:])
		case 2:
			if path[at] != '%' {
				path = path[:at] + fmt.Sprintf("%%%02x", path[at]) + path[at+1:]
			}
		case 3:
			path = strings.Replace(path, "/", "%2F", 1+r.IntN(2))
			path = "/" + strings.TrimPrefix(path, "%2F")
		case 4:
			path = strings.Replace(path, "/", "//", 1)
		case 5:
			path = []string{"/x/..", "/.", "/health%2F..", "/%2e%2e", "/..", "/health%2f%2e%2e"}[r.IntN(6)] + path
		case 6:
			path += []string{"/..", "%2F..", "/../..", "/..%2f..%2fhealth", "%2f../health", "/%2e%2e/health"}[r.IntN(6)]
		case 7:
			path += []string{"?x=/health", ";x", "%3F", "%00", ".", "/%", "+"}[r.IntN(7)]
		case 8:
			path = strings.Replace(path, "/", []string{"/./", "%2F.%2F", "/%2e/"}[r.IntN(3)], 1)
			path = "/" + strings.TrimPrefix(strings.TrimPrefix(path, "%2F"), "/")
		case 9:
			path += []string{".json", "/.json", ".a.b", "%2ejson", "//"}[r.IntN(5)]
		case 10:
			path = "/old" + path
		}
	}
	return path
}
