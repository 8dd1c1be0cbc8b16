package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// withRules makes the service with the rules of a text.
func withRules(t *testing.T, text string) *service {
	t.Helper()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := newService(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check asks about a request, given as JSON.
func check(s *service, body string) *httptest.ResponseRecorder {
	return call(s, http.MethodPost, "/check", body)
}

// call sends a request with header fields of the form "Name: value".
func call(s *service, method, path, body string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = "10.0.0.1:1234"
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newService(filepath.Join("..", "gateway", "limits.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		const login = `{"method":"POST","path":"/login","ip":"192.0.2.1"}`
		allowed := func(policy, left string) string {
			return `{"allowed":true,"policy":"` + policy + `","remaining":` + left + `,"retry_after":0,"violated":[]}`
		}
		for i, c := range []struct {
			after       time.Duration
			ask         string
			status      int
			retry, body string
		}{
			{0, login, 200, "", allowed("login", "4")},
			{0, login, 200, "", allowed("login", "3")},
			{0, login, 200, "", allowed("login", "2")},
			{0, login, 200, "", allowed("login", "1")},
			{0, login, 200, "", allowed("login", "0")},
			{30500 * time.Millisecond, login, 429, "30", // 29.5 s rounded up
				`{"allowed":false,"policy":"login","remaining":0,"retry_after":30,"violated":["login-5-per-minute"]}`},
			{0, `{"method":"POST","path":"/login","ip":"192.0.2.2"}`, 200, "", allowed("login", "4")},
			{29500 * time.Millisecond, login, 200, "", allowed("login", "4")},
			{0, `{"method":"GET","path":"/healthz"}`, 200, "", allowed("", "null")},
			{0, `{"method":"POST","path":"/LOGIN","ip":"192.0.2.1"}`, 200, "", allowed("other", "299")},
			{0, `{"path":"/v1/x","ip":"192.0.2.1","cost":20}`, 200, "", allowed("api", "30")},
			{0, `{"path":"/v1/x","ip":"192.0.2.1","cost":51}`, 429, "", // never
				`{"allowed":false,"policy":"api","remaining":30,"retry_after":0,` +
					`"violated":["api-10-per-second-burst-50"]}`},
			{0, `{"path":"/v1/x","ip":"203.0.113.9"}`, 403, "",
				`{"type":"about:blank","title":"Forbidden","status":403}`},
		} {
			time.Sleep(c.after)
			w := check(s, c.ask)
			if w.Code != c.status || strings.TrimSpace(w.Body.String()) != c.body {
				t.Errorf("%d: status %d, %s, want %d, %s", i, w.Code, w.Body, c.status, c.body)
			}
			h := w.Header()
			asked := c.status != 403 && !strings.Contains(c.body, "null")
			if h.Get("Retry-After") != c.retry || (h.Get("Ratelimit-Policy") != "") != asked ||
				(h.Get("Ratelimit") != "") != asked {
				t.Errorf("%d: header %v", i, h)
			}
		}
	})
}

// What a call says of a request is what rules ask for.
func TestCheckFields(t *testing.T) {
	s := withRules(t, `
rules:
- name: host
  match: {host: api.example.com, methods: [GET], headers: {X-Plan: free}}
  key: {header: X-Client, verify: unverified}
  limits: [2/hour]
- name: forwarded
  match: {path: "/users/{id}"}
  key: {forwarded: [10.0.0.0/8]}
  limits: [2/hour]
- name: plan
  match: {claims: {plan: [free, trial]}}
  key: {claim: sub}
  limits: [2/hour]
- name: sms
  cost: 2
  descriptors:
  - key: message_type
    value: marketing
    descriptors:
    - {key: to_number, limits: [3/hour]}
  - {key: to_number, limits: [6/hour]}
`)
	for i, c := range []struct {
		body   string
		status int
		want   string // of policy and remaining
	}{
		{`{"method":"HEAD","host":"API.example.com:443","headers":{"x-plan":"free","X-Client":"a"}}`, 200, "host 1"},
		{`{"method":"GET","host":"api.example.com","headers":{"X-Plan":"free","X-Client":"a"}}`, 200, "host 0"},
		{`{"method":"GET","host":"api.example.com","headers":{"X-Plan":"free","X-Client":"a"}}`, 429, "host 0"},
		{`{"method":"GET","host":"api.example.com","headers":{"X-Plan":"free"}}`, 400, ""},
		{`{"method":"GET","host":"api.example.com","headers":{"X-Plan":"pro","X-Client":"a"}}`, 200, " null"},
		{`{"path":"/users/7","ip":"10.1.1.1","headers":{"X-Forwarded-For":"192.0.2.1"}}`, 200, "forwarded 1"},
		{`{"path":"/users/8","ip":"192.0.2.1","headers":{"X-Forwarded-For":"192.0.2.9"}}`, 200, "forwarded 0"},
		{`{"path":"/users/7"}`, 400, ""},
		{`{"data":{"plan":"trial","sub":"7"}}`, 200, "plan 1"},
		{`{"data":{"plan":"free","sub":"7"}}`, 200, "plan 0"},
		{`{"data":{"plan":"free","sub":"8"},"cost":2}`, 200, "plan 0"},
		{`{"data":{"plan":"free"}}`, 400, ""},
		{`{"data":{"plan":"pro","sub":"7"}}`, 200, " null"},
		{`{"data":{"message_type":"marketing","to_number":"1"}}`, 200, "sms 1"},
		{`{"data":{"message_type":"marketing","to_number":"1"}}`, 429, "sms 1"},
		{`{"data":{"message_type":"marketing","to_number":"1"},"cost":1}`, 200, "sms 0"},
		{`{"data":{"message_type":"news","to_number":"1"},"cost":3}`, 200, "sms 0"},
		{`{"data":{"message_type":"news"}}`, 200, " null"},
	} {
		w := check(s, c.body)
		var d struct {
			Policy    string `json:"policy"`
			Remaining *int   `json:"remaining"`
		}
		got := ""
		if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
			t.Error(err)
		} else if w.Code != http.StatusBadRequest {
			left := "null"
			if d.Remaining != nil {
				left = strconv.Itoa(*d.Remaining)
			}
			got = d.Policy + " " + left
		}
		if w.Code != c.status || got != c.want {
			t.Errorf("%d: %s: status %d, %q, want %d, %q; %s", i, c.body, w.Code, got, c.status, c.want, w.Body)
		}
	}
}

// A call that is not understood charges nothing and says what is wrong with it.
func TestMistakesOfCallers(t *testing.T) {
	s := withRules(t, "rules: [{name: all, key: global, limits: [1/hour]}]")
	for body, want := range map[string]string{
		``:                                 "EOF",
		`{`:                                "unexpected EOF",
		`[]`:                               "array",
		`null 1`:                           "something stands behind",
		`{} {}`:                            "something stands behind",
		`{}]`:                              "something stands behind",
		`{"pth":"/"}`:                      `unknown field \"pth\"`,
		`{"path":7}`:                       "path",
		`{"data":{"user":7}}`:              "data",
		`{"headers":{"A":["b"]}}`:          "headers",
		`{"ip":"192.0.2.1:80"}`:            "192.0.2.1:80",
		`{"ip":"0.0.0.0"}`:                 "0.0.0.0",
		`{"cost":-1}`:                      "-1",
		`{"cost":1.5}`:                     "cost",
		`{"cost":99999999999999999999999}`: "cost",
		`{"path":"` + strings.Repeat("a", maxBody) + `"}`: "too large",
	} {
		w := check(s, body)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.50s: status %d, %v, %s; want 400 and %s", body, w.Code, w.Header(), w.Body, want)
		}
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/check", 405}, {"POST", "/check/", 404}, {"GET", "/", 404}, {"GET", "/authz", 404},
		{"GET", "/auth/x", 404},
	} {
		if w := call(s, c.method, c.path, "{}"); w.Code != c.status {
			t.Errorf("%s %s: status %d, want %d", c.method, c.path, w.Code, c.status)
		}
	}
	if w := check(s, "{}"); w.Code != http.StatusOK {
		t.Errorf("a mistake was charged: status %d, %s", w.Code, w.Body)
	}
}

