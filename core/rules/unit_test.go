package rules_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/sashlimit/sash/core"
)

// Middleware may leave a number of units in any type. What is no number of units is an error, and not a cost of 1.
func TestNumbersOfUnits(t *testing.T) {
	l := limit(t, "rules:\n- {name: a, key: global, limits: [999 tokens/day], costs: {tokens: {value: tokens}}}\n")
	used := 0
	for _, tokens := range []any{60, int8(1), int32(60), int64(61), uint16(7), 60.0, float32(2), "41", 0} {
		r := with("GET /", "")
		r.values["tokens"] = tokens
		d, err := l.limiter.Check(r)
		n, _ := strconv.Atoi(fmt.Sprint(tokens))
		if used += n; err != nil || len(d.Limits()) > 0 && d.Limits()[0].Remaining != 999-used {
			t.Errorf("%T: %v, %v; want %d used in all", tokens, d.Limits(), err, used)
		}
	}
	for _, tokens := range []any{nil, "many", -1, 1.5, true} {
		r := with("GET /", "")
		r.values["tokens"] = tokens
		if d, err := l.limiter.Check(r); err == nil || d.Allowed ||
			core.ProblemOf(err).Status != http.StatusInternalServerError {
			t.Errorf("%v tokens: %v, %v; want an error", tokens, d, err)
		}
	}
}

// A rule with count_denied counts denials.
func TestCountDenied(t *testing.T) {
	l := limit(t, "rules:\n- {name: login, key: ip, limits: [3/minute], count_denied: true, cost: 2}\n")
	for i, used := range []int{0, 2, 4} {
		d, err := l.limiter.Check(with("GET /", ""))
		if err != nil || d.Allowed != (i == 0) || d.Limits()[0].Used != used {
			t.Errorf("%v, %v; want %d used before", d, err, used)
		}
	}
}

// A limit of another rule that keeps no entries records no denial, so it has as much left as before.
func TestCountDeniedLeavesCountersAlone(t *testing.T) {
	l := limit(t, `
apply: all
rules:
- {name: login, match: {methods: [POST]}, key: ip, limits: [100/minute], count_denied: true, cost: 3}
- {name: month, key: ip, limits: [10/month], cost: 3}
`)
	l.want("POST /", "", 4, 3)
	if d, err := l.ask(with("POST /", "")); err != nil || d.Remaining != 1 || d.Limits()[1].Remaining != 1 {
		t.Errorf("%v, %v, %v; want 1 left of 10", d, d.Limits(), err)
	}
}
