package rules

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/limittext"
)

// Explanation is what the rules in force do with a request.
type Explanation struct {
	Decision core.Decision     // what would be decided; the zero Decision if there is an Err
	Err      error             // why there would be no decision: core.ErrForbidden for a client on a deny list
	Rules    []RuleExplanation // in the order of the file
}

// RuleExplanation is whether a rule applies to a request, and why not.
type RuleExplanation struct {
	Name    string
	Applies bool
	Reason  string // the condition that fails, or the earlier rule that applies; empty if there is none
	Limits  []LimitExplanation

	Overrides []OverrideExplanation `json:",omitempty"` // of keys of the request; see [Set.Override]
}

// LimitExplanation is a limit of a rule that applies.
type LimitExplanation struct {
	Limit      string // as in the file
	Unit       string // what it counts, such as "requests"
	Quota      int
	Used       int           // units in the window now
	Remaining  int           // units left now
	RetryAfter time.Duration // until this limit would admit the request; 0 if it would now, or if that is not known

	Overridden bool `json:",omitempty"` // an override is in force in its place, and the fields but Limit are zero
}

// OverrideExplanation is an override that is in force for a key of a request.
type OverrideExplanation struct {
	Kind   string             // "limits", "denied" or "unlimited"
	Until  time.Time          // its end
	Note   string             // why, as it was given
	Limits []LimitExplanation `json:",omitempty"` // those that it sets
}

// Explain returns which rules apply to a request and why the others do not, what their limits have left, and what would
// be decided. It charges nothing and calls no observers. If a list or core.WithSkip of [WithOptions] decides about the
// request, it returns that decision and ignores the rules. Adapters have a function of this name for requests of their
// framework.
func (s *Set) Explain(r adapter.Request) (e Explanation) {
	a, in := s.active.Load(), s.limiter.Inside()
	leaves := make([][]*engine.Rule, len(a.rules))
	var asked []gate.Applied
	e.Decision, _, e.Err = in.Preview(r, func(r adapter.Request, c *choice) error {
		err := a.explain(r, c, &e, leaves)
		asked = slices.Clone(c.Applied())
		return err
	})
	for i := range e.Rules {
		for _, one := range asked {
			if slices.Contains(leaves[i], one.Rule) {
				s.explainLimits(r, one, a.rules[i].limitsOf(one.Rule), &e.Rules[i])
			}
		}
	}
	if passes, err := in.Exempt(r); err != nil {
		e.Decision, e.Err = core.Decision{}, err
	} else if passes {
		e.Decision, e.Err = core.Decision{Allowed: true}, nil
	}
	return e
}

// explain adds the rules that apply to a request, as [Set.choose] does, and notes why.
func (a *state) explain(r adapter.Request, c *choice, e *Explanation, leaves [][]*engine.Rule) error {
	e.Rules = make([]RuleExplanation, len(a.rules))
	earlier := ""
	var first error // which ends a decision; rules are explained nevertheless
	broken := a.find(r, c, func(rule int) error {
		earlier = cmp.Or(earlier, a.rules[rule].name)
		before, listed := len(c.Applied()), c.Listed
		c.Listed = false
		failed := a.rules[rule].ask(r, c)
		for _, added := range c.Applied()[before:] {
			leaves[rule] = append(leaves[rule], added.Rule)
		}
		e.Rules[rule].Applies, e.Rules[rule].Reason = true, a.rules[rule].reason(c, failed, len(leaves[rule]))
		if c.Listed = c.Listed || listed; !a.rules[rule].shadow {
			first = cmp.Or(first, failed)
		}
		return nil
	})
	for i, rule := range a.rules {
		one := &e.Rules[i]
		if one.Name = rule.name; one.Applies {
			continue
		}
		switch reason, failed := rule.mismatch(r, c); {
		case failed != nil:
			one.Reason = "a condition could not be checked"
		case reason != "":
			one.Reason = reason
		case broken != nil:
			one.Reason = "a condition of an earlier rule could not be checked"
		default:
			one.Reason = "an earlier rule applies: " + earlier
		}
	}
	return cmp.Or(first, broken)
}

// reason explains a rule that applies and has added so many limits to the choice, or returns "".
func (r *rule) reason(c *choice, failed error, added int) string {
	switch {
	case errors.Is(failed, core.ErrForbidden):
		return "the client is on its deny list"
	case errors.As(failed, new(*gate.RulesError)):
		return "its costs are not known"
	case failed != nil, added == 0 && r.prepared != nil && !c.Listed:
		return "its key could not be read"
	case c.Listed:
		return "the client is on its allow list"
	case r.unlimited:
		return "unlimited"
	case added == 0:
		return "no descriptor has a limit for this request"
	}
	return ""
}