const proxied = `
rules:
- name: login
  match: {methods: [POST], host: example.com, path: /login}
  key: ip
  limits: [2/hour]
  message: Slow down.
- {name: far, match: {path: /far/}, key: {forwarded: [10.0.0.0/8]}, limits: [2/hour]}
- {name: banned, match: {path: /banned}, key: ip, limits: [2/hour], deny: [192.0.2.0/24]}
- {name: user, match: {path: /user}, key: {header: X-User, verify: unverified}, limits: [2/hour]}
`

// Requests as Traefik sends them for forwardAuth.
func TestTraefik(t *testing.T) {
	s := withRules(t, proxied)
	ask := func(uri, addresses string, more ...string) *httptest.ResponseRecorder {
		return call(s, "GET", "/auth", "", append([]string{
			"X-Forwarded-Method: POST", "X-Forwarded-Proto: https", "X-Forwarded-Host: example.com",
			"X-Forwarded-Uri: " + uri, "X-Forwarded-For: " + addresses,
		}, more...)...)
	}
	for i, c := range []struct {
		uri, addresses string
		status         int
	}{
		{"/login?next=%2F", "192.0.2.1", 200},
		{"/%6cogin", "6.6.6.6, 192.0.2.1", 200},
		{"//login", "192.0.2.1", 429},
		{"/login", "192.0.2.2", 200},
		{"/login", "", 400},
		{"/elsewhere", "192.0.2.1", 200},
		{"/far/1", "6.6.6.6, 198.51.100.1, 10.0.0.9, 10.0.0.1", 200},
		{"/far/2", "6.6.6.7, 198.51.100.1, 10.0.0.2", 200},
		{"/far/3", "198.51.100.1", 429},
		{"/far/3", "198.51.100.1, 203.0.113.1", 200},
		{"/banned", "192.0.2.7", 403},
		{"login", "192.0.2.3", 400},
		{"/%zz", "192.0.2.3", 400},
	} {
		if w := ask(c.uri, c.addresses); w.Code != c.status {
			t.Errorf("%d: %s of %s: status %d, want %d; %s", i, c.uri, c.addresses, w.Code, c.status, w.Body)
		}
	}
	w := ask("/login", "192.0.2.1")
	want := http.Header{
		"Retry-After": {"3600"}, "Ratelimit-Policy": {`"login-2-per-hour";q=2;w=3600`},
		"Ratelimit": {`"login-2-per-hour";r=0;t=3600`}, "Cache-Control": {"no-store"},
		"Content-Type": {"application/problem+json"},
	}
	if body := w.Body.String(); !reflect.DeepEqual(w.Header(), want) || !strings.Contains(body, "Slow down.") ||
		!strings.Contains(body, `"status":429`) {
		t.Errorf("denied with %v, %s", w.Header(), body)
	}
	for range 2 {
		if w := ask("/user", "192.0.2.1", "X-User: ann"); w.Code != http.StatusOK {
			t.Errorf("status %d, %s", w.Code, w.Body)
		}
	}
	if w := ask("/user", "192.0.2.9", "X-User: ann"); w.Code != http.StatusTooManyRequests {
		t.Errorf("the client's headers are not read: status %d, %s", w.Code, w.Body)
	}
}

