package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// Override gives a key another quota until an instant, in place of an earlier override of the key: for a customer who
// needs more until Friday, or for a key that must be stopped. It is in force in this process when Override returns, and
// within a second in all others whose limiter has the same name, store and kind of key, and [WithOverrides].
//
//	err := limiter.Override(ctx, "customer 7", core.Override{
//		Limits: core.Limits{core.PerMinute(600)}, Until: friday, Note: "ticket 4711",
//	})
//
// The key is a text as for [Limiter.Allow]. Under [Global], an empty key means all requests. For keys without such a
// text, as those of [Join] and of package jwtkey, use [Decision.Override]. The store keeps the key as it is given, so
// that it can be listed, unless the limiter has [WithSecret].
//
// An override ends everywhere at its end, by the clock of each process. A policy has at most 10,000, and 1,000 pauses
// beside them ([Limiter.Pause]). An override does not lift a ban ([WithBan]), and none makes [Limiter.Record] deny.
//
// The error has a [ConfigError] for each mistake, or is a [StoreError].
func (l *Limiter) Override(ctx context.Context, key string, o Override) error {
	return l.setOverride(ctx, o, func() (overrideTarget, error) {
		return l.overrideTarget("Override", key, o.By)
	})
}

// Override is [Limiter.Override] for the key of this decision, or with By, for that key of its limits. It works for all
// keys.
func (d Decision) Override(ctx context.Context, o Override) error {
	l := d.limiter
	if l == nil || d.q.Plan == nil {
		return configError("Override", "a decision", "the request was not limited, so it has no key",
			"override keys of decisions about limited requests")
	}
	return l.setOverride(ctx, o, func() (t overrideTarget, err error) {
		i := slices.IndexFunc(d.q.Logs(), func(log *plan.Log) bool { return d.isOf(log, o.By) })
		if i < 0 {
			return t, noSuchKey("Override", o.By)
		}
		of, _ := d.q.At(i)
		t.key = store.Key{Namespace: d.q.Logs()[i].KeySpace, Identity: of.Key.Clone()}
		t.text, t.policy = of.Key.Label(), d.policyName()
		return t, nil
	})
}

// isOf reports whether a log is of the limiter's key, or else of the key by. Of rules it is that of the rule that the
// decision names.
func (d *Decision) isOf(log *plan.Log, by Key) bool {
	switch {
	case by.spec != nil:
		return log.Key == plan.Key(by.spec)
	case d.limiter.choose == nil:
		return log.Key == plan.Key(d.limiter.key)
	case log.Deciding() == 0:
		return log.Own && len(d.q.Plan.Limits) == 0 // an override lets its limits deny nothing
	}
	return log.Own && log.Rule == d.q.Rule()
}

// RemoveOverride ends the override of a key, which is a text as for [Limiter.Override], and its pause. by is the key of
// limits with [Limit.By], if the text belongs to that key. Without an override it does nothing.
func (l *Limiter) RemoveOverride(ctx context.Context, key string, by ...Key) error {
	return l.removeOverride(ctx, func() (overrideTarget, error) {
		return l.overrideTarget("RemoveOverride", key, append(by, Key{})[0])
	})
}

// RemoveOverrideByID ends the override with the ID of a [KeyOverride], whatever its key is. Without it, it does nothing.
// Whoever knows a key can compute the ID of its override, so an ID is no secret: check who may remove what.
func (l *Limiter) RemoveOverrideByID(ctx context.Context, id string) error {
	if l.overrides == nil {
		return noOverrides("RemoveOverrideByID")
	}
	if err := l.overrides.ReadNow(ctx); err != nil || !l.overrides.Has(id) {
		return err
	}
	return l.overrides.Put(ctx, store.Override{Name: id})
}

// removeOverride ends the override of the key that target finds.
func (l *Limiter) removeOverride(ctx context.Context, target func() (overrideTarget, error)) error {
	if l.overrides == nil {
		return noOverrides("RemoveOverride")
	}
	if err := l.overrides.ReadNow(ctx); err != nil {
		return err
	}
	t, err := target()
	if err != nil {
		return err
	}
	name := t.key.String()
	if l.overrides.Has(name + pauseMark) {
		err = l.overrides.Put(ctx, store.Override{Name: name + pauseMark})
	}
	return cmp.Or(err, l.overrides.Put(ctx, store.Override{Name: name}))
}

// Overrides lists the overrides in force, ordered by their keys. It reads them from the store.
func (l *Limiter) Overrides(ctx context.Context) ([]KeyOverride, error) {
	if l.overrides == nil {
		return nil, noOverrides("Overrides")
	}
	if err := l.overrides.ReadNow(ctx); err != nil {
		return nil, err
	}
	var faults []error
	all := make([]KeyOverride, 0, l.overrides.Len())
	for o := range l.overrides.InForce {
		if o.Err != nil {
			faults = append(faults, fmt.Errorf("sash: the override %s: %w", o.Name, o.Err))
			continue
		}
		listed := o.Made.KeyOverride
		listed.ID, listed.By = o.Name, l.keyOfOverride(o.Name)
		all = append(all, listed)
	}
	slices.SortFunc(all, func(a, b KeyOverride) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Key, b.Key), strings.Compare(a.ID, b.ID))
	})
	return all, errors.Join(faults...)
}

