package core

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/store"
)

// Policy tells how much is allowed: a [Limit], several [Limits] decided together, or [LimitBy] for limits that depend
// on the request. The interface is sealed.
type Policy interface {
	compile() (*policy, error) // returns a policy even with an error, so that further mistakes can be found
}

// policy is a Policy ready for use: all that does not depend on the request has been checked and rendered.
type policy struct {
	fixed         *plan                        // nil if limits are chosen per request
	choose        func(adapter.Request) Limits // chooses the limits of a request if fixed is nil
	shadow        *policy                      // the policy of WithShadow, or nil
	callbackTypes []callbackType
	name          string                  // unless WithName gives another
	spaces        *logSpaces              // of the limiter, for plans of several logs
	unfit         func(Limits) []error    // tells which options of the limiter the limits' algorithms cannot serve
	horizon       horizon                 // of the log of the limiter's key
	chosen        atomic.Pointer[[]*plan] // the plans of limits chosen so far
	context       bool                    // choose takes a context, so it works without a request
}

// ruleText is what a decision says of the rule of a limit.
type ruleText struct{ policy, detail string }

// chosenPlans is how many plans of LimitBy are remembered. Further ones are compiled for each request.
const chosenPlans = 64

func (l Limit) compile() (*policy, error) { return Limits{l}.compile() }

func (ls Limits) compile() (*policy, error) {
	p, err := newPlan(ls, "limits")
	compiled := &policy{fixed: p, name: defaultPolicyName(ls)}
	for i, l := range ls {
		known := slices.ContainsFunc(ls[:i], func(earlier Limit) bool { return earlier.by == l.by })
		if l.by != nil && !known {
			compiled.callbackTypes = append(compiled.callbackTypes, l.by.callbackTypes...)
		}
	}
	return compiled, err
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
		choose:       func(r adapter.Request) Limits { return f(get(r)) },
		callbackType: callbackTypeOf[C]("LimitBy"),
	}
}

type limitBy struct {
	choose       func(adapter.Request) Limits
	callbackType callbackType
}

func (l limitBy) compile() (*policy, error) {
	if l.choose == nil {
		return new(policy), &ConfigError{
			Option: "LimitBy", Value: "nil", Reason: "give it a function that returns the limits for a request",
		}
	}
	return &policy{
		choose: l.choose, callbackTypes: []callbackType{l.callbackType}, name: "dynamic",
		context: l.callbackType.typ == contextType,
	}, nil
}

// withShadow makes p evaluate shadow as well.
func (p *policy) withShadow(shadow *policy) error {
	p.shadow = shadow
	p.callbackTypes = append(p.callbackTypes, shadow.callbackTypes...)
	p.context = (p.fixed != nil || p.context) && (shadow.fixed != nil || shadow.context)
	if p.fixed == nil || shadow.fixed == nil {
		return nil
	}
	var err error
	p.fixed, err = p.fixed.withShadow(shadow.fixed)
	return err
}

// varies reports whether limits depend on the request.
func (p *policy) varies() bool {
	return p.choose != nil || p.shadow != nil && p.shadow.choose != nil
}

// plan returns the plan for a request. It calls validate with limits that were not seen before. An error beside a plan
// tells why the plan has no shadow.
func (p *policy) plan(r adapter.Request, validate func(*store.Plan) error) (*plan, error) {
	if !p.varies() {
		return p.fixed, nil
	}
	given, shadow := p.limitsFor(r), Limits(nil)
	if p.shadow != nil {
		shadow = p.shadow.limitsFor(r)
	}
	known := p.chosen.Load()
	if known == nil {
		known = new([]*plan)
		p.chosen.CompareAndSwap(nil, known)
		known = p.chosen.Load()
	}
	for _, pl := range *known {
		if slices.Equal(pl.given, given) && (pl.shadow == nil && p.shadow == nil ||
			pl.shadow != nil && slices.Equal(pl.shadow.given, shadow)) {
			return pl, nil
		}
	}
	pl, err := newPlan(given, "LimitBy")
	if err == nil {
		err = errors.Join(append(p.unfit(pl.limits), pl.validate(validate))...)
	}
	if err != nil {
		return nil, err
	}
	if p.shadow != nil {
		var sh *plan
		if sh, err = newPlan(shadow, "WithShadow"); err == nil {
			if err = sh.validate(validate); err == nil {
				pl, err = pl.withShadow(sh)
			}
		}
	}
	if failed := p.prepare(pl); failed != nil {
		return nil, failed
	}
	if err == nil && len(*known) < chosenPlans {
		more := append(slices.Clone(*known), pl)
		p.chosen.CompareAndSwap(known, &more) // if another request was faster, a later one adds this plan
	}
	return pl, err
}

