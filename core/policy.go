package core

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// Policy is how much is allowed: a [Limit], several [Limits] decided together, or [LimitBy] for limits that depend on
// the request. The interface is sealed.
type Policy interface {
	compile() (*policy, error) // returns a policy even with an error, so that further mistakes can be found
}

// policy is a Policy ready for use: all that does not depend on the request has been checked and rendered.
type policy struct {
	fixed     *plan.Plan                   // unless requests choose limits
	choose    func(adapter.Request) Limits // returns the limits of a request
	shadow    *policy                      // the policy of WithShadow, or nil
	callbacks []keys.Callback
	name      string                       // unless WithName gives another
	spaces    *plan.Spaces                 // of the limiter
	chosen    atomic.Pointer[[]chosenPlan] // the plans of limits chosen so far
	context   bool                         // choose works without a request
}

// chosenPlan is the plan of limits that requests have chosen.
type chosenPlan struct {
	given, shadow Limits
	plan          *plan.Plan
}

// chosenPlans is how many plans of LimitBy are remembered. Further ones are compiled for each request.
const chosenPlans = 64

func (l Limit) compile() (*policy, error) { return Limits{l}.compile() }

func (ls Limits) compile() (*policy, error) {
	given := ls.clone()
	p, err := newPlan(given, "limits")
	compiled := &policy{
		fixed: p, choose: func(adapter.Request) Limits { return given }, name: defaultPolicyName(given), context: true,
	}
	for i, l := range given {
		known := slices.ContainsFunc(given[:i], func(earlier Limit) bool { return earlier.by == l.by })
		if l.by != nil && !known {
			compiled.callbacks = append(compiled.callbacks, l.by.Callbacks...)
		}
	}
	return compiled, err
}

// clone returns a copy that refers to no memory of the caller, which fasthttp may reuse.
func (ls Limits) clone() Limits {
	own := slices.Clone(ls)
	for i := range own {
		own[i].Name = strings.Clone(own[i].Name)
	}
	return own
}

// newPlan makes a plan of limits, without logs. It returns one even with an error, so that further mistakes can be
// found. option names the limits in errors.
func newPlan(limits Limits, option string) (*plan.Plan, error) {
	var faults []error
	compiled := make([]plan.Limit, len(limits))
	for i := range limits {
		l := &limits[i]
		if l.by != nil && l.by.Fault != nil {
			faults = append(faults, l.by.Fault)
		}
		text := l.text()
		wrong := text.Faults()
		for _, f := range wrong {
			faults = append(faults, configError(option, text.String(), f.Problem, f.Remedy))
		}
		if len(wrong) == 0 {
			compiled[i] = l.compiled()
		}
	}
	p, err := plan.New(compiled, option)
	return p, errors.Join(append(faults, err)...)
}

// LimitBy chooses the limits for each request, for example by the customer's plan or tier. All of them apply to the
// same log, so a customer who changes to a larger plan keeps what was used and gains the difference at once.
//
//	core.LimitBy(func(r *http.Request) core.Limits { return tiers[tierOf(r)] })
//
// If f returns invalid limits or none, the request is refused (500), never admitted. The policy's name is "dynamic"
// unless [WithName] sets one; two such policies on one store need two names. Entries are kept for the longest window so
// far.
func LimitBy[C any](f func(C) Limits) Policy {
	if f == nil {
		return limitBy{}
	}
	get := native[C]()
	return limitBy{
		choose:   func(r adapter.Request) Limits { return f(get(r)) },
		callback: callbackOf[C]("LimitBy"),
	}
}

type limitBy struct {
	choose   func(adapter.Request) Limits
	callback keys.Callback
}

func (l limitBy) compile() (*policy, error) {
	if l.choose == nil {
		return new(policy), configError("LimitBy", "nil", noFunction,
			"pass a function that returns the limits for a request")
	}
	return &policy{
		choose: l.choose, callbacks: []keys.Callback{l.callback}, name: "dynamic",
		context: l.callback.Type == contextType,
	}, nil
}

