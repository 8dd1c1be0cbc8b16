package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// override returns the limits of a request with those that overrides set in their place, or denies it.
func (e *Engine) override(ctx context.Context, set *Set, a *Ask, r *Result) (with *Set) {
	if !e.overrides.refresh(ctx) {
		return set
	}
	with = set
	records := a.Mode == store.ModeRecord
	for i, k := range set.Keys {
		if slices.ContainsFunc(set.Keys[:i], k.sharesOverrides) {
			continue
		}
		o := e.overrides.find(k, &a.Identities[i], !records)
		switch {
		case o == nil || records && o.Limits == nil: // Record never denies
		case o.Denied:
			if wait := time.Until(o.Until); r.Cause != ByOverride || wait > r.Retry {
				r.Override, r.overridden = o, k.rule
				r.refuse(ByOverride, wait)
			}
		default:
			before := with
			with = e.overridden.get(overriddenID{before, k, o.text}, func() *Set {
				next, err := e.newOverridden(before, k, o)
				if err == nil {
					return next
				}
				if !o.misfit.Swap(true) {
					e.overrides.warn(ctx, "an override does not fit the limits of a request, so it has no effect",
						"set another one, or remove it", err)
				}
				return before
			})
			if with != before && r.Cause != ByOverride { // else it has limits of other units only
				r.Override = o
			}
		}
	}
	return with
}

// overriddenID is a set with an override.
type overriddenID struct {
	set *Set
	key *Key
	of  string // text of an override
}

// newOverridden returns a set with an override of a key, which is the same set if it replaces no limit.
func (e *Engine) newOverridden(s *Set, k *Key, o *Override) (*Set, error) {
	replaces := func(l Limit) bool { return l.key.sharesOverrides(k) && o.replaces(&l) }
	first := slices.IndexFunc(s.Limits, replaces)
	if first < 0 {
		return s, nil
	}
	var limits []Limit
	for _, l := range s.Limits {
		isReplaced := replaces(l)
		if l.unlimited = l.unlimited || isReplaced && o.Unlimited; !isReplaced || o.Unlimited {
			limits = append(limits, l)
		}
	}
	if o.Limits != nil {
		fresh, err := e.compile(o.counting(s.Limits, replaces), s.Limits[first].key, "Override")
		if err != nil {
			return nil, err
		}
		for _, l := range fresh {
			like := slices.IndexFunc(s.Limits, func(old Limit) bool { return replaces(old) && old.Unit == l.Unit })
			if like < 0 {
				continue // no limit of the key counts this unit
			}
			l.named = false // or another limit of the request could have the same name
			l.key = s.Limits[like].key
			limits = append(limits, l)
		}
	}
	if len(limits) > store.MostTakes {
		return nil, configError("Override", strconv.Itoa(len(limits))+" limits",
			fmt.Sprintf("a request may have at most %d limits", store.MostTakes), "use fewer limits")
	}
	with := newSet(limits, s)
	return with, e.admit(with)
}

// counting returns the limits of an override that has some. One without an algorithm counts as the limit does that it
// replaces, if their windows are equal, so that what was used stays used: texts of limits cannot name an algorithm.
func (o *Override) counting(before []Limit, replaces func(Limit) bool) []Given {
	limits := slices.Clone(o.Limits)
	for i := range limits {
		g := &limits[i]
		like := slices.IndexFunc(before, func(l Limit) bool {
			return replaces(l) && l.Unit == g.Unit && l.log.fixed != nil && l.Window == g.Window &&
				l.log.like.Algorithm != store.TokenBucket
		})
		if like >= 0 && g.Algorithm == store.SlidingLog && !g.Calendar.IsSet() {
			g.Algorithm = before[like].log.like.Algorithm
		}
	}
	return limits
}

// replaces reports whether the override sets another quota in place of a limit of its key.
func (o *Override) replaces(l *Limit) bool {
	isOf := func(g Given) bool { return g.Unit == l.Unit }
	return !l.InFlight && (o.Limits == nil || slices.ContainsFunc(o.Limits, isOf))
}

// noticeOverride remembers the logs of the override of an own identity, although no request has asked for it here.
func (e *Engine) noticeOverride(ctx context.Context, id store.Identity) {
	if !e.overrides.refresh(ctx) {
		return
	}
	if o := e.overrides.find(e.own, &id, false); o != nil && o.Limits != nil {
		if limits, err := e.compile(o.Limits, e.own, "Override"); err == nil {
			e.notice(limits)
		}
	}
}
