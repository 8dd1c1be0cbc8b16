package rules_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/testlen"
)

// request is a request of no framework.
type request struct {
	method, host, path string
	raw, routed        string
	anyEnd             bool
	peer               adapter.Peer
	header             http.Header
	values             map[any]any
	cost               int
}

func (r *request) Context() context.Context    { return context.Background() }
func (r *request) Peer() adapter.Peer          { return r.peer }
func (r *request) Header(name string) []string { return r.header.Values(name) }
func (r *request) Value(key any) any           { return r.values[key] }
func (r *request) Native() any                 { return r }
func (r *request) Cost() int                   { return r.cost }
func (r *request) Target() adapter.Target {
	return adapter.Target{
		Method: r.method, Host: r.host, Path: r.path, RawPath: r.raw, Routed: r.routed, AnyEnd: r.anyEnd,
	}
}

// manyRules is a file of n rules with paths, methods, hosts and headers.
func manyRules(n int, apply string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apply: %s\nrules:\n", apply)
	for i := range n {
		fmt.Fprintf(&b, "- name: r%d\n  match: {methods: [GET, POST], path: \"/v%d/service%d/{id}\", host: "+
			"api%d.example.com, "+
			"headers: {X-Plan: [free, plan%d]}}\n  key: ip\n  limits: [1000000/minute]\n", i, i%7, i, i%5, i%3)
	}
	return b.String()
}

func requestFor(i int) *request {
	return &request{
		method: "POST", host: fmt.Sprintf("api%d.example.com:8443", i%5),
		path:   fmt.Sprintf("/v%d/service%d/42", i%7, i),
		peer:   adapter.PeerAddr(tcpAddr("192.0.2.1:1234")),
		header: http.Header{"X-Plan": {fmt.Sprintf("plan%d", i%3)}},
	}
}

// loose makes a request one whose path later middleware may shorten.
func loose(r *request) *request {
	r.path, r.anyEnd = r.path+".min.js", true
	return r
}

func TestRulesAllocateNothing(t *testing.T) {
	plain, err := core.New(core.PerMinute(1_000_000), core.ByIP())
	must(t, err)
	for name, test := range map[string]struct {
		text string
		r    *request
	}{
		"first of 1,000":  {manyRules(1000, "first"), requestFor(999)},
		"all of 64":       {manyRules(64, "all"), requestFor(63)},
		"no rule matches": {manyRules(1000, "first"), with("GET /", "")},
		"any end":         {manyRules(1000, "first"), loose(requestFor(999))},
		"values": {
			`{rules: [{name: a, key: {value: user}, limits: [1000000/minute]}]}`, with("GET /", "user=7"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := parse(t, test.text)
			l := limiterOf(t, set)
			cost := func(l *core.Limiter) float64 {
				return testing.AllocsPerRun(500, func() {
					d, err := l.Check(test.r)
					if err != nil || !d.Allowed {
						t.Fatal(d, err)
					}
					d.Serve(func() int { return 200 })
				})
			}
			if got, want := cost(l), cost(plain); got > want && !testlen.Race {
				t.Errorf("%v allocations, a limiter of one limit has %v", got, want)
			}
		})
	}
}

func BenchmarkThousandRules(b *testing.B) {
	l, err := parse(b, manyRules(1000, "first")).Limiter()
	if err != nil {
		b.Fatal(err)
	}
	r := requestFor(999)
	b.ReportAllocs()
	for b.Loop() {
		d, err := l.Check(r)
		if err != nil {
			b.Fatal(err)
		}
		d.Serve(func() int { return 200 })
	}
}
