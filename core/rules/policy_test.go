package rules_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
)

// The event and the log line of a request that is refused name the rule, and tell what is wrong.
func TestRefusalsOfRules(t *testing.T) {
	var logged bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer slog.SetDefault(before)
	var policy string
	observe := rules.WithOptions(core.WithObserver(func(_ context.Context, e core.Event) { policy = e.Policy }))
	for name, test := range map[string]struct {
		text, path, policy string
		status             int
		logged             []string
	}{
		"no key": {
			"apply: all\nrules:\n- {name: a, key: ip, limits: [5/day]}\n- {name: b, key: {value: user}, limits: " +
				"[5/day]}\n",
			"/", "b", http.StatusBadRequest, []string{"policy=b", "it has no key", "key=ByValue"},
		},
		"no cost": {
			"rules:\n- {name: a, key: ip, limits: [5 tokens/day], costs: {tokens: {value: spent}}}\n",
			"/", "rules", http.StatusInternalServerError,
			[]string{
				"level=ERROR", "policy=rules",
				"rule a: the value spent of the request is not a number of tokens", "store one under that name",
			},
		},
	} {
		logged.Reset()
		l := limit(t, test.text, observe)
		r := with("GET "+test.path, "")
		_, err := l.ask(r)
		if status := core.ProblemOf(err).Status; status != test.status || policy != test.policy {
			t.Errorf("%s: %d, %s; want %d, %s", name, status, policy, test.status, test.policy)
		}
		if e := l.Explain(r); fmt.Sprint(e.Err) != fmt.Sprint(err) {
			t.Errorf("%s: %v, and explained as %v", name, err, e.Err)
		}
		for _, part := range test.logged {
			if !strings.Contains(logged.String(), part) {
				t.Errorf("%s: %q is not in %s", name, part, logged.String())
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
