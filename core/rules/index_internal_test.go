package rules

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
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
		add("path: %q", randomPattern(r))
		add("methods: [%s]", one(r, "GET", "POST", "GET, PUT", "HEAD"))
		add("host: %s", one(r, "a.example", "b.example"))
		add("headers: {X-A: %s}", one(r, "1", "2", "[1, 2]"))
		add("values: {v: %s, w: [x, y]}", one(r, "1", "2", "[1, 2]"))
		fmt.Fprintf(&b, "- {name: r%d, unlimited: true, match: {%s}}\n", i, strings.Join(parts, ", "))
	}
	return b.String()
}

// The rules that the index finds are those whose conditions hold one by one.
func TestIndexAgainstConditions(t *testing.T) {
	testlen.SkipRace(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	paths := allPaths()
	found, all := 0, 0
	for n := range 150 {
		set, err := Parse([]byte(randomRules(r, 1+r.IntN(150))), "limits.yaml")
		if err != nil {
			t.Fatal(err)
		}
		a := set.active.Load()
		for range 60 {
			q := &asked{
				target: adapter.Target{
					Method: one(r, "GET", "HEAD", "POST", "PUT", "X"),
					Host:   one(r, "a.example", "B.EXAMPLE:1", "c", ""),
					Path:   paths[r.IntN(len(paths))],
				},
				header: make(http.Header), values: make(map[any]any),
			}
			for range r.IntN(3) {
				q.header.Add("X-A", one(r, "1", "2", "3"))
			}
			if r.IntN(3) > 0 {
				q.values["v"], q.values["w"] = one(r, "1", "2", "3"), one(r, "x", "z")
			}
			var got, want []int
			_, _, err := set.limiter.Inside().Preview(q, func(q adapter.Request, c *choice) error {
				bits := newBits(len(a.rules))
				if _, _, err := a.index.find(q, c, bits); err != nil {
					return err
				}
				for i := bits.next(0); i >= 0; i = bits.next(i + 1) {
					got = append(got, i)
				}
				for i, rule := range a.rules {
					reason, err := rule.mismatch(q, c)
					if err != nil {
						return err
					}
					if reason == "" {
						want = append(want, i)
					}
				}
				return nil
			})
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %#x, file %d: %+v matches %v, want %v; %v", seed, n, q, got, want, err)
			}
			found, all = found+len(got), all+len(a.rules)
		}
	}
	if found == 0 || found == all {
		t.Errorf("%d of %d rules matched", found, all)
	}
}

// What is said to cover another rule matches all that it does, and rules that are said not to meet never match
// together.
func TestMatchesAmongEachOther(t *testing.T) {
	testlen.SkipRace(t)
	r := rand.New(rand.NewPCG(rand.Uint64(), 4))
	covered, apart := 0, 0
	for range 200 {
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
					reason, _ := rule.mismatch(q, c)
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
					if !a.match.meets(&b.match) {
						if apart++; matches[i] && matches[j] {
							t.Fatalf("%+v meets %+v: %+v", a.match, b.match, q)
						}
					}
				}
			}
		}
	}
	if covered == 0 || apart == 0 {
		t.Errorf("%d pairs covered, %d apart", covered, apart)
	}
}

// BenchmarkFind finds the first, the last and none of 1,000 rules that differ in one thing, or in several.
func BenchmarkFind(b *testing.B) {
	for name, match := range map[string]string{
		"paths":   `path: "/v1/service%d/{id}"`,
		"methods": "path: /v1/service%d/, methods: [GET, POST]",
		"hosts":   "host: host%d.example.com",
		"headers": "path: /v1/, headers: {X-Plan: plan%d}",
		"values":  "values: {tenant: tenant%d}",
		"all": `path: "/v1/service%[1]d/{id}", methods: [GET, POST], host: host%[1]d.example.com, ` +
			"headers: {X-Plan: [free, plan%[1]d]}, values: {tenant: tenant%[1]d}",
	} {
		var text strings.Builder
		text.WriteString("rules:\n")
		for i := range 1000 {
			fmt.Fprintf(&text, "- {name: r%d, unlimited: true, match: {%s}}\n", i, fmt.Sprintf(match, i))
		}
		set, err := Parse([]byte(text.String()), "limits.yaml")
		if err != nil {
			b.Fatal(err)
		}
		index := set.active.Load().index
		for at, n := range map[string]int{"first": 0, "last": 999, "none": 1000} {
			q := &asked{
				target: adapter.Target{
					Method: "POST", Host: fmt.Sprintf("host%d.example.com:443", n),
					Path: fmt.Sprintf("/v1/service%d/7", n),
				},
				header: http.Header{"X-Plan": {fmt.Sprintf("plan%d", n)}},
				values: map[any]any{"tenant": fmt.Sprintf("tenant%d", n)},
			}
			b.Run(name+"/"+at, func(b *testing.B) {
				b.ReportAllocs()
				found := newBits(1000)
				set.limiter.Inside().Preview(q, func(r adapter.Request, c *choice) error { // of no interest
					for b.Loop() {
						clear(found)
						if _, _, err := index.find(r, c, found); err != nil || (found.next(0)+1001)%1001 != n {
							b.Fatal(found.next(0), err)
						}
					}
					return nil
				})
			})
		}
	}
}
