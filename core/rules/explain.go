package rules

import (
	"cmp"
	"context"
	"encoding/json"
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

// LimitExplanation is a limit that is in force for a request: of a rule that applies, or of an override in its place.
// If it could not be read, as without a key, the fields but Limit are zero.
type LimitExplanation struct {
	Limit      string // such as "5/minute"
	Unit       string // what it counts, such as "requests"
	Quota      int
	Used       int           // units in the window now
	Remaining  int           // units left now
	RetryAfter time.Duration // until this limit would admit the request; 0 if it would now, or if that is not known
}

// OverrideExplanation is an override that is in force for a key of a request.
type OverrideExplanation struct {
	Kind  string    // "limits", "denied" or "unlimited"
	Until time.Time // its end
	Note  string    // why, as it was given
}

// Explain returns which rules apply to a request and why the others do not, what their limits have left, and what would
// be decided. It charges nothing and calls no observers. If a list or core.WithSkip of [WithOptions] decides about the
// request, it returns that decision and ignores the rules. Adapters have a function of this name for requests of their
// framework.
func (s *Set) Explain(r adapter.Request) (e Explanation) {
	in, asked := s.limiter.Inside(), []gate.Applied(nil)
	e.Decision, e.Err = in.Preview(r, func(r adapter.Request, c *choice) (err error) {
		e.Rules, err = s.explain(r, c)
		asked = slices.Clone(c.Applied())
		return err
	})
	e.addLimits(r.Context(), e.Decision.Inside(), asked, false)
	e.addLimits(r.Context(), e.Decision.Inside().Shadow, asked, true)
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
		all[i].Applies, all[i].Reason = true, rule.reason(c, failed, len(c.Applied())-before)
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
			one.Reason = "match." + field + ": " + err.Error()
		case field == "path":
			one.Reason = "match.path: the request's path does not match " + rule.at.get("match").get("path").Value
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
	case failed != nil:
		return failed.Error()
	case c.Listed:
		return "the client is on its allow list"
	case r.unlimited:
		return "unlimited"
	case added == 0 && r.asks != nil:
		return "its key could not be read"
	case added == 0:
		return "no descriptor has a limit for this request"
	}
	return ""
}

// addLimits adds the limits of a result as they stand now, of rules in shadow or of the others. If that cannot be told,
// it adds those of the rules that were to be asked.
func (e *Explanation) addLimits(ctx context.Context, res *engine.Result, asked []gate.Applied, shadow bool) {
	if res != nil && res.Set != nil {
		if now, err := res.Now(ctx); err == nil {
			for i := range now.Set.Limits {
				e.addLimit(now, i, res.State(i).Asked)
			}
			return
		}
	}
	for _, of := range asked {
		if of.Rule.Shadow != shadow {
			continue
		}
		for i := range of.Rule.Set().Limits {
			l := &of.Rule.Set().Limits[i]
			rule := e.ruleOf(l)
			rule.Limits = append(rule.Limits, LimitExplanation{Limit: l.Text})
		}
	}
}

// ruleOf returns the explanation of a limit's rule.
func (e *Explanation) ruleOf(l *engine.Limit) *RuleExplanation {
	isNamed := func(r RuleExplanation) bool { return r.Name == l.Rule().Policy }
	return &e.Rules[slices.IndexFunc(e.Rules, isNamed)]
}

// addLimit adds a limit, and the override of its key. takes says that the request takes units of it.
func (e *Explanation) addLimit(now *engine.Result, limit int, takes bool) {
	of, state := &now.Set.Limits[limit], now.State(limit)
	rule := e.ruleOf(of)
	one := LimitExplanation{of.Text, limittext.UnitName(of.Unit), of.Quota, state.Used, state.Left, 0}
	if takes {
		one.RetryAfter = state.Wait
	}
	rule.Limits = append(rule.Limits, one)
	if o := now.OverrideOf(limit); o != nil {
		kind := (&core.Override{Denied: o.Denied, Unlimited: o.Unlimited}).Kind()
		override := OverrideExplanation{kind, o.Until, o.Note}
		if !slices.Contains(rule.Overrides, override) {
			rule.Overrides = append(rule.Overrides, override)
		}
	}
}

// String has a line for what would be decided, one for each rule, and below a rule that applies its limits and the
// overrides of keys of the request. In the end it has a line for each version of the file.
func (e Explanation) String() string {
	var b strings.Builder
	if e.Err != nil {
		fmt.Fprintf(&b, "no decision: %s\n", oneLine(e.Err.Error()))
	} else {
		fmt.Fprintln(&b, e.Decision)
	}
	for _, r := range e.Rules {
		does := "does not apply"
		if r.Applies {
			does = "applies"
		}
		if r.Reason != "" {
			does += ": " + oneLine(r.Reason)
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
		}
	}
	for _, v := range e.Versions {
		fmt.Fprintf(&b, "version %v\n", v)
	}
	return b.String()
}

// String has the limit and how much of it is used and left.
func (l LimitExplanation) String() string {
	if l.Quota == 0 {
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
