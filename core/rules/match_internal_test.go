package rules

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/testlen"
)

type asked struct {
	target adapter.Target
	header http.Header
	values map[any]any
}

func (a *asked) Context() context.Context    { return context.Background() }
func (a *asked) Peer() adapter.Peer          { return adapter.Peer{} }
func (a *asked) Header(name string) []string { return a.header.Values(name) }
func (a *asked) Value(key any) any           { return a.values[key] }
func (a *asked) Native() any                 { return a }
func (a *asked) Target() adapter.Target      { return a.target }

func one(r *rand.Rand, all ...string) string { return all[r.IntN(len(all))] }

// randomRules is a file of rules, of which some have no condition on something.
func randomRules(r *rand.Rand, n int) string {
	var b strings.Builder
	b.WriteString("apply: all\nrules:\n")
	for i := range n {
		var parts []string
		add := func(format string, args ...any) {
			if r.IntN(2) == 0 {
				parts = append(parts, fmt.Sprintf(format, args...))
			}
		}
		add("path: %q", one(r, allPatterns...))
		add("methods: [%s]", one(r, "GET", "POST", "GET, PUT", "HEAD"))
		add("host: %s", one(r, "a.example", "b.example"))
		add("headers: {X-A: %s}", one(r, "1", "2", "[1, 2]"))
		add("values: {v: %s, w: [x, y]}", one(r, "1", "2", "[1, 2]"))
		fmt.Fprintf(&b, "- {name: r%d, unlimited: true, match: {%s}}\n", i, strings.Join(parts, ", "))
	}
	return b.String()
}

// What is said to cover another rule matches all that it does.
func TestMatchesAmongEachOther(t *testing.T) {
	testlen.SkipRace(t)
	r := rand.New(rand.NewPCG(rand.Uint64(), 4))
	covered := 0
	for range testlen.Of(60, 400) {
		set, err := Parse([]byte(randomRules(r, 12)), "limits.yaml")
		if err != nil {
			t.Fatal(err)
		}
		rules := set.active.Load().rules
		for range 100 {
			q := &asked{
				target: adapter.Target{
					Method: one(r, "GET", "HEAD", "POST", "PUT"), Host: one(r, "a.example", "b.example"),
					Path: one(r, "/", "/a", "/a/", "/a/b", "/b/a/c", "/a/b/"),
				},
				header: http.Header{"X-A": {one(r, "1", "2")}},
				values: map[any]any{"v": one(r, "1", "2"), "w": one(r, "x", "y")},
			}
			matches := make([]bool, len(rules))
			set.limiter.Inside().Preview(q, func(q adapter.Request, c *choice) error { // of no interest
				for i, rule := range rules {
					reason := rule.mismatch(q, c)
					matches[i] = reason == ""
				}
				return nil
			})
			for i, a := range rules {
				for j, b := range rules {
					if a.match.covers(&b.match) {
						if covered++; matches[j] && !matches[i] {
							t.Fatalf("%+v does not cover %+v: %+v", a.match, b.match, q)
						}
					}
				}
			}
		}
	}
	if covered == 0 {
		t.Error("no pair was covered")
	}
}