// keyOfOverride returns the key of limits that the override of an ID is for, or the zero Key.
func (l *Limiter) keyOfOverride(id string) Key {
	if l.choose != nil {
		return Key{}
	}
	for _, k := range l.overridable() {
		if !k.Own && strings.Contains(id, ":"+k.Space.Policy()+":") {
			return Key{specOf(k.Key)}
		}
	}
	return Key{}
}

func noOverrides(call string) error {
	return configError(call, "no overrides", "the limiter does not look for overrides",
		"make it with core.WithOverrides()")
}

func noSuchKey(call string, by Key) error {
	name := "the limiter's key"
	if by.spec != nil {
		name = by.spec.Name
	}
	return configError(call, name, "no limit has this key",
		"set By to the key of a limit, or leave it out for the limiter's own key")
}

// overrideTarget is the key that an override is for.
type overrideTarget struct {
	key    store.Key    // under a plan.Log.KeySpace
	text   string       // as it was given
	policy string       // for people
	bases  []*plan.Plan // of which it must fit one; none if requests choose limits
	pause  bool
}

// overrideTarget finds the key that a text names, of the limiter or of limits with a key of their own.
func (l *Limiter) overrideTarget(call, text string, by Key) (t overrideTarget, err error) {
	if l.choose != nil {
		return t, configError(call, "a text", "rules need a request, but this call has none",
			"use the method of the rules, or Decision.Override")
	}
	key := cmp.Or(by.spec, l.key)
	keys := l.overridable()
	i := slices.IndexFunc(keys, func(k *plan.OverrideKey) bool { return specOf(k.Key) == key })
	switch {
	case i >= 0:
		return l.namedBy(call, text, keys[i])
	case l.policy.varies():
		space := l.policy.spaces.Keys(ownKeys + "." + plan.KeyLabel(key))
		return l.namedBy(call, text, &plan.OverrideKey{Policy: l.namespace.Policy(), Key: key, Space: space})
	}
	return t, noSuchKey(call, by)
}

// namedBy is the key of a kind that a text names.
func (l *Limiter) namedBy(call, text string, kind *plan.OverrideKey) (t overrideTarget, err error) {
	t = overrideTarget{text: text, policy: kind.Policy, bases: kind.Bases}
	t.key.Namespace = kind.Space
	t.key.Identity, err = specOf(kind.Key).IdentityOf(call, text, &l.prefixes)
	return t, err
}

// overridable returns the keys of the policy, or of each rule.
func (l *Limiter) overridable() (all []*plan.OverrideKey) {
	if l.overrides == nil {
		return nil
	}
	policy := l.namespace.Policy()
	switch {
	case l.choose == nil && l.policy.varies():
		space := l.policy.spaces.Keys(ownKeys)
		return []*plan.OverrideKey{{Policy: policy, Name: policy, Own: true, Key: l.key, Space: space}}
	case l.choose == nil:
		return plan.OverrideKeys(policy, []*plan.Plan{l.policy.fixed})
	}
	for _, rule := range l.inForce() {
		all = append(all, plan.OverrideKeys(rule.Name, rule.Plans)...)
	}
	return all
}

// hasOverride reports whether the override of an ID is of this limiter's keys: all limiters with rules on one store
// keep theirs together, also those of another domain.
func (l *Limiter) hasOverride(id string) bool {
	if l.choose == nil {
		return true
	}
	_, name, _ := strings.Cut(id, ":")
	name, _, _ = strings.Cut(name, ":")
	_, known := l.ruleSpaces.Load(name)
	return known
}

// setOverride keeps an override of the key that target finds. A pause does not end earlier for it.
func (l *Limiter) setOverride(ctx context.Context, o Override, target func() (overrideTarget, error)) error {
	if l.overrides == nil {
		return noOverrides("Override")
	}
	t, err := target()
	if l.policy.spaces.Secret != nil {
		t.text = "" // which must not be readable
	}
	value, wrong := o.text(t.policy, t.text)
	if err = errors.Join(err, wrong); err != nil {
		return err
	}
	read, err := parseOverride(store.Override{Value: value})
	if err == nil && !o.Denied {
		err = l.checkOverride(t, read.plan)
	}
	if err != nil {
		return err
	}
	until := o.Until.Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond)
	name := t.key.String()
	if t.pause {
		name += pauseMark
	}
	return l.overrides.Put(ctx, store.Override{Name: name, Value: value, Until: until, Extend: t.pause})
}