// prepare finds the logs of a plan, and notes for how long they keep entries.
func (p *policy) prepare(pl *plan) error {
	if err := p.spaces.split(pl); err != nil {
		return err
	}
	if len(pl.logs) == 0 && pl.only == nil {
		p.horizon.raise(pl.keep, pl.alone.Largest())
	}
	for _, log := range pl.logs {
		log.space.horizon.raise(log.keep, newStorePlan(log.limits, log.shadow, 0, 0, false).Largest())
	}
	return nil
}

// horizon is for how long, and how many units, the logs of a key keep: as many as any of the plans so far may count.
type horizon struct {
	keep atomic.Int64 // the longest window
	most atomic.Int64 // units of the largest quota
}

func (h *horizon) raise(keep time.Duration, most int) {
	raise(&h.keep, int64(keep))
	raise(&h.most, int64(most))
}

func raise(most *atomic.Int64, to int64) {
	for {
		if now := most.Load(); to <= now || most.CompareAndSwap(now, to) {
			return
		}
	}
}

// fix makes the plan for the store, unless limits depend on the request.
func (p *policy) fix() error {
	if p.fixed == nil || p.varies() {
		return nil
	}
	if err := p.spaces.split(p.fixed); err != nil {
		return err
	}
	if len(p.fixed.logs) == 0 && p.fixed.only == nil {
		p.fixed.fixed = p.storePlan(p.fixed)
	}
	return nil
}

// storePlan returns the plan for the store, where pl.fixed is nil. It is remade after a longer window or a larger quota
// was chosen, because entries must be kept for every plan that may count them.
func (p *policy) storePlan(pl *plan) *store.Plan {
	if pl.only != nil {
		return p.planOfLog(pl.only)
	}
	return p.horizon.plan(&pl.stored, pl.all, len(pl.all)-len(pl.limits), pl.keep, p.varies())
}

// planOfLog is storePlan for one of several logs.
func (p *policy) planOfLog(l *planLog) *store.Plan {
	return l.space.horizon.plan(l.stored, l.limits, l.shadow, l.keep, p.varies())
}

func (h *horizon) plan(
	stored *atomic.Pointer[store.Plan], limits Limits, shadow int, own time.Duration, varies bool,
) *store.Plan {
	keep, bound := time.Duration(h.keep.Load()), int(h.most.Load())
	sp := stored.Load()
	if sp == nil || sp.Keep < keep || sp.Bound < bound || !isPresent(sp) {
		sp = newStorePlan(limits, shadow, max(keep, own), bound, varies)
		stored.Store(sp)
	}
	return sp
}

// newStorePlan makes a plan of limits that have windows, or of limits of requests in flight.
func newStorePlan(limits Limits, shadow int, keep time.Duration, bound int, varies bool) *store.Plan {
	p := store.Plan{Shadow: shadow, Keep: keep, Bound: bound, Varies: varies}
	for _, l := range limits {
		p.Slots = l.inFlight
		p.Limits = append(p.Limits, l.forStore())
	}
	return store.NewPlan(p)
}

// limitsFor returns the limits for a request, as they were given.
func (p *policy) limitsFor(r adapter.Request) Limits {
	if p.fixed != nil {
		return p.fixed.given
	}
	return p.choose(r)
}

// defaultPolicyName is made of quotas and windows as well as names, so that limits of different quotas never share a
// log because they have the same Name. Periods of the calendar that begin at different instants do.
func defaultPolicyName(limits Limits) string {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = l.defaultName()
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
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return false
		}
	}
	return len(s) <= maxPolicyName && validName(s)
}