// withShadow makes p evaluate shadow as well.
func (p *policy) withShadow(shadow *policy) error {
	p.shadow = shadow
	p.callbacks = append(p.callbacks, shadow.callbacks...)
	if p.fixed == nil || shadow.fixed == nil {
		return nil
	}
	return p.fixed.AddShadow(shadow.fixed)
}

// varies reports whether limits depend on the request.
func (p *policy) varies() bool {
	return p.fixed == nil || p.shadow != nil && p.shadow.fixed == nil
}

// plan returns the plan for a request. An error beside a plan is why the plan has no shadow.
func (p *policy) plan(r adapter.Request) (*plan.Plan, error) {
	if !p.varies() {
		return p.fixed, nil
	}
	given, shadow := p.choose(r), Limits(nil)
	_, call := r.(noRequest)
	tries := p.shadow != nil && (p.shadow.context || !call)
	if tries {
		shadow = p.shadow.choose(r)
	}
	chosen, plans := p.chosen.Load(), []chosenPlan(nil)
	if chosen != nil {
		plans = *chosen
	}
	for i := range plans {
		if c := &plans[i]; slices.Equal(c.given, given) && slices.Equal(c.shadow, shadow) {
			return c.plan, nil
		}
	}
	given, shadow = given.clone(), shadow.clone()
	pl, err := newPlan(given, "LimitBy")
	if err != nil {
		return nil, &requestError{err}
	}
	if tries {
		err = p.addShadow(pl, shadow)
	}
	if failed := p.spaces.Split(pl); failed != nil {
		return nil, &requestError{failed}
	}
	if err == nil && tries == (p.shadow != nil) && len(plans) < chosenPlans {
		more := append(slices.Clone(plans), chosenPlan{given, shadow, pl})
		p.chosen.CompareAndSwap(chosen, &more) // if another request was faster, a later one adds this plan
	}
	return pl, err
}

// addShadow adds limits that do not decide to a plan, unless the store cannot serve them.
func (p *policy) addShadow(pl *plan.Plan, limits Limits) error {
	shadow, err := newPlan(limits, "WithShadow")
	if err == nil {
		err = p.spaces.Validate(shadow)
	}
	if err == nil {
		err = pl.AddShadow(shadow)
	}
	return err
}

// unservable returns an error if the store cannot decide over the logs of a plan.
func unservable(s store.Store, p *plan.Plan) error {
	if err := s.Validate(p.StorePlans()...); err != nil {
		return err
	}
	_, renews := s.(store.Renewer)
	_, settles := s.(store.Settler)
	if slices.ContainsFunc(p.Logs, (*plan.Log).InFlight) && !(renews && settles) {
		return configError("InFlight", fmt.Sprintf("%T", s), "this store cannot hold requests in flight: "+
			"it has no methods Renew and Settle (store.Renewer, store.Settler)", otherStore)
	}
	return nil
}

// defaultPolicyName is made of quotas and windows as well as names, so that limits of different quotas never share a
// log because they have the same Name. Periods of the calendar that begin at different instants do.
func defaultPolicyName(limits Limits) string {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = l.text().DefaultName()
		if l.Name != "" && l.Name != names[i] {
			names[i] = l.Name + "." + names[i]
		}
	}
	name := strings.Join(names, "_")
	if !validPolicyName(name) {
		sum := sha256.Sum256([]byte(name))
		name = "limits-" + hex.EncodeToString(sum[:16])
	}
	return name
}

const (
	maxPolicyName = 48
	minSecret     = 16
)

func validPolicyName(s string) bool {
	return len(s) <= maxPolicyName && limittext.ValidName(s) && s == strings.ToLower(s)
}

// textOf returns limits as users write them.
func textOf(limits []plan.Limit) string {
	texts := make([]string, len(limits))
	for i := range limits {
		texts[i] = limits[i].Text
	}
	return strings.Join(texts, ",")
}