// explainLimits adds the limits of a rule that applies, and the overrides that are in force in their place.
func (s *Set) explainLimits(r adapter.Request, rule gate.Applied, limits []limit, e *RuleExplanation) {
	in := s.limiter.Inside()
	d, _, err := in.Preview(r, func(_ adapter.Request, c *choice) error {
		c.Add(rule.Rule, rule.Cost, rule.Units)
		return nil
	})
	var now *engine.Result
	res := d.Inside()
	if rule.Rule.Shadow {
		res = res.Shadow
	}
	if err == nil && res != nil && res.Set != nil {
		now, err = res.Each(r.Context())
	}
	set := rule.Rule.Set()
	for n, one := range limits {
		l := LimitExplanation{Limit: one.text}
		if err != nil || now == nil {
			e.Limits = append(e.Limits, l)
			continue
		}
		if o := now.OverrideOf(set.KeyOf(n)); overrides(o, one.unit) && !set.Limits[n].InFlight {
			l.Overridden = true
			e.addOverride(o, now, set.KeyOf(n), one.unit)
		} else if i := indexOf(now, &set.Limits[n]); i >= 0 {
			l.fill(now, i, rule.Of(one.unit) > 0)
		}
		e.Limits = append(e.Limits, l)
	}
}

// overrides reports whether an override replaces limits of a unit.
func overrides(o *engine.Override, unit string) bool {
	return o != nil && (o.Denied || o.Unlimited ||
		slices.ContainsFunc(o.Limits, func(g engine.Given) bool { return g.Unit == unit }))
}

// indexOf returns which limit of a result a limit of a rule is, or -1.
func indexOf(r *engine.Result, l *engine.Limit) int {
	return slices.IndexFunc(r.Set.Limits, func(other engine.Limit) bool {
		return other.Text == l.Text && other.SameLog(l)
	})
}

// fill sets the numbers of a limit. asks says that the request costs some of its units.
func (l *LimitExplanation) fill(r *engine.Result, limit int, asks bool) {
	of := &r.Set.Limits[limit]
	l.Unit, l.Quota, l.Used, l.Remaining = limittext.UnitName(of.Unit), of.Quota, r.Used(limit), r.Left(limit)
	if asks {
		l.RetryAfter = r.Wait(limit)
	}
}

// addOverride adds an override of a key, and those of its limits that count a unit.
func (e *RuleExplanation) addOverride(o *engine.Override, now *engine.Result, k *engine.Key, unit string) {
	kind := (&core.Override{Denied: o.Denied, Unlimited: o.Unlimited}).Kind()
	i := slices.IndexFunc(e.Overrides, func(other OverrideExplanation) bool {
		return other.Kind == kind && other.Until.Equal(o.Until) && other.Note == o.Note
	})
	if i < 0 {
		i = len(e.Overrides)
		e.Overrides = append(e.Overrides, OverrideExplanation{Kind: kind, Until: o.Until, Note: o.Note})
	}
	all := &e.Overrides[i].Limits
	for _, g := range o.Limits {
		of := slices.IndexFunc(now.Set.Limits, func(l engine.Limit) bool {
			return l.IsOf(k) && l.Unit == g.Unit && l.Text == g.String()
		})
		known := slices.ContainsFunc(*all, func(l LimitExplanation) bool { return l.Limit == g.String() })
		if g.Unit != unit || of < 0 || known { // another limit of the rule has told it
			continue
		}
		l := LimitExplanation{Limit: g.String()}
		l.fill(now, of, true)
		*all = append(*all, l)
	}
}

// limitsOf returns the limits that were prepared together.
func (r *rule) limitsOf(p *engine.Rule) []limit {
	for _, part := range r.parts() {
		if part.prepared == p {
			return part.limits
		}
	}
	return nil
}

