package coretest_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/echolimit"
	"github.com/sashlimit/sash/fiberlimit"
	"github.com/sashlimit/sash/ginlimit"
	"github.com/sashlimit/sash/nethttp"
)

// Rules match the same requests in every framework, and answer with the same header fields.
func TestRulesInFrameworks(t *testing.T) {
	const text = `
rules:
- {name: host, match: {host: api.example.com}, key: ip, limits: [2/day]}
- name: user
  match: {path: "/users/{id}"}
  key: {header: X-User, verify: unverified}
  limits: [1/day, {limit: 3/day, key: global}]
- {name: files, match: {path: /files/, methods: [GET], headers: {X-Plan: [free, trial]}}, key: route, limits: [1/day]}
- name: gone
  match: {path: /gone}
  key: ip
  limits: [1/day]
  deny: {key: {header: X-User, verify: unverified}, values: [mallory]}
`
	type ask struct {
		path, host, user, plan string
		status                 int
		limits                 string // RateLimit
	}
	asks := []ask{
		{path: "/", status: 200},
		{path: "/x", host: "API.example.com:99", status: 200, limits: `"host-2-per-day";r=1;t=86400`},
		{path: "/x", host: "api.example.com.", status: 200, limits: `"host-2-per-day";r=0;t=86400`},
		{path: "/y", host: "api.example.com", status: 429, limits: `"host-2-per-day";r=0;t=86400`},
		{path: "/users/1", user: "a", status: 200, limits: `"user-1-per-day";r=0;t=86400, ` +
			`"user-3-per-day";r=2;t=86400`},
		{path: "/users/2", user: "a", status: 429, limits: `"user-1-per-day";r=0;t=86400`},
		{path: "/%75sers/2", user: "b", status: 200, limits: `"user-1-per-day";r=0;t=86400, ` +
			`"user-3-per-day";r=1;t=86400`},
		{path: "/users/2", status: 400},
		{path: "/users/", user: "a", status: 200},
		{path: "/users/1/x", user: "a", status: 200},
		{path: "/files/a", plan: "free", status: 200, limits: `"files-1-per-day";r=0;t=86400`},
		{path: "/files/b/c", plan: "trial", status: 429, limits: `"files-1-per-day";r=0;t=86400`},
		{path: "/files/b/c", plan: "paid", status: 200},
		{path: "/gone", user: "mallory", status: 403},
		{path: "/gone?x=/users/1", user: "a", status: 200, limits: `"gone-1-per-day";r=0;t=86400`},
	}
	for name, f := range frameworks {
		t.Run(name, func(t *testing.T) {
			set, err := rules.Parse([]byte(text), "limits.yaml")
			if err != nil {
				t.Fatal(err)
			}
			l, err := set.Limiter()
			if err != nil {
				t.Fatal(err)
			}
			none, err := set.Limiter(core.WithHeaders(core.HeadersNone))
			if err != nil {
				t.Fatal(err)
			}
			serve := func(l *core.Limiter) (url string) {
				listener := listen(t, "tcp4", "127.0.0.1:0")
				go f(func() string { return "hello" }, l)(listener)
				return "http://" + listener.Addr().String()
			}
			url, without := serve(l), serve(none)
			client := new(http.Client)
			defer client.CloseIdleConnections()
			send := func(r *http.Request) *http.Response {
				w, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { w.Body.Close() })
				return w
			}
			for i, a := range asks {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+a.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = a.host
				for name, value := range map[string]string{"X-User": a.user, "X-Plan": a.plan} {
					if value != "" {
						r.Header.Set(name, value)
					}
				}
				w := send(r)
				body, _ := io.ReadAll(w.Body)
				got := fmt.Sprintf("%d %s", w.StatusCode, w.Header.Get("RateLimit"))
				if want := fmt.Sprintf("%d %s", a.status, a.limits); got != want {
					t.Errorf("%d: %+v: %s, want %s; %s", i, a, got, want, body)
				}
				if (w.StatusCode == 200) != (string(body) == "hello") {
					t.Errorf("%d: %d %s", i, w.StatusCode, body)
				}
			}
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, without+"/y", nil)
			r.Host = "api.example.com"
			w := send(r)
			if w.StatusCode != 429 || w.Header.Get("RateLimit") != "" || w.Header.Get("Retry-After") == "" {
				t.Errorf("without header fields: %d %v", w.StatusCode, w.Header)
			}
		})
	}
}

// A program that goes on after the error of rules.Load learns at its start what is wrong.
func TestRulesWithoutASet(t *testing.T) {
	for name, mount := range map[string]func(core.RuleSet){
		"nethttp":    func(set core.RuleSet) { nethttp.Rules(set) },
		"chilimit":   func(set core.RuleSet) { chilimit.Rules(set) },
		"echolimit":  func(set core.RuleSet) { echolimit.Rules(set) },
		"fiberlimit": func(set core.RuleSet) { fiberlimit.Rules(set) },
		"ginlimit":   func(set core.RuleSet) { ginlimit.Rules(set) },
	} {
		missing, _ := rules.Parse(nil, "limits.yaml")
		for _, set := range []core.RuleSet{nil, missing} {
			func() {
				defer func() {
					err, _ := recover().(error)
					var config *core.ConfigError
					if !errors.As(err, &config) || !strings.Contains(config.Remedy, "rules.Load") {
						t.Errorf("%s: %v", name, err)
					}
				}()
				mount(set)
			}()
		}
	}
}
