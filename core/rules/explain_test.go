package rules_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/rules"
)

func anyOf(r *rand.Rand, all ...string) string { return all[r.IntN(len(all))] }

// randomSet is a file with all that may decide about a request.
func randomSet(r *rand.Rand) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apply: %s\nrules:\n", anyOf(r, "first", "all"))
	keys := []string{"ip", "global", "{value: user}", "{header: X-Key, verify: keys}", "{first: [{value: user}, ip]}"}
	for i := range 1 + r.IntN(4) {
		var parts []string
		maybe := func(n int, format string, args ...any) {
			if r.IntN(n) == 0 {
				parts = append(parts, fmt.Sprintf(format, args...))
			}
		}
		maybe(2, "match: {%s}", anyOf(r, "path: /a", "path: /v1/", "methods: [GET]", "values: {plan: pro}",
			"headers: {X-Key: [k, broken]}", "claims: {broken: x}", "host: h, headers: {X-Plan: a}, claims: "+
				"{broken: x}"))
		if r.IntN(3) == 0 {
			parts = append(parts, fmt.Sprintf("descriptors: [{key: %s, limits: [%d/day], shadow: %t}, "+
				"{key: plan, value: pro, limits: [%d/hour], descriptors: [{key: user, unlimited: true}]}]",
				anyOf(r, keys...), 1+r.IntN(4), r.IntN(3) == 0, 1+r.IntN(4)))
		} else {
			units, costs := "", ""
			if r.IntN(4) == 0 {
				units, costs = ", 9 tokens/day", ", costs: {tokens: "+anyOf(r, "4", "{value: tokens}")+"}"
			}
			parts = append(parts, fmt.Sprintf("key: %s, limits: [%d/day, {limit: %d/hour, key: %s}%s]%s",
				anyOf(r, keys...), 1+r.IntN(4), 1+r.IntN(4), anyOf(r, keys...), units, costs))
			maybe(4, "shadow: true")
		}
		maybe(3, "deny: {key: {value: user}, values: [mallory]}")
		maybe(4, "deny: {key: {claim: broken}, values: [mallory]}")
		maybe(3, "allow: {key: {value: user}, values: [ann]}")
		maybe(3, "cost: %d", 1+r.IntN(3))
		fmt.Fprintf(&b, "- {name: r%d, %s}\n", i, strings.Join(slices.Compact(parts), ", "))
	}
	return b.String()
}

func randomRequest(r *rand.Rand) *request {
	var values []string
	for _, pair := range []string{
		"user=" + anyOf(r, "ann", "bob", "mallory"), "plan=" + anyOf(r, "pro", "free"),
		"X-Key=" + anyOf(r, "k", "broken", "none"), "X-Plan=a", "X-Skip=1", "tokens=" + anyOf(r, "1", "4", "x"),
		"ip=" + anyOf(r, "192.0.2.1", "192.0.2.2", "203.0.113.9"),
	} {
		if r.IntN(3) > 0 {
			values = append(values, pair)
		}
	}
	target := anyOf(r, "GET", "POST") + " " + anyOf(r, "h", "") + anyOf(r, "/a", "/v1/x", "/v1/..%2Fa", "/")
	return with(target, strings.Join(values, " "))
}

var errBroken = errors.New("broken")

