package plan

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/sashlimit/sash/core/store"
)

// Override has limits that replace those of a key in plans: the limits of the same units. Without any, the limits of
// the key deny nothing, and requests are recorded.
type Override struct {
	limits []Limit
	made   atomic.Pointer[[]overridden]
}

// overridden is a plan that was made of another one.
type overridden struct {
	base  *Plan
	space *store.Namespace
	plan  *Plan
	err   error
}

// manyOverridden is how many plans of an override are remembered: the latest, as files of rules are loaded again.
const manyOverridden = 64

// NewOverride makes an override of limits that are valid.
func NewOverride(limits []Limit) *Override { return &Override{limits: limits} }

// Plan returns a plan with the override of the key that has a [Log.KeySpace]. It is base if no limit of the key is
// replaced. The error is why the override cannot be applied; check reports what the store or the limiter cannot do.
func (o *Override) Plan(base *Plan, space *store.Namespace, check func(*Plan) error) (*Plan, error) {
	made := o.made.Load()
	var plans []overridden
	if made != nil {
		plans = *made
	}
	for i := range plans {
		if m := &plans[i]; m.base == base && m.space == space {
			return m.plan, m.err
		}
	}
	m := overridden{base: base, space: space}
	if m.plan, m.err = o.make(base, space); m.err == nil {
		m.err = check(m.plan)
	}
	more := append(slices.Clone(plans[max(0, len(plans)-manyOverridden+1):]), m)
	o.made.CompareAndSwap(made, &more) // if another request was faster, a later one adds this plan
	return m.plan, m.err
}

// replaces reports whether the override replaces the limits of a log that decide.
func (o *Override) replaces(log *Log, space *store.Namespace) bool {
	return log.KeySpace == space && !log.InFlight() && log.Deciding() > 0 &&
		(o.limits == nil || slices.ContainsFunc(o.limits, func(l Limit) bool { return l.Unit == log.Unit() }))
}

func (o *Override) make(base *Plan, space *store.Namespace) (*Plan, error) {
	var replaced []*Log
	to := make([]int, len(base.All())) // where limits of base are in the plan, or -1 if they are replaced
	for _, log := range base.Logs {
		if o.replaces(log, space) {
			replaced = append(replaced, log)
			for _, at := range log.At[:log.Deciding()] {
				to[at] = -1
			}
		}
	}
	if replaced == nil {
		return base, nil
	}
	p := &Plan{Shadow: base.Shadow, Rule: base.Rule}
	for i, l := range base.Limits {
		if to[i] == 0 {
			to[i] = len(p.Limits)
			p.Limits = append(p.Limits, l)
		}
	}
	first := len(p.Limits)
	for _, l := range o.limits {
		if !slices.ContainsFunc(replaced, func(log *Log) bool { return log.Unit() == l.Unit }) {
			continue
		}
		if !replaced[0].Own {
			l.Key = replaced[0].Key
		}
		p.Limits = append(p.Limits, l)
	}
	for i := len(base.Limits); i < len(to); i++ {
		to[i] = len(p.Limits) + i - len(base.Limits)
	}
	o.addLogs(p, base, replaced, first, to)
	for i := first; i < len(p.Limits); i++ { // now that the logs have their names
		if isNamed(p.Limits[:first], p.Limits[i].Name) {
			p.Limits[i].Name += "-override"
		}
	}
	p.sumOf(base.Unit)
	p.Units, p.mixed = base.Units, base.mixed
	return p, o.check(p)
}

// check returns an error for a plan with too many limits, and for one in which two limits would have the same numbers.
func (o *Override) check(p *Plan) error {
	if n := len(p.All()); n > store.MaxLimits {
		return configError("Override", strconv.Itoa(len(o.limits))+" limits",
			fmt.Sprintf("with the other limits of the policy these are %d, more than %d", n, store.MaxLimits),
			"use fewer limits")
	}
	for i, log := range p.Logs {
		same := func(other *Log) bool { return other.Space == log.Space && other.KeySpace == log.KeySpace }
		if slices.ContainsFunc(p.Logs[:i], same) {
			return configError("Override", log.Limits[0].Text,
				"two limits with this window and algorithm would have the same numbers",
				"remove one of them, or set Name")
		}
	}
	return nil
}

// addLogs adds the logs of base, of which some are replaced. to says where the limits of base are in p, and first where
// those of the override begin.
func (o *Override) addLogs(p, base *Plan, replaced []*Log, first int, to []int) {
	placed := make([]bool, len(p.Limits))
	// draw makes a log like another one, with the limits of the override that wants accepts.
	draw := func(from *Log, wants func(*Limit) bool) *Log {
		log := from.empty()
		for i := first; i < len(p.Limits); i++ {
			if l := &p.Limits[i]; !placed[i] && wants(l) && (l.KeepsEntries() || log.Limits == nil) {
				placed[i] = true
				log.Limits, log.At = append(log.Limits, *l), append(log.At, i)
				log.Keep = max(log.Keep, l.Window)
			}
		}
		return log
	}
	add := func(log *Log) {
		if len(log.Limits) > 0 {
			p.Logs = append(p.Logs, log)
			log.setConstant()
		}
	}
	for _, from := range base.Logs {
		if !slices.Contains(replaced, from) {
			p.Logs = append(p.Logs, from.moved(func(at int) int { return to[at] }))
			continue
		}
		like := &from.Limits[0]
		log := draw(from, func(l *Limit) bool {
			return l.Unit == like.Unit && l.Algorithm == like.Algorithm &&
				(l.KeepsEntries() || l.Period == like.Period && l.Calendar.IsSet() == like.Calendar.IsSet())
		})
		for i := from.Deciding(); i < len(from.At); i++ {
			log.Limits, log.At = append(log.Limits, from.Limits[i]), append(log.At, to[from.At[i]])
		}
		if log.Shadow = from.Shadow; log.Shadow == 0 && o.limits == nil && from.KeepsEntries() {
			// So that the log is asked, and records. Nobody reads what these answer: they are in none of At.
			log.Limits, log.Shadow = from.Limits, len(from.Limits)
		}
		add(log)
	}
	fresh := replaced[0].empty()
	fresh.Keep = 0
	for i := first; i < len(p.Limits); i++ { // of algorithms that the key's limits do not have
		l := &p.Limits[i]
		if placed[i] {
			continue
		}
		log := draw(fresh, func(other *Limit) bool {
			return other == l || l.KeepsEntries() && other.KeepsEntries() && other.Unit == l.Unit
		})
		label := log.label(map[string]int{log.kind(): 1})
		log.Space = log.spaces.space(label+log.suffix, log)
		add(log)
	}
}

// setConstant makes the plan of a log for the store if that does not change.
func (l *Log) setConstant() {
	if !l.varies && !l.Limits[0].Calendar.IsSet() {
		l.constant = l.storePlan()
	}
}

// Unmatched returns the limits that replace none of a key that has a [Log.KeySpace], since it has none of their unit.
func (o *Override) Unmatched(base *Plan, space *store.Namespace) []Limit {
	return slices.DeleteFunc(slices.Clone(o.limits), func(l Limit) bool {
		return slices.ContainsFunc(base.Logs, func(log *Log) bool {
			return log.KeySpace == space && !log.InFlight() && log.Unit() == l.Unit
		})
	})
}