// mismatch returns the condition of a rule that fails, or "".
func (r *rule) mismatch(req adapter.Request, c *choice) (string, error) {
	t, ok := req.(adapter.Targeter)
	if !ok {
		return "", errNoTarget
	}
	m, target := &r.match, t.Target()
	path, others, _ := readingsOf(&target, nil)
	matches := func(r reading) bool { return m.path.matches(r, &target) }
	if !matches(path) && !slices.ContainsFunc(others, matches) {
		return "match.path: the request's path does not match " + m.route, nil
	}
	for i := range m.conditions {
		cond := &m.conditions[i]
		texts, err := cond.texts(req, &target, c, nil)
		switch {
		case err != nil:
			return "", err
		case len(texts) == 0:
			return cond.field() + ": the request has none", nil
		case !intersect(cond.values, texts):
			return cond.field() + ": the request has another value", nil
		}
	}
	return "", nil
}

// String has a line for what would be decided, one for each rule, and below a rule that applies its limits and the
// overrides of keys of the request.
func (e Explanation) String() string {
	var b strings.Builder
	if e.Err != nil {
		fmt.Fprintf(&b, "no decision: %v\n", e.Err)
	} else {
		fmt.Fprintln(&b, e.Decision)
	}
	for _, r := range e.Rules {
		does := "does not apply"
		if r.Applies {
			does = "applies"
		}
		if r.Reason != "" {
			does += ": " + r.Reason
		}
		fmt.Fprintf(&b, "%s %s\n", r.Name, does)
		for _, l := range r.Limits {
			fmt.Fprintf(&b, "  %v\n", l)
		}
		for _, o := range r.Overrides {
			fmt.Fprintf(&b, "  override=%s until %s", o.Kind, o.Until.Format(time.RFC3339))
			if o.Note != "" {
				fmt.Fprintf(&b, ": %s", oneLine(o.Note))
			}
			b.WriteByte('\n')
			for _, l := range o.Limits {
				fmt.Fprintf(&b, "    %v\n", l)
			}
		}
	}
	return b.String()
}

// String has the limit and how much of it is used and left.
func (l LimitExplanation) String() string {
	if l.Overridden {
		return l.Limit + ": overridden"
	}
	text := fmt.Sprintf("%s: %d used, %d left", l.Limit, l.Used, l.Remaining)
	if l.RetryAfter > 0 {
		text += fmt.Sprintf(", free in %v", l.RetryAfter.Round(time.Millisecond))
	}
	return text
}

// duration is a text in JSON, such as "1m30s".
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// explanationJSON is an Explanation in JSON.
type explanationJSON struct {
	Decision struct {
		core.Decision

		RetryAfter, ResetAfter duration
	}
	Err   *string
	Rules []RuleExplanation
}

// MarshalJSON writes durations as texts such as "1m30s", and the error as its text, or null. The text is for operators:
// it may contain what a key's function returns about a client.
func (e Explanation) MarshalJSON() ([]byte, error) {
	out := explanationJSON{Rules: e.Rules}
	d := &out.Decision
	d.Decision = e.Decision
	d.RetryAfter, d.ResetAfter = duration(e.Decision.RetryAfter), duration(e.Decision.ResetAfter)
	if e.Err != nil {
		text := e.Err.Error()
		out.Err = &text
	}
	return json.Marshal(out) //nolint:musttag // the names in JSON are those of the fields
}

// UnmarshalJSON reads what MarshalJSON writes. Of the error there is only its text, and of the decision its fields.
func (e *Explanation) UnmarshalJSON(text []byte) error {
	var in explanationJSON
	if err := json.Unmarshal(text, &in); err != nil { //nolint:musttag // as above
		return err
	}
	d := &in.Decision
	*e = Explanation{Decision: d.Decision, Rules: in.Rules}
	e.Decision.RetryAfter, e.Decision.ResetAfter = time.Duration(d.RetryAfter), time.Duration(d.ResetAfter)
	if in.Err != nil {
		e.Err = errors.New(*in.Err)
	}
	return nil
}

type plainLimit LimitExplanation

// limitJSON is a LimitExplanation in JSON.
type limitJSON struct {
	plainLimit

	RetryAfter duration
}

// MarshalJSON writes RetryAfter as a text such as "1m30s".
func (l LimitExplanation) MarshalJSON() ([]byte, error) {
	return json.Marshal(limitJSON{plainLimit(l), duration(l.RetryAfter)}) //nolint:musttag // as above
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *LimitExplanation) UnmarshalJSON(text []byte) error {
	var in limitJSON
	err := json.Unmarshal(text, &in) //nolint:musttag // as above
	*l = LimitExplanation(in.plainLimit)
	l.RetryAfter = time.Duration(in.RetryAfter)
	return err
}
