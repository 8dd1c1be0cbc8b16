package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// override replaces the limits of a request that have overrides, or denies it. It returns them, and what they are asked
// if they are others.
func (e *Engine) override(ctx context.Context, set *Set, a *Ask, r *Result) (with *Set, asked Ask) {
	if !e.overrides.refresh(ctx) {
		return set, asked
	}
	with = set
	records := a.Mode == store.ModeRecord
	for i, k := range set.Keys { // those of the set with overrides are the same
		if slices.ContainsFunc(set.Keys[:i], k.sharesOverrides) {
			continue
		}
		o := e.overrides.find(k, &a.Identities[i], !records)
		switch {
		case o == nil || records && o.Limits == nil: // Record never denies
		case o.Denied:
			if wait := time.Until(o.Until); r.Cause != ByOverride || wait > r.Retry {
				r.Override, r.overridden = o, k.owner.rule
				r.refuse(ByOverride, wait)
			}
		default:
			next, err := e.overrideSet(with, k, o)
			if err != nil {
				if !o.misfit.Swap(true) {
					e.overrides.warn(ctx, "an override does not fit the limits of a request, so it has no effect",
						"set another one, or remove it", err)
				}
				continue
			}
			if next == with { // it has limits of other units only
				continue
			}
			if r.Cause != ByOverride {
				r.Override = o
			}
			costs := next.costsLike(with, a)
			asked, with = *a, next
			asked.Costs = costs
			a = &asked
		}
	}
	return with, asked
}

// costsLike returns the costs of the limits of a set with overrides, as a has them of the set before.
func (s *Set) costsLike(before *Set, a *Ask) []int {
	costs := make([]int, len(s.Limits))
	for i, like := range s.costOf {
		costs[i] = a.cost(before, like)
	}
	return costs
}

// overriddenID is a set with an override.
type overriddenID struct {
	set *Set
	key *Key
	of  string // text of an override
}

// overrideSet returns a set with an override of a key, which is the same set if it replaces no limit.
func (e *Engine) overrideSet(s *Set, k *Key, o *Override) (*Set, error) {
	with := e.overridden.get(overriddenID{s, k, o.text}, func() overridden {
		set, err := e.newOverridden(s, k, o)
		return overridden{set, err}
	})
	return with.set, with.err
}

// overridden is a set with an override, or why there is none.
type overridden struct {
	set *Set
	err error
}

func (e *Engine) newOverridden(s *Set, k *Key, o *Override) (*Set, error) {
	replaces := func(l *Limit) bool {
		return l.key.sharesOverrides(k) && !l.InFlight && (o.Limits == nil ||
			slices.ContainsFunc(o.Limits, func(g Given) bool { return g.Unit == l.Unit }))
	}
	var limits []Limit
	var costOf []int
	first := -1 // of the limits that are replaced
	for i := range s.Limits {
		l := s.Limits[i]
		switch {
		case !replaces(&l):
		case o.Unlimited:
			first, l.unlimited = i, true
		default:
			if first < 0 {
				first = i
			}
			continue
		}
		limits, costOf = append(limits, l), append(costOf, i)
	}
	if first < 0 {
		return s, nil
	}
	if o.Limits != nil {
		like := *s.Limits[first].key.owner
		like.key = s.Limits[first].key
		fresh, err := e.compile(o.Limits, &like, "Override")
		if err != nil {
			return nil, err
		}
		for _, l := range fresh {
			like := slices.IndexFunc(s.Limits, func(old Limit) bool { return replaces(&old) && old.Unit == l.Unit })
			if like < 0 {
				continue // no limit of the key counts this unit
			}
			l.named = false // or another limit of the request could have the same name
			l.key = s.Limits[like].key
			limits, costOf = append(limits, l), append(costOf, like)
		}
	}
	if len(limits) > store.MostTakes {
		return nil, configError("Override", strconv.Itoa(len(limits))+" limits",
			fmt.Sprintf("a request may have at most %d limits", store.MostTakes), "use fewer limits")
	}
	with := newSet(limits, s.Keys)
	with.costOf, with.Unit = costOf, s.Unit
	return with, e.admit(with)
}

// noticeOverride remembers the logs of the override of an own identity, although no request has asked for it here.
func (e *Engine) noticeOverride(ctx context.Context, id store.Identity) {
	if !e.overrides.refresh(ctx) {
		return
	}
	if o := e.overrides.find(e.owner.key, &id, false); o != nil && o.Limits != nil {
		if limits, err := e.compile(o.Limits, e.owner, "Override"); err == nil {
			e.notice(limits)
		}
	}
}
