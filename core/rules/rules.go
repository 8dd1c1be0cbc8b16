// Package rules limits requests by rules of a file, which can be changed while a server runs.
//
//	set, err := rules.Load("limits.yaml")
//	...
//	go set.Watch(ctx)
//	http.ListenAndServe(":8080", nethttp.Rules(set)(mux))
//
// The file is YAML or JSON:
//
//	rules:
//	- name: login
//	  match: {methods: [POST], path: /login}
//	  key: ip
//	  limits: [5/minute, 50/day]
//	- name: api
//	  match: {path: /v1/}
//	  key: {first: [{header: X-API-Key, verify: keys}, ip]}
//	  limits:
//	  - 10/second burst 50
//	  - {limit: 100000/day, key: global, name: all}
//
// The first rule that matches a request applies, or all of them with "apply: all". Its limits are one decision, as
// [core.Limits] are. A request that matches no rule passes. docs/rules.md describes all fields.
//
// A file is checked as a whole: [Load] reports every mistake with its line, column and remedy. What requests have used
// is kept when a file is loaded again, since logs are named by domain, rule and key, and not by their limits.
package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/guard"
)

// Set is the rules of a file. It is safe for concurrent use.
type Set struct {
	path    string // or empty
	name    string // of the file in errors
	options options
	limiter *core.Limiter
	failure guard.Failure // of the limiter
	active  atomic.Pointer[document]

	mu   sync.Mutex   // guards loading
	last atomic.Value // hash of the file as it was read last, with mistakes or without
}

// Load reads a file of rules. The error joins all mistakes; each in the file is an [Error].
func Load(path string, opts ...Option) (*Set, error) {
	content, err := os.ReadFile(path) //nolint:gosec // the program names it
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return newSet(path, path, content, opts)
}

// Parse is Load for a text. Errors have name in place of the file's.
func Parse(text []byte, name string, opts ...Option) (*Set, error) {
	return newSet("", name, text, opts)
}

func newSet(path, name string, content []byte, opts []Option) (*Set, error) {
	s := &Set{path: path, name: name}
	s.options.verifiers = map[string]func(context.Context, string) (string, error){"unverified": core.Unverified}
	for _, o := range opts {
		if o == nil {
			s.options.fault("Option", "nil", "the option is nil", "leave it out")
			continue
		}
		o(&s.options)
	}
	f := &faults{file: name}
	top := parse(content, f)
	s.failure = failures[top.get("failure").Value]
	var err error
	if s.limiter, err = core.New(policy{s}, core.Global(), s.options.core...); err != nil {
		s.limiter, _ = core.New(policy{s}, core.Global()) // the file is checked all the same
	}
	s.limiter.Inside().SetRules(func() []*engine.Rule { return s.active.Load().asks })
	doc := s.read(content, top)
	if err := errors.Join(append(s.options.faults, err, f.err())...); err != nil {
		return nil, err
	}
	s.active.Store(doc)
	s.last.Store(doc.hash)
	return s, nil
}

// policy has a limiter ask the rules.
type policy struct{ *Set }

// Written implements [core.Policy].
func (p policy) Written() (gate.Written, error) {
	return gate.Written{Name: "rules", Rules: p.choose, Failure: p.failure}, nil
}

type choice = gate.Choice

// Hash returns the SHA-256 of the file whose rules are in force, in hexadecimal digits.
func (s *Set) Hash() string { return s.active.Load().hash }

// Loaded returns when the rules that are in force were loaded.
func (s *Set) Loaded() time.Time { return s.active.Load().loaded }

// String describes what is in force: the file, how many rules and limits it has, and a line for each rule with its
// limits.
func (s *Set) String() string {
	var lines strings.Builder
	rules, count := s.active.Load().rules, 0
	for _, r := range rules {
		var limits []string
		for _, p := range r.parts {
			for _, l := range p.limits {
				limits = append(limits, l.at.Value)
			}
		}
		if count += len(limits); len(limits) == 0 {
			limits = []string{"unlimited"}
		}
		fmt.Fprintf(&lines, "\n%s: %s", r.name, strings.Join(limits, ", "))
		if r.shadow {
			lines.WriteString(" (shadow)")
		}
	}
	return fmt.Sprintf("%s: rules: %d, limits: %d%s", s.name, len(rules), count, &lines)
}

// Limiter returns a limiter that applies the rules in force, for adapters. The options are WithDeny and WithError of
// the adapter, and [core.WithHeaders]. All limiters of a set share their state.
func (s *Set) Limiter(opts ...core.Option) (*core.Limiter, error) {
	return s.limiter.Inside().Answering(opts)
}

// Close replays what was admitted while the store did not answer; see [core.Limiter.Close].
func (s *Set) Close() error { return s.limiter.Close() }

