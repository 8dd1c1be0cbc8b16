package rules_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/rules"
)

const unitRules = `
apply: all
rules:
- name: chat
  match: {path: /chat}
  key: {value: user}
  limits: [5/minute, 100 tokens/minute, {limit: 150/hour, unit: tokens}]
  costs: {tokens: {value: tokens}}
- name: images
  match: {path: /images}
  key: {value: user}
  limits: [10 images/minute]
  costs: {images: 4}
- name: all
  key: global
  limits: [{limit: 120/minute, unit: tokens}, 8/minute]
  costs: {tokens: {value: tokens}}
- name: tried
  key: global
  shadow: true
  limits: [50 bytes/minute, 1000000 tokens/minute]
  costs: {bytes: 20, tokens: 100}
`

func TestUnits(t *testing.T) {
	var shadows []string
	observe := core.WithObserver(func(_ context.Context, e core.Event) {
		if e.Shadow != nil {
			shadows = append(shadows, fmt.Sprint(e.Shadow.Allowed))
		}
	})
	l := limit(t, unitRules, rules.WithOptions(observe))
	request := func(path string, user, tokens any) *request {
		return &request{
			method: http.MethodGet, path: path, values: map[any]any{"user": user, "tokens": tokens},
			peer: adapter.PeerAddr(tcpAddr("192.0.2.1:1234")),
		}
	}
	for _, step := range []struct {
		path     string
		user     string
		tokens   any
		violated string
		used     string
	}{
		{"/chat", "ann", int32(60), "[]", "[1 requests 60 tokens 60 tokens 60 tokens 1 requests]"},
		{"/chat", "ann", "41", "[chat-100-tokens-per-minute]", "[1 requests 60 tokens 60 tokens 60 tokens 1 requests]"},
		{"/chat", "ann", 0, "[]", "[2 requests 2 requests]"},
		{"/images", "ann", 0, "[]", "[4 images 3 requests]"},
		{"/images", "ann", 0, "[]", "[8 images 4 requests]"},
		{"/images", "ann", 0, "[images-10-images-per-minute]", "[8 images 4 requests]"},
		{
			"/chat", "bob", int64(61), "[all-120-tokens-per-minute]",
			"[0 requests 0 tokens 0 tokens 60 tokens 4 requests]",
		},
		{"/chat", "bob", 60.0, "[]", "[1 requests 60 tokens 60 tokens 120 tokens 5 requests]"},
	} {
		r := request(step.path, step.user, step.tokens)
		e := l.Explain(r)
		d, err := l.limiter.Check(r)
		var used []string
		for _, s := range d.Limits() {
			used = append(used, fmt.Sprint(s.Quota-s.Remaining, " ", s.Unit))
		}
		if err != nil || fmt.Sprint(d.Violated) != step.violated || fmt.Sprint(used) != step.used {
			t.Errorf("%+v: %v, %v used, %v", step, d, used, err)
		}
		if e.Err != nil || e.Decision.Allowed != d.Allowed {
			t.Errorf("explained: %v, %v; decided: %v", e.Decision, e.Err, d)
		}
	}
	want := "2 of 8" // of 50 bytes, 20 each, whatever the other rules deny
	if got := fmt.Sprintf("%d of %d", slices.Index(shadows, "false"), len(shadows)); got != want {
		t.Errorf("shadows allow %v, want %s", got, want)
	}
	for _, tokens := range []any{nil, "many", -1, 1.5} {
		r := request("/chat", "eve", tokens)
		if d, err := l.limiter.Check(r); err == nil || d.Allowed ||
			core.ProblemOf(err).Status != http.StatusInternalServerError {
			t.Errorf("%v tokens: %v, %v; want an error", tokens, d, err)
		}
	}
	e := l.Explain(request("/chat", "ann", 0))
	if limits := e.Rules[0].Limits; len(limits) != 3 || limits[1].Unit != "tokens" || limits[1].Used != 60 ||
		limits[1].RetryAfter != 0 || limits[0].Unit != "requests" {
		t.Errorf("%+v, want 60 tokens used", limits)
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
