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

	Versions []Version `json:",omitempty"` // of the file that processes enforce, as [Set.Versions] has them
}

// RuleExplanation is whether a rule applies to a request, and why not.
type RuleExplanation struct {
	Name    string
	Applies bool
	Reason  string // the condition that fails, or the earlier rule that applies; empty if there is none
	Limits  []LimitExplanation

	Overrides []OverrideExplanation `json:",omitempty"` // of keys of the request; see [Set.Override]
}

// LimitExplanation is a limit of a rule that applies. If it could not be read, as without a key, the fields but Limit
// are zero.
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
	in := s.limiter.Inside()
	e.Decision, e.Err = in.Preview(r, func(r adapter.Request, c *choice) (err error) {
		e.Rules, err = s.explain(r, c)
		return err
	})
	if passes, err := in.Exempt(r); err != nil {
		e.Decision, e.Err = core.Decision{}, err
	} else if passes {
		e.Decision, e.Err = core.Decision{Allowed: true}, nil
	}
	e.Versions, _ = s.Versions(r.Context()) // none if the store does not answer
	return e
}

// explain adds the rules that apply to a request, as [Set.choose] does, and says why.
func (s *Set) explain(r adapter.Request, c *choice) (all []RuleExplanation, err error) {
	doc, earlier := s.active.Load(), ""
	all = make([]RuleExplanation, len(doc.rules))
	var first error // which ends a decision; rules are explained nevertheless
	broken := doc.find(r, c, func(i int) error {
		rule := doc.rules[i]
		earlier = cmp.Or(earlier, rule.name)
		before, listed := len(c.Applied()), c.Listed
		c.Listed = false
		failed := rule.ask(r, c)
		added := c.Applied()[before:]
		all[i].Applies, all[i].Reason = true, rule.reason(c, failed, len(added))
		for _, leaf := range added {
			of := slices.IndexFunc(rule.parts, func(p *part) bool { return p.asks == leaf.Rule })
			s.explainLimits(r, leaf, rule.parts[of].limits, &all[i])
		}
		if c.Listed = c.Listed || listed; !rule.shadow {
			first = cmp.Or(first, failed)
		}
		return nil
	})
	var target adapter.Target // without one, find has failed
	if t, ok := r.(adapter.Targeter); ok {
		target = t.Target()
	}
	readings, _ := readingsOf(&target, nil)
	for i, rule := range doc.rules {
		one := &all[i]
		if one.Name = rule.name; one.Applies {
			continue
		}
		switch field, err := rule.match.fails(r, &target, readings, c); {
		case err != nil:
			one.Reason = "a condition could not be checked"
		case field == "path":
			one.Reason = "match.path: the request's path does not match " + rule.match.route
		case field != "":
			one.Reason = "match." + field + ": the request has another value, or none"
		case broken != nil:
			one.Reason = "a condition of an earlier rule could not be checked"
		default:
			one.Reason = "an earlier rule applies: " + earlier
		}
	}
	return all, cmp.Or(first, broken)
}

// reason explains a rule that applies and has added so many leaves to the choice, or returns "".
func (r *rule) reason(c *choice, failed error, added int) string {
	switch {
	case errors.Is(failed, core.ErrForbidden):
		return "the client is on its deny list"
	case errors.As(failed, new(*adapter.ConstantError)):
		return "its costs are not known"
	case failed != nil, added == 0 && r.asks != nil && !c.Listed:
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

// explainLimits adds the limits of a leaf that applies, and the overrides that are in force in their place.
func (s *Set) explainLimits(r adapter.Request, leaf gate.Applied, limits []limit, e *RuleExplanation) {
	d, err := s.limiter.Inside().Preview(r, func(_ adapter.Request, c *choice) error {
		c.Add(leaf.Rule, leaf.Cost, leaf.Units)
		return nil
	})
	res, now := d.Inside(), (*engine.Result)(nil)
	if leaf.Rule.Shadow {
		res = res.Shadow
	}
	if err == nil && res != nil && res.Set != nil {
		now, _ = res.Now(r.Context()) // nil if the store does not answer
	}
	var known []*engine.Override
	for n, one := range limits {
		l := LimitExplanation{Limit: one.at.Value}
		if of := &leaf.Rule.Set().Limits[n]; now != nil {
			o := now.OverrideOf(of)
			if l.Overridden = o != nil && o.Replaces(of); !l.Overridden {
				l.fill(now, slices.IndexFunc(now.Set.Limits, func(l engine.Limit) bool {
					return l.Text == of.Text && l.SameLog(of)
				}), leaf.Of(of.Unit) > 0)
			} else if !slices.Contains(known, o) {
				known = append(known, o)
				e.Overrides = append(e.Overrides, explainOverride(o, of, now))
			}
		}
		e.Limits = append(e.Limits, l)
	}
}

// explainOverride explains an override of the key of a limit.
func explainOverride(o *engine.Override, of *engine.Limit, now *engine.Result) OverrideExplanation {
	kind := (&core.Override{Denied: o.Denied, Unlimited: o.Unlimited}).Kind()
	e := OverrideExplanation{Kind: kind, Until: o.Until, Note: o.Note}
	for _, g := range o.Limits {
		l := LimitExplanation{Limit: g.String()}
		l.fill(now, slices.IndexFunc(now.Set.Limits, func(l engine.Limit) bool {
			return l.SameKey(of) && l.Unit == g.Unit && l.Text == g.String()
		}), true)
		e.Limits = append(e.Limits, l)
	}
	return e
}

// fill sets the numbers of a limit, if the result has it. asks says that the request costs some of its units.
func (l *LimitExplanation) fill(r *engine.Result, limit int, asks bool) {
	if limit < 0 {
		return
	}
	of, now := &r.Set.Limits[limit], r.State(limit)
	l.Unit, l.Quota, l.Used, l.Remaining = limittext.UnitName(of.Unit), of.Quota, now.Used, now.Left
	if asks {
		l.RetryAfter = now.Wait
	}
}

// String has a line for what would be decided, one for each rule, and below a rule that applies its limits and the
// overrides of keys of the request. In the end it has a line for each version of the file.
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
	for _, v := range e.Versions {
		fmt.Fprintf(&b, "version %v\n", v)
	}
	return b.String()
}

// String has the limit and how much of it is used and left.
func (l LimitExplanation) String() string {
	switch {
	case l.Overridden:
		return l.Limit + ": overridden"
	case l.Quota == 0:
		return l.Limit + ": not read"
	}
	text := fmt.Sprintf("%s: %d used, %d left", l.Limit, l.Used, l.Remaining)
	if l.RetryAfter > 0 {
		text += fmt.Sprintf(", free in %v", l.RetryAfter.Round(time.Millisecond))
	}
	return text
}

// MarshalJSON writes the error as its text. It is for operators: it may contain what a key's function returns about a
// client.
func (e Explanation) MarshalJSON() ([]byte, error) {
	type plain Explanation
	out := struct {
		plain

		Err string `json:",omitempty"`
	}{plain: plain(e)}
	if e.Err != nil {
		out.Err = e.Err.Error()
	}
	return json.Marshal(out)
}