// Override gives a key of a rule another quota until an instant, as [core.Limiter.Override] does. The rules need
// [core.WithOverrides] among the options of [WithOptions].
//
//	err := set.Override(ctx, "api", "customer 7", core.Override{
//		Limits: core.Limits{core.PerMinute(600)}, Until: friday, Note: "ticket 4711",
//	})
//
// The key is a text that the rule's key finds: an address for ip, the identity for a header or a value, and nothing for
// global. No text names what join and keys of package jwtkey find: for these use [core.Decision.Override].
//
// For the key of a limit or a descriptor, rule is the rule's name, a slash, and the name of such a limit, as in
// RateLimit-Policy: "api/all". Descriptors of the same keys have their overrides in common. A rule in shadow has
// nothing to override, which is an error. docs/rules.md says more.
func (s *Set) Override(ctx context.Context, rule, key string, o core.Override) error {
	return s.limiter.Inside().OverrideNamed(ctx, rule, key, o)
}

// RemoveOverride ends the override of a key, named as for [Set.Override].
func (s *Set) RemoveOverride(ctx context.Context, rule, key string) error {
	return s.limiter.Inside().RemoveOverrideNamed(ctx, rule, key)
}

// RemoveOverrideByID ends the override with the ID of a [core.KeyOverride], as [core.Limiter.RemoveOverrideByID] does.
func (s *Set) RemoveOverrideByID(ctx context.Context, id string) error {
	return s.limiter.RemoveOverrideByID(ctx, id)
}

// Overrides lists the overrides in force, as [core.Limiter.Overrides] does: those of rules that this Set has, or had
// before its file was loaded again.
func (s *Set) Overrides(ctx context.Context) ([]core.KeyOverride, error) {
	return s.limiter.Overrides(ctx)
}

// choose adds what the rules that apply ask of a request. An error or a deny list of a rule in shadow refuses none.
func (s *Set) choose(r adapter.Request, c *choice) error {
	a := s.active.Load()
	return a.find(r, c, func(i int) error {
		rule := a.rules[i]
		err := rule.ask(r, c)
		if err != nil && rule.shadow {
			c.Fail(rule.name, err)
			return nil
		}
		return err
	})
}

// costOf returns how many requests a request costs: that of the rule, unless the request has its own.
func (r *rule) costOf(req adapter.Request) int {
	if own, ok := req.(interface{ Cost() int }); ok && own.Cost() > 0 {
		return own.Cost()
	}
	return r.cost
}

// find calls add with the rules that apply to a request, in the order of the file: all that match a reading of its
// path, or the first one for each reading.
func (doc *document) find(r adapter.Request, c *choice, add func(rule int) error) error {
	t, ok := r.(adapter.Targeter)
	if !ok {
		return errNoTarget
	}
	target := t.Target()
	var few [4]reading
	left, ends := readingsOf(&target, few[:0])
	cleaned, decided := left[0], false // decided says that there is a rule for the cleaned path
	c.Ambiguous = len(left) > 1
	for i, rule := range doc.rules {
		if field, err := rule.match.fails(r, &target, left, c); err != nil {
			return err
		} else if field != "" {
			continue
		}
		matches := func(r reading) bool { return rule.match.path.matches(r, &target) }
		// A rule of the path itself that gives way to an earlier one does not apply because of what may be left of it.
		if !decided || !ends || !matches(cleaned) {
			if err := add(i); err != nil {
				return err
			}
		}
		if doc.all {
			continue
		}
		decided = decided || matches(cleaned)
		if left = slices.DeleteFunc(left, matches); len(left) == 0 {
			return nil
		}
	}
	return nil
}

// ask adds what the rule asks of a request that it matches.
func (r *rule) ask(req adapter.Request, c *choice) error {
	if named, err := c.Names(r.deny); err != nil || named {
		return cmp.Or(err, core.ErrForbidden)
	}
	if named, err := c.Names(r.allow); err != nil || named {
		c.Listed = c.Listed || named
		return err
	}
	decided, err := r.askPart(req, c, &r.part)
	c.CountDenied = c.CountDenied || err == nil && decided && r.countDenied
	return err
}

// askPart adds the limits of a part of the rule, or those of the deepest descriptors below it that match the request.
// It reports whether there are any that are not in shadow, or a part that is unlimited.
func (r *rule) askPart(req adapter.Request, c *choice, p *part) (decided bool, err error) {
	decided = p.unlimited
	for _, g := range p.below {
		text, ok, err := textOfKey(c, g.key)
		if err != nil {
			return false, err
		}
		d := cmp.Or(g.values[text], g.values[""])
		if !ok || d == nil {
			continue
		}
		below, err := r.askPart(req, c, d)
		if err != nil {
			return false, err
		}
		decided = decided || below
	}
	if p.asks == nil || decided && !p.shadow {
		return decided, nil
	}
	units, err := r.unitCosts(req)
	switch {
	case err == nil:
		c.Add(p.asks, r.costOf(req), units)
	case p.shadow && !r.shadow:
		c.Fail(r.name, err)
	default:
		return false, err
	}
	return decided || !p.shadow, nil
}