// checkOverride returns an error for each mistake of an override that fits none of the plans which have the key.
func (l *Limiter) checkOverride(t overrideTarget, o *plan.Override) (err error) {
	for _, base := range slices.Backward(t.bases) {
		var faults []error
		for _, limit := range o.Unmatched(base, t.key.Namespace) {
			faults = append(faults, configError("Override", limit.Text,
				"no limit of the key counts "+plan.UnitName(limit.Unit), "leave it out"))
		}
		_, err = o.Plan(base, t.key.Namespace, l.policy.spaces.Check)
		if err = errors.Join(append(faults, err)...); err == nil {
			return nil
		}
	}
	return err
}

// Pause denies all requests of a key until an instant, within a year, in all processes, unless a later pause is in
// force: for clients of a server that has asked for a pause, as [nethttp.Transport] does it. It reports whether the
// limiter has [WithOverrides]; otherwise it does nothing. The key is a text as for [Limiter.Wait]. Another override of
// the key applies again afterwards. A policy has at most 1,000 pauses; one more is a [ConfigError].
//
// [nethttp.Transport]: https://pkg.go.dev/github.com/sashlimit/sash/nethttp#Transport
func (l *Limiter) Pause(ctx context.Context, key string, until time.Time) (ok bool, err error) {
	if l.overrides == nil {
		return false, nil
	}
	o := Override{Denied: true, Until: until, Note: "a pause"}
	return true, l.setOverride(ctx, o, func() (t overrideTarget, err error) {
		t = overrideTarget{text: key, policy: l.namespace.Policy(), pause: true}
		t.key.Namespace = l.policy.spaces.Keys(ownKeys)
		err = l.identityOf(key, &t.key.Identity)
		return t, err
	})
}

// refreshOverrides reads the overrides if that is due, and reports whether there may be any.
func (l *Limiter) refreshOverrides(ctx context.Context) bool {
	if l.guard == nil {
		return l.overrides.Refresh(ctx, nil)
	}
	return l.overrides.Refresh(ctx, l.guard) // of rules that of their failure policy, which knows of an outage
}

// applyOverrides replaces the plan of a decision, whose keys were read, by one with the overrides of these keys. It
// reports whether an override has denied the request. Reading overrides has a timeout of its own: a store whose answers
// take half of it would otherwise never answer the first request after some idle time.
func (l *Limiter) applyOverrides(ctx context.Context, d *Decision) (denied bool) {
	if !l.refreshOverrides(ctx) {
		return false
	}
	base, made, records := d.q.Plan, d.q.Plan, d.q.Take.Mode == store.ModeRecord
	for i, log := range d.q.Logs() {
		again := func(earlier *plan.Log) bool { return earlier.KeySpace == log.KeySpace && earlier.Deciding() > 0 }
		if log.Deciding() == 0 || slices.ContainsFunc(d.q.Logs()[:i], again) {
			continue
		}
		t, _ := d.q.At(i)
		key := store.Key{Namespace: log.KeySpace, Identity: t.Key.Identity}
		var space [128]byte
		name := key.AppendTo(space[:0])
		o, found := l.overrides.Find(append(name, pauseMark...)) // which is Denied
		if !found || records {
			o, found = l.overrides.Find(name)
		}
		switch {
		case !found || records && o.Limits == nil: // Record never denies
			continue
		case o.Denied:
			for _, at := range log.At[:log.Deciding()] {
				d.q.Answer.Denied |= 1 << at // of several rules, it is that of this key which denies
			}
			d.Overridden = &o.Override
			d.refuse("override", time.Until(o.Until))
			return true
		}
		with, err := o.plan.Plan(made, log.KeySpace, l.policy.spaces.Check)
		if err != nil {
			l.refusals.Failed(ctx, l.namespace.Policy(), "an override cannot be applied, so it has no effect", err)
			continue
		}
		if with != made && !(records && with.Counter != store.SlidingLog) { // else it has limits of other units
			made, d.Overridden = with, &o.Override
		}
	}
	if made != base {
		d.q.Replan(made)
	}
	return false
}

// findOverridden makes the plan with the override of an own key, so that what its limits count is among the spaces of
// the policy, although no request has asked for it here.
func (l *Limiter) findOverridden(ctx context.Context, base *plan.Plan, id identity) {
	key := store.Key{Namespace: l.policy.spaces.Keys(ownKeys), Identity: id}
	if !l.refreshOverrides(ctx) {
		return
	}
	if o, found := l.overrides.Find(key.AppendTo(nil)); found {
		o.plan.Plan(base, key.Namespace, l.policy.spaces.Check) //nolint:errcheck // then requests do not have it either
	}
}

const (
	pauseMark = ":pause" // ends the name of an override that is a pause
	ownKeys   = "o"      // labels the limiter's own keys
)
