package rules_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/core/store"
)

// A file is taken, or each of its mistakes has a place within it. What is taken can be asked and explained.
func FuzzParse(f *testing.F) {
	for _, test := range mistakes {
		text, _ := mistaken(test[0])
		f.Add(text)
	}
	f.Add(manyRules(3, "all"))
	f.Add("rules: &a\n- &b {name: a, key: *b, limits: *a}\n")
	f.Add("rules:\n- name: x\n  apply: [*x]\n")
	f.Add("&a [*a, *a]")
	f.Add(`{"rules": [{"name": "a", "descriptors": [{"key": {"join": ["ip", {"first": ["route", "global"]}]}, ` +
		`"limits": ["3 in flight"]}]}]}`)
	f.Fuzz(read)
}

// Whatever is left out of a file, or empty, is a mistake of that file or its default, and never the end of the program.
func TestFieldsLeftOut(t *testing.T) {
	const whole = `
domain: shop
apply: all
rules:
- name: a
  match: {methods: [POST], host: h, path: "/v1/{id}", headers: {X-A: b}, claims: {sub: ann}, values: {plan: [a, b]}}
  key: {header: X-API-Key, verify: keys}
  limits: [{limit: 9/minute, unit: tokens, key: ip, algorithm: sliding_window_log, name: t}, 5 images/10s, 7/hour]
  algorithm: sliding_window_log
  cost: 2
  costs: {tokens: {value: tokens}, images: 4}
  count_denied: true
  shadow: false
  allow: [x]
  deny: {key: {forwarded: [10.0.0.0/8]}, values: [192.0.2.0/24]}
  message: m
- {name: b, match: {path: /b}, unlimited: true}
- name: c
  algorithm: fixed_window
  costs: {tokens: 3}
  descriptors:
  - {key: {first: [{join: [{claim: sub}, route]}, {value: user}]}, limits: [4 tokens/minute], shadow: true}
  - key: org
    value: acme
    algorithm: token_bucket
    descriptors: [{key: user, value: ann, unlimited: true}, {key: plan, limits: [{limit: 9/hour, unit: tokens}]}]
`
	file := func() *yaml.Node {
		var root yaml.Node
		must(t, yaml.Load([]byte(whole), &root))
		return &root
	}
	if _, err := rules.Parse([]byte(whole), "limits.yaml", readOptions...); err != nil {
		t.Fatal(err)
	}
	n, files := len(places(file())), 0
	for i := range n {
		for k := range i + 1 {
			if i != k && (i+k)%testlen.Of(40, 1) != 0 {
				continue
			}
			for _, empty := range []bool{false, true} {
				files++
				root := file()
				all := places(root)
				all[i](empty)
				all[k](empty)
				text, err := yaml.Dump(root)
				must(t, err)
				read(t, string(text))
			}
		}
	}
	t.Logf("%d fields and items, %d files", n, files)
}

// places returns for each field and each item of a document what leaves it out, or empties it.
func places(n *yaml.Node) (all []func(empty bool)) {
	size := 1 // of a field in Content
	if n.Kind == yaml.MappingNode {
		size = 2
	}
	for i := 0; i+size <= len(n.Content); i += size {
		value := n.Content[i+size-1]
		if n.Kind != yaml.DocumentNode {
			all = append(all, func(empty bool) {
				if empty {
					*value = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
					return
				}
				if at := slices.Index(n.Content, value); at >= 0 {
					n.Content = slices.Delete(n.Content, at-size+1, at+1)
				}
			})
		}
		all = append(all, places(value)...)
	}
	return all
}

var readOptions = []rules.Option{
	rules.WithVerifier("keys", core.Unverified),
	rules.WithClaims(func(claim string) core.Key { return core.ByValue(claim) }),
}

// read reads a file, and asks and explains what is taken of it.
func read(t *testing.T, text string) {
	set, err := rules.Parse([]byte(text), "limits.yaml", readOptions...)
	if err != nil {
		lines := 1 + strings.Count(text, "\n") + strings.Count(text, "\r")
		for _, part := range unjoin(err) {
			var e *rules.Error
			if !errors.As(part, &e) || e.Line < 1 || e.Line > lines+2 || e.Column < 1 ||
				e.Problem == "" || e.Remedy == "" || strings.Contains(e.Problem, "panicked: runtime error") {
				t.Fatalf("%q: %#v", text, part)
			}
		}
		return
	}
	l := limiterOf(t, set)
	asked := []*request{with("GET /a", "user=1 X-API-Key=2"), with("POST example.com/", ""), requestFor(1)}
	for _, r := range asked {
		set.Explain(r)
		if d, err := l.Check(r); err == nil && d.Allowed {
			d.Serve(func() int { return 200 })
		}
	}
}

// brittle is a store that panics at limits.
type brittle struct{ *coretest.FakeStore }

func (brittle) Validate(limits ...*store.Limit) error {
	if len(limits) > 0 {
		panic("no limits today")
	}
	return nil
}

// A panic while a file is read is a mistake of the file.
func TestReadingPanics(t *testing.T) {
	for want, opt := range map[string]rules.Option{
		"no claims today": rules.WithClaims(func(string) core.Key { panic("no claims today") }),
		"no limits today": rules.WithOptions(core.WithStore(brittle{new(coretest.FakeStore)})),
	} {
		_, err := rules.Parse([]byte("rules:\n- {name: a, key: {claim: sub}, limits: [1/day]}\n"), "limits.yaml",
			append(readOptions[1:2:2], opt)...)
		var e *rules.Error
		if !errors.As(err, &e) || e.Line != 1 || e.Column != 1 || !strings.Contains(e.Problem, want) {
			t.Errorf("%v", err)
		}
	}
}

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
