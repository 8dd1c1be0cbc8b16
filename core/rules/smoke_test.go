package rules_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/nethttp"
)

const twoRules = `
rules:
- name: login
  match: {methods: [POST], path: /login}
  key: ip
  limits: [5/minute, 50/day]
- name: api
  match: {path: /v1/}
  key: {first: [{header: X-API-Key, verify: unverified}, ip]}
  limits:
  - 10/second burst 50
  - {limit: 100000/day, key: global, name: all}
  deny: {key: ip, values: [203.0.113.0/24]}
`

const sms = `
apply: all
rules:
- name: sms
  descriptors:
  - key: message_type
    value: marketing
    descriptors:
    - {key: to_number, limits: [5/day]}
  - {key: to_number, limits: [100/day]}
- {name: busy, key: global, limits: [4 in flight], shadow: true}
`

func TestSmoke(t *testing.T) {
	set, err := rules.Parse([]byte(twoRules), "limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	h := nethttp.Rules(set)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	ask := func(method, path, ip string) {
		r := httptest.NewRequest(method, path, nil)
		r.RemoteAddr = ip + ":1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(method, path, ip, w.Code, w.Header(), w.Body)
		fmt.Printf("%+v\n", nethttp.Explain(set, r))
	}
	for range 6 {
		ask("POST", "/login", "192.0.2.1")
	}
	ask("GET", "/login", "192.0.2.1")
	ask("GET", "/v1/x", "192.0.2.1")
	ask("GET", "/v1/x", "203.0.113.9")
	set, err = rules.Parse([]byte(sms), "limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	h = nethttp.Rules(set)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	ask("GET", "/v1/x", "203.0.113.9")
	_, err = rules.Parse([]byte(`
rules:
- name: login
  match: {pth: /x, methods: [post]}
  limits: [5/fortnight, 0/second, {limit: 5/minute, key: {header: X, verify: nobody}}]
- name: login
  kye: ip
  limits: 5/minute
  match: {path: "a"}
- {name: c, key: ip, limits: [5/minute]}
- {name: d, key: ip, limits: [5/minute], algorithm: leaky, failure: local}
- {name: e, key: ip, limits: [], match: {path: "/{x}/{x}"}}
- {name: f, key: {claim: sub}, limits: [1/month], algorithm: token_bucket}
`), "limits.yaml")
	fmt.Println(err)
}