// Requests as nginx sends them with nginx.conf.
func TestNginxRequests(t *testing.T) {
	s := withRules(t, proxied)
	ask := func(path string, fields ...string) *httptest.ResponseRecorder {
		return call(s, "GET", "http://example.com"+path, "", append(fields, "X-Original-Method: POST",
			"X-Original-URI: /login", "X-Forwarded-For: 6.6.6.6, 192.0.2.1")...)
	}
	for i, want := range []int{200, 200, 403, 403} {
		if w := ask("/auth?denied=403", "X-Forwarded-Host: elsewhere"); w.Code != want ||
			(w.Header().Get("Retry-After") == "") != (want == 200) {
			t.Errorf("%d: status %d, %v, want %d", i, w.Code, w.Header(), want)
		}
	}
	if w := ask("/auth"); w.Code != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429", w.Code)
	}
	for path, want := range map[string]int{
		"/login#x": 429, "/%6cogin#?x": 429, "/login%23x": 200, // nginx cuts what follows a #
	} {
		w := call(s, "GET", "http://example.com/auth", "", "X-Original-Method: POST", "X-Original-URI: "+path,
			"X-Forwarded-For: 192.0.2.1")
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
}

// Who sends the fields of both proxies, or one of them twice or not at all, is refused and not charged.
func TestForgedFields(t *testing.T) {
	s := withRules(t, "rules: [{name: all, key: global, limits: [1/hour]}]")
	nginx := []string{"X-Original-Method: POST", "X-Original-URI: /login"}
	traefik := []string{"X-Forwarded-Method: POST", "X-Forwarded-Uri: /login", "X-Forwarded-Host: example.com"}
	for _, fields := range [][]string{
		{},
		nginx[:1], nginx[1:], traefik[:1], traefik[:2], traefik[1:], {traefik[0], traefik[2]},
		append([]string{"X-Forwarded-Method: GET"}, nginx...),
		append([]string{"X-Forwarded-Uri: /"}, nginx...),
		append([]string{"X-Original-Method: GET"}, nginx...),
		append([]string{"X-Original-URI: /"}, nginx...),
		append([]string{"X-Original-Method: GET"}, traefik...),
		append([]string{"X-Original-URI: /"}, traefik...),
		append([]string{"X-Forwarded-Method: GET"}, traefik...),
		append([]string{"X-Forwarded-Uri: /"}, traefik...),
		append([]string{"X-Forwarded-Host: elsewhere"}, traefik...),
	} {
		if w := call(s, "GET", "/auth", "", fields...); w.Code != http.StatusBadRequest {
			t.Errorf("%q: status %d, want 400", fields, w.Code)
		}
	}
	if w := call(s, "GET", "/auth", "", nginx...); w.Code != http.StatusOK {
		t.Errorf("one of them was charged: status %d", w.Code)
	}
	if w := call(s, "GET", "/auth", "", traefik...); w.Code != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429", w.Code)
	}
}

