package examples_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestRulesCheck(t *testing.T) {
	path := compile(t, "rules")
	bad := rulesFile(t, mistakes)
	keys := rulesFile(t, `
rules:
- {name: claims, match: {claims: {plan: free}}, key: {claim: sub}, limits: [5/minute]}
- {name: keys, match: {path: /v1/}, key: {header: X-API-Key, verify: keys}, limits: [5/minute]}
- {name: tenants, key: {header: X-Tenant, verify: tenants}, limits: [5/minute]}
`)
	const usage = "usage: rules check [-verifier NAME]... FILE"
	for _, c := range []struct {
		args   string
		status int
		lines  []string // begin so
	}{
		{"check " + sample, 0, []string{
			sample + ": rules: 4, limits: 5", "login: 5/minute, 50/day", "health: unlimited",
			"api: 10/second burst 50, 100000/day", "other: 300/minute",
		}},
		{"check -verifier keys -verifier=tenants " + keys, 0, []string{
			keys + ": rules: 3, limits: 3", "claims: 5/minute", "keys: 5/minute", "tenants: 5/minute",
		}},
		{"check -verifier keys " + keys, 1, []string{keys + ":5:51: rules[2].key.verify: "}},
		{"check " + bad, 1, []string{fmt.Sprintf(told, bad), fmt.Sprintf(toldToo, bad)}},
		{"check missing.yaml", 1, []string{"rules: open missing.yaml: "}},
		{"", 2, []string{usage}},
		{sample, 2, []string{usage}},
		{"explain " + sample, 2, []string{usage}},
		{"check", 2, []string{usage}},
		{"check " + sample + " " + sample, 2, []string{usage}},
		{"check -verify keys " + sample, 2, []string{"flag provided but not defined: -verify", usage}},
		{"check -verifier keys -verifier keys " + keys, 2, []string{"invalid value", usage}},
		{"check -verifier unverified " + keys, 2, []string{"invalid value", usage}},
	} {
		status, text := exited(t, path, strings.Fields(c.args)...)
		lines := strings.Split(text, "\n")
		ok := status == c.status && len(lines) > len(c.lines) && (status == 2 || len(lines) == len(c.lines)+1)
		for i, want := range c.lines {
			ok = ok && strings.HasPrefix(lines[i], want)
		}
		if !ok {
			t.Errorf("%s: exit status %d, want %d and %q:\n%s", c.args, status, c.status, c.lines, text)
		}
	}
}
