package core

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// plan is one set of limits, each with a name.
type plan struct {
	given   Limits
	limits  Limits
	names   []string
	header  string                     // RateLimit-Policy
	keep    time.Duration              // the longest window, leases not included
	longest int                        // index of the limit with the longest window
	shadow  *plan                      // or nil
	all     Limits                     // limits and the limits of shadow
	logs    []*planLog                 // empty if there is one
	only    *planLog                   // the only one if it is of another algorithm, or nil
	counts  Algorithm                  // of the first limit that is not a sliding log
	rules   []*ruleText                // of each limit, if rules have chosen them
	alone   *store.Plan                // the limits without a shadow and without those of requests in flight
	fixed   *store.Plan                // for the store, if no limits depend on the request
	stored  atomic.Pointer[store.Plan] // for the store otherwise; see storePlan
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

func (p *plan) withShadow(shadow *plan) (*plan, error) {
	both := &plan{
		given: p.given, limits: p.limits, names: p.names, header: p.header, longest: p.longest, alone: p.alone,
		counts: p.counts, shadow: shadow, all: slices.Concat(p.limits, shadow.limits), keep: max(p.keep, shadow.keep),
	}
	if shadow.counts != SlidingLog {
		return p, shadowFault(shadow.counts)
	}
	if len(both.all) > maxLimits {
		return p, &ConfigError{
			Option: "WithShadow", Value: strconv.Itoa(len(shadow.limits)),
			Reason: fmt.Sprintf("with the %d limits of the policy itself that is more than %d",
				len(p.limits), maxLimits),
		}
	}
	return both, nil
}

func shadowFault(a Algorithm) error {
	return &ConfigError{
		Option: "WithShadow", Value: a.String(),
		Reason: "limits are tried out as sliding logs: give it limits without With",
	}
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

// storePlan returns the plan for the store. It is remade after a longer window or a larger quota was chosen, because
// entries must be kept for every plan that may count them.
func (p *policy) storePlan(pl *plan) *store.Plan {
	if pl.fixed != nil {
		return pl.fixed
	}
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

func newPlan(given Limits, option string) (*plan, error) {
	if len(given) == 0 {
		return new(plan), &ConfigError{
			Option: option, Value: "none", Reason: "give at least one, such as core.PerMinute(100)",
		}
	}
	var faults []error
	if len(given) > maxLimits {
		faults = append(faults, &ConfigError{
			Option: option, Value: strconv.Itoa(len(given)),
			Reason: fmt.Sprintf("at most %d are decided together", maxLimits),
		})
	}
	p := &plan{given: slices.Clone(given)}
	for i := range p.given {
		p.given[i].Name = strings.Clone(p.given[i].Name) // fasthttp may reuse its memory
	}
	p.limits = slices.Clone(p.given)
	for i := range p.limits {
		l := &p.limits[i]
		if l.by != nil && l.by.fault != nil {
			faults = append(faults, l.by.fault)
		}
		if reasons := l.faults(); len(reasons) > 0 {
			for _, reason := range reasons {
				faults = append(faults, &ConfigError{Option: option, Value: l.String(), Reason: reason})
			}
			continue
		}
		if l.named = l.Name != "" && l.Name != l.defaultName(); l.Name == "" {
			l.Name = l.prefix + l.defaultName()
		}
		if slices.Contains(p.names, l.Name) {
			faults = append(faults, &ConfigError{
				Option: option, Value: l.String(),
				Reason: fmt.Sprintf("the name %q is there twice: drop one of the limits, or give each its own Name",
					l.Name),
			})
		}
		p.names = append(p.names, l.Name)
		if l.aligned.isSet() {
			l.algorithm, l.Window = FixedWindow, l.aligned.calendar.Longest()
		}
		if l.inFlight {
			l.Window = l.lease
		} else if l.Window > p.keep {
			p.keep, p.longest = l.Window, i
		}
	}
	if p.all = p.limits; len(faults) == 0 {
		p.header = p.limits.header()
	}
	windows, _ := p.limits.apart()
	p.alone, p.counts = newStorePlan(windows, 0, 0, 0, false), p.limits.counting()
	return p, errors.Join(faults...)
}

// header returns the field RateLimit-Policy.
func (ls Limits) header() string {
	var header strings.Builder
	for i := range ls {
		if i > 0 {
			header.WriteString(", ")
		}
		ls[i].appendPolicy(&header)
	}
	return header.String()
}

// appendPolicy appends the limit as an item of RateLimit-Policy.
func (l *Limit) appendPolicy(header *strings.Builder) {
	if l.inFlight {
		fmt.Fprintf(header, `"%s";q=%d;qu="concurrent-requests"`, l.Name, l.Quota)
		return
	}
	// The window is rounded up, so that a client which waits that long is not too early.
	quota, window := l.Quota, l.Window
	if l.algorithm == store.TokenBucket { // the rate is told as that of the whole bucket
		quota, window = l.burst, time.Duration(l.forStore().Interval()*int64(l.burst))
	}
	fmt.Fprintf(header, `"%s";q=%d;w=%d`, l.Name, quota, seconds(window))
}

// apart returns the limits that have windows and those of requests in flight.
func (ls Limits) apart() (windows, inFlight Limits) {
	for _, l := range ls {
		if l.inFlight {
			inFlight = append(inFlight, l)
		} else {
			windows = append(windows, l)
		}
	}
	return windows, inFlight
}

// forStores returns the plans that stores are asked about: one of the limits that share a log, one of those of
// requests in flight, and one of each limit of another algorithm.
func (ls Limits) forStores() (plans []*store.Plan) {
	var rest []Limits
	windows, inFlight := ls.apart()
	logs := slices.DeleteFunc(slices.Clone(windows), func(l Limit) bool { return l.algorithm != SlidingLog })
	for _, l := range windows {
		if l.algorithm != SlidingLog {
			rest = append(rest, Limits{l})
		}
	}
	for _, part := range append(rest, inFlight, logs) {
		if len(part) > 0 {
			plans = append(plans, newStorePlan(part, 0, 0, 0, false))
		}
	}
	if len(plans) == 0 { // requests choose the limits
		plans = append(plans, newStorePlan(nil, 0, 0, 0, false))
	}
	return plans
}

// validate calls f, which is that of a store, with what the plan will ask of it.
func (p *plan) validate(f func(*store.Plan) error) error {
	parts := p.limits.forStores()
	faults := make([]error, len(parts))
	for i, part := range parts {
		faults[i] = f(part)
	}
	return errors.Join(faults...)
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
