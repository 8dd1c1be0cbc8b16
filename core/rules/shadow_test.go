package rules_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/rules"
)

// A rule in shadow refuses no request: neither by its key, nor by its cost, nor while the store does not answer.
func TestShadowRefusesNothing(t *testing.T) {
	var failed, decided []core.Event
	observe := core.WithObserver(func(_ context.Context, e core.Event) {
		if e.Outcome == event.ShadowFailed {
			failed = append(failed, e)
		} else {
			decided = append(decided, e)
		}
	})
	verify := rules.WithVerifier("keys", func(_ context.Context, key string) (string, error) {
		return "", fmt.Errorf("%w: %s", errBroken, key)
	})
	const enforced = "- {name: real, key: ip, limits: [2/day]}\n"
	for name, test := range map[string]struct {
		shadow, request string
		failures        int
	}{
		"no key": {"{name: tried, key: {value: user}, limits: [1/day], shadow: true}", "", 0},
		"no key of a limit": {"{name: tried, key: ip, limits: [1/day, {limit: 9/day, key: {value: u}}], shadow: " +
			"true}", "", 0},
		"a verifier's error": {
			"{name: tried, key: {header: X-K, verify: keys}, limits: [1/day], shadow: true}", "X-K=1", 3,
		},
		"a descriptor's error": {
			"{name: tried, descriptors: [{key: {header: X-K, verify: keys}, limits: [1/day]}], shadow: true}",
			"X-K=1", 3,
		},
		"a list's error": {
			"{name: tried, key: ip, limits: [1/day], deny: {key: {header: X-K, verify: keys}, values: [x]}, shadow: " +
				"true}",
			"X-K=1", 3,
		},
		"a cost": {"{name: tried, key: ip, limits: [3/day], cost: 2, shadow: true}", "", 0},
	} {
		failed = nil
		l := limit(t, "apply: all\nrules:\n"+enforced+"- "+test.shadow+"\n", verify, rules.WithOptions(observe))
		if l.want("GET /", test.request, 3, 2); len(failed) != test.failures {
			t.Errorf("%s: %d events of a failed shadow, want %d", name, len(failed), test.failures)
		}
		for _, e := range failed {
			if e.Policy != "tried" || !errors.Is(e.Err, errBroken) {
				t.Errorf("%s: %s %v", name, e.Policy, e.Err)
			}
		}
		l = limit(t, "rules:\n- "+test.shadow+"\n", verify)
		l.want("GET /", test.request, 3, 3)
	}
	const listed = "- {name: tried, key: ip, limits: [1/day], deny: [192.0.2.1], shadow: true}\n"
	for text, policy := range map[string]string{
		"rules:\n" + listed: "tried",
		"apply: all\nrules:\n- {name: more, key: ip, limits: [9/day], shadow: true}\n" + listed: "more",
		"apply: all\nrules:\n" + listed + "- {name: real, key: ip, limits: [9/day]}\n":          "real",
	} {
		failed, decided = nil, nil
		l := limit(t, text, rules.WithOptions(observe))
		if l.want("GET /", "", 3, 3); len(failed) != 0 || len(decided) != 3 {
			t.Errorf("%s: %v, %v", text, failed, decided)
		}
		for _, e := range decided { // it would be denied
			if s := e.Shadow; e.Policy != policy || s == nil || s.Allowed || s.Policy != "tried" {
				t.Errorf("%s: %v", text, e)
			}
		}
	}
	down := rules.WithOptions(core.WithStore(unavailable{core.NewMemoryStore()}))
	const tried = "- {name: tried, key: ip, limits: [1/day], shadow: true}\n"
	limit(t, "apply: all\nrules:\n"+enforced+tried, down).want("GET /", "", 3, 2)
	limit(t, "failure: closed\nrules:\n"+tried, down).want("GET /", "", 3, 3)
	for rule, reason := range map[string]string{
		"key: {value: user}, limits: [1/day]":         "its key could not be read",
		"key: ip, limits: [1/day], deny: [192.0.2.1]": "sash: the client is on a deny list",
		"key: ip, limits: [1 tokens/day], costs: {tokens: {value: tokens}}": "sash: costs(request): rule a: the " +
			"value tokens of the request is not a number of tokens from 0 to 1000000000: <nil>; store one under that " +
			"name in middleware in front of the rules",
	} {
		e := limit(t, "rules:\n- {name: a, "+rule+", shadow: true}\n").Explain(with("GET /", ""))
		if e.Err != nil || !e.Decision.Allowed || e.Rules[0].Reason != reason {
			t.Errorf("%+v, want: %s", e, reason)
		}
	}
}

// Rules in shadow that cannot be decided together, such as those of two readings of a path, refuse no request either.
func TestShadowsOfSeveralReadings(t *testing.T) {
	var failed []error
	observe := core.WithObserver(func(_ context.Context, e core.Event) {
		if e.Outcome == event.ShadowFailed {
			failed = append(failed, e.Err)
		}
	})
	l := limit(t, "rules:\n- {name: a, match: {path: /a/b}, key: ip, limits: [1/day], shadow: true}\n"+
		"- {name: b, match: {path: '/{id}'}, key: ip, limits: [1/day], shadow: true}\n",
		rules.WithOptions(core.WithStore(alone{core.NewMemoryStore()}), observe))
	r := with("GET /a/b", "")
	r.raw = "/a%2Fb"
	if d, err := l.ask(r); err != nil || !d.Allowed || len(failed) != 1 {
		t.Errorf("%v %v; failed: %v", d, err, failed)
	}
	if e := l.Explain(r); e.Err != nil || !e.Decision.Allowed || len(failed) != 1 {
		t.Errorf("%+v; failed: %v", e, failed)
	}
}

// Where only a descriptor in shadow applies, it is tried with the cost of its rule.
func TestCostOfADescriptorInShadow(t *testing.T) {
	var tried *core.Decision
	observe := rules.WithOptions(core.WithObserver(func(_ context.Context, e core.Event) { tried = e.Shadow }))
	l := limit(t, "rules:\n- {name: a, cost: 5, descriptors: [{key: user, limits: [9/day], shadow: true}]}\n", observe)
	l.want("GET /", "user=ann", 2, 2)
	if tried.Allowed || tried.Used != 5 {
		t.Errorf("%v; want a denial with 5 used", tried)
	}
}