// Requests as Envoy sends them: to path_prefix and the path, with its own address at the end of X-Forwarded-For.
func TestEnvoy(t *testing.T) {
	s := withRules(t, proxied)
	for i, c := range []struct {
		method, path, addresses string
		status                  int
	}{
		{"POST", "/authz/login?denied=403", "192.0.2.1", 200},
		{"POST", "/authz//login", "192.0.2.2", 200}, // ip is Envoy's address
		{"POST", "/authz/x/../login?denied=403", "192.0.2.3", 429},
		{"GET", "/authz/login", "192.0.2.1", 200},
		{"GET", "/authz/", "192.0.2.1", 200},
		{"PUT", "/authz/far/1", "6.6.6.6, 198.51.100.1, 10.0.0.1", 200},
		{"PUT", "/authz/far/2", "6.6.6.7, 198.51.100.1", 200},
		{"GET", "/authz/far/3", "6.6.6.8, 198.51.100.1, 10.0.0.1", 429},
		{"GET", "/authz/far/3", "198.51.100.2, 10.0.0.1", 200},
		{"GET", "/authz/user", "198.51.100.2, 10.0.0.1", 400},
	} {
		w := call(s, c.method, "http://example.com"+c.path, "", "X-Forwarded-For: "+c.addresses,
			"X-Original-URI: /elsewhere", "X-Forwarded-Uri: /elsewhere") // nothing to Envoy
		if w.Code != c.status {
			t.Errorf("%d: %s %s of %s: status %d, want %d", i, c.method, c.path, c.addresses, w.Code, c.status)
		}
	}
}

// Nobody tells the service when a request ends, so it ends what requests hold.
func TestRequestsInFlight(t *testing.T) {
	s := withRules(t, "rules: [{name: busy, key: global, limits: [1 in flight, 100/hour]}]")
	for range 3 {
		for _, w := range []*httptest.ResponseRecorder{
			check(s, "{}"), call(s, "GET", "/authz/", ""),
			call(s, "GET", "/auth", "", "X-Original-Method: GET", "X-Original-URI: /"),
		} {
			if w.Code != http.StatusOK {
				t.Errorf("status %d, %s", w.Code, w.Body)
			}
		}
	}
}

// A path that may be read in several ways is told to the rules as the proxy has it.
func TestOddPaths(t *testing.T) {
	const text = `rules:
- {name: health, match: {path: /health}, unlimited: true}
- {name: v1, match: {path: /v1/}, key: global, limits: [100/day]}
`
	s := withRules(t, text)
	for _, path := range []string{"/v1/x", "/v1/..%2Fhealth", "/v1/%2e%2e/health", "/v1%2Fx", "/health%2F..%2Fv1%2Fx",
		"/x/../v1/."} {
		for form, w := range map[string]*httptest.ResponseRecorder{
			"nginx": call(s, http.MethodGet, "/auth", "",
				"X-Original-Method: GET", "X-Original-Uri: "+path, "X-Forwarded-For: 192.0.2.1"),
			"Traefik": call(s, http.MethodGet, "/auth", "", "X-Forwarded-Method: GET", "X-Forwarded-Host: a.example",
				"X-Forwarded-Uri: "+path, "X-Forwarded-For: 192.0.2.1"),
			"Envoy": call(s, http.MethodGet, "/authz"+path, ""),
		} {
			if limits := w.Header().Get("RateLimit-Policy"); !strings.Contains(limits, "v1-100-per-day") {
				t.Errorf("%s: %s is limited by %q; %d %s", form, path, limits, w.Code, w.Body)
			}
		}
	}
}