// What Explain says is what Check then decides.
func TestExplainAgainstCheck(t *testing.T) {
	testlen.SkipRace(t)
	verify := rules.WithVerifier("keys", func(_ context.Context, key string) (string, error) {
		switch key {
		case "broken":
			return "", errBroken
		case "none":
			return "", core.ErrNoKey
		}
		return key, nil
	})
	claims := rules.WithClaims(func(string) core.Key {
		return core.ByHeader("X-Plan", func(context.Context, string) (string, error) { return "", errBroken })
	})
	options := [][]core.Option{
		nil, {core.WithDenyList(core.ByIP(), "203.0.113.9")}, {core.WithAllowList(core.ByIP(), "203.0.113.9")},
		{core.WithSkip(func(q *request) bool { return q.header.Get("X-Skip") != "" })},
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 5))
	outcomes := make(map[string]int)
	synctest.Test(t, func(t *testing.T) {
		for range testlen.Of(400, 3000) {
			text := randomSet(r)
			opts := options[r.IntN(len(options))]
			set, err := rules.Parse([]byte(text), "limits.yaml", verify, claims, rules.WithOptions(opts...))
			if err != nil {
				continue // such as a rule that no request reaches
			}
			l := &limited{t, set, limiterOf(t, set)}
			for range 12 {
				q := randomRequest(r)
				e := l.Explain(q)
				d, err := l.ask(q)
				got := outcome(e.Decision, e.Err)
				if want := outcome(d, err); got != want {
					t.Fatalf("seed %#x\n%s%+v\nexplained %s\ndecided   %s", seed, text, q, got, want)
				}
				outcomes[fmt.Sprint(d.Allowed, err != nil, len(d.Limits()) > 0)]++
			}
		}
	})
	if len(outcomes) < 4 {
		t.Errorf("only %v", outcomes)
	}
}

func outcome(d core.Decision, err error) string {
	if err != nil {
		return fmt.Sprint(core.ProblemOf(err).Status)
	}
	text := fmt.Sprint(d.Allowed, d.RetryAfter, d.Violated)
	for _, l := range d.Limits() {
		text += fmt.Sprint(" ", l.Name, l.Quota)
		if !d.Allowed {
			text += fmt.Sprint(l.Used, l.Remaining)
		}
	}
	if len(d.Limits()) > 0 {
		text += d.Policy
	}
	return text
}

// inJSON returns an Explanation in JSON.
func inJSON(t *testing.T, e rules.Explanation) string {
	t.Helper()
	text, err := json.Marshal(e)
	must(t, err)
	return string(text)
}

// An Explanation in JSON has the error as its text, and durations as a Decision has them.
func TestExplanationInJSON(t *testing.T) {
	l := limit(t, `
rules:
- {name: a, match: {path: /a}, key: global, limits: [1/day]}
- {name: b, key: {value: user}, limits: [1/day]}
`)
	synctest.Test(t, func(t *testing.T) {
		l.want("GET /a", "", 1, 1)
		for target, want := range map[string][]string{
			"GET /a": {
				`"Allowed":false`, `"Violated":["a-1-per-day"]`, `"RetryAfter":86400000000000`, `"Limit":"1/day"`,
				`"Unit":"requests"`, `"Reason":"an earlier rule applies: a"`,
			},
			"GET /b": {`"Err":"sash: the key of the limit 1/day, made by ByValue: sash: the request carries no key"`},
		} {
			text := inJSON(t, l.Explain(with(target, "")))
			for _, part := range want {
				if !strings.Contains(text, part) {
					t.Errorf("%s: %s is not in %s", target, part, text)
				}
			}
		}
	})
}

// A limit that was not read has no numbers: "0 left" would say that its quota is used up.
func TestExplainedWithoutDecision(t *testing.T) {
	l := limit(t, "rules: [{name: b, key: {value: user}, limits: [1/day]}]")
	want := "no decision: sash: the key of the limit 1/day, made by ByValue: sash: the request carries no key\n" +
		"b applies\n  1/day: not read\n"
	if got := l.Explain(with("GET /b", "")).String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Errors of callbacks, which clients may cause, do not begin lines.
func TestExplainedErrors(t *testing.T) {
	verify := rules.WithVerifier("keys", func(_ context.Context, key string) (string, error) {
		return "", errors.New("no key " + key + "\nadmin applies")
	})
	l := limit(t, "rules: [{name: b, key: ip, limits: [1/day], deny: {key: {header: X-K, verify: keys}, values: [x]}}]",
		verify)
	text := l.Explain(with("GET /b", "X-K=1")).String()
	if strings.Count(text, "\n") != 2 || strings.Count(text, `no key 1\nadmin applies`) != 2 {
		t.Errorf("got\n%s", text)
	}
}
