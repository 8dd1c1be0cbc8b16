package rules_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
)

// The event and the log line of a request that is refused name the rule, and tell what is wrong.
func TestRefusalsOfRules(t *testing.T) {
	logged, policy := capture(t), ""
	observe := rules.WithOptions(core.WithObserver(func(_ context.Context, e core.Event) { policy = e.Policy }))
	for text, want := range map[string][]string{
		"apply: all\nrules:\n- {name: a, key: ip, limits: [5/day]}\n- {name: b, key: {value: u}, limits: [5/day]}\n": {
			"b", "400", "policy=b", "it has no key", "key=ByValue",
		},
		"rules:\n- {name: a, key: ip, limits: [5 tokens/day], costs: {tokens: {value: spent}}}\n": {
			"rules", "500", "level=ERROR", "policy=rules",
			"rule a: the value spent of the request is not a number of tokens", "store one under that name",
		},
	} {
		logged.Reset()
		l := limit(t, text, observe)
		_, err := l.ask(with("GET /", ""))
		if status := fmt.Sprint(core.ProblemOf(err).Status); policy != want[0] || status != want[1] {
			t.Errorf("%s: %s, %s; want %s", text, policy, status, want[:2])
		}
		if e := l.Explain(with("GET /", "")); fmt.Sprint(e.Err) != fmt.Sprint(err) {
			t.Errorf("%s: %v, and explained as %v", text, err, e.Err)
		}
		for _, part := range want[2:] {
			if !strings.Contains(logged.String(), part) {
				t.Errorf("%s: %q is not in %s", text, part, logged)
			}
		}
	}
}

// Limits that hold at once have different names, also months of different time zones.
func TestDefaultNamesDiffer(t *testing.T) {
	l := limit(t, "rules:\n- name: r\n  descriptors:\n  - {key: a, limits: [5/month]}\n"+
		"  - {key: b, limits: [5/month in Europe/Berlin]}\n")
	explained := l.Explain(with("GET /", "a=1 b=2"))
	limits := explained.Decision.Limits()
	if len(limits) != 2 || limits[0].Name != "r-5-per-month" || limits[1].Name != "r-value.b-5-per-month" {
		t.Errorf("%+v", limits)
	}
}
