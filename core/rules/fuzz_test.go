package rules_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
)

// A file is taken, or each of its mistakes has a place within it. What is taken can be asked and explained.
func FuzzParse(f *testing.F) {
	for _, test := range mistakes {
		f.Add(test.text)
	}
	f.Add(manyRules(3, "all"))
	f.Add("rules: &a\n- &b {name: a, key: *b, limits: *a}\n")
	f.Add("rules:\n- name: x\n  apply: [*x]\n")
	f.Add("&a [*a, *a]")
	f.Add(`{"rules": [{"name": "a", "descriptors": [{"key": {"join": ["ip", {"first": ["route", "global"]}]}, ` +
		`"limits": ["3 in flight"]}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		set, err := rules.Parse([]byte(text), "limits.yaml", rules.WithVerifier("keys", core.Unverified),
			rules.WithClaims(func(claim string) core.Key { return core.ByValue(claim) }))
		if err != nil {
			lines := 1 + strings.Count(text, "\n") + strings.Count(text, "\r")
			for _, part := range unjoin(err) {
				var e *rules.Error
				if !errors.As(part, &e) || e.Line < 1 || e.Line > lines+2 || e.Column < 1 ||
					e.Problem == "" || e.Remedy == "" {
					t.Fatalf("%q: %#v", text, part)
				}
			}
			return
		}
		l, err := set.Limiter()
		if err != nil {
			t.Fatal(err)
		}
		asked := []*request{with("GET /a", "user=1 X-API-Key=2"), with("POST example.com/", ""), requestFor(1)}
		for _, r := range asked {
			set.Explain(r)
			if d, err := l.Check(r, r); err == nil && d.Allowed {
				d.Serve(func() int { return 200 })
			}
		}
	})
}

// unjoin returns the errors that were joined.
func unjoin(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error }) // that of errors.Join
	if !ok {
		return []error{err}
	}
	var all []error
	for _, part := range joined.Unwrap() {
		all = append(all, unjoin(part)...)
	}
	return all
}
