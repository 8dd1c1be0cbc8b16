package core

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

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
