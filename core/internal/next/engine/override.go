package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/sashlimit/sash/core/internal/next/keys"
	"github.com/sashlimit/sash/core/internal/next/limittext"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// Override is other limits for one identity of a key, until an instant. Exactly one of Limits, Denied and Unlimited is
// set.
type Override struct {
	Limits    []Given // in place of the limits of the key and their units; they have no key and no label
	Denied    bool    // refuses all requests
	Unlimited bool    // lets the limits of the key deny nothing, but those of requests in flight
	Until     time.Time
	Note      string

	// Of one that was read:

	ID     string // names it in the store
	Policy string // of the policy or the rule
	Key    string // as it was given; empty with a secret
	Public any    // what Config.PublicOverride has returned

	raw    string      // what the store has
	text   string      // of Limits in that
	misfit atomic.Bool // it did not fit the limits of a request, and that was logged
}

const (
	maxNote     = 200
	maxOverride = 366 * 24 * time.Hour
)

// storedOverride is the value of an override in the store.
type storedOverride struct {
	Policy    string          `json:"policy"`
	Key       string          `json:"key,omitempty"`
	Limits    json.RawMessage `json:"limits,omitempty"` // of []storedLimit
	Denied    bool            `json:"denied,omitempty"`
	Unlimited bool            `json:"unlimited,omitempty"`
	Note      string          `json:"note,omitempty"`
}

type storedLimit struct {
	Limit     string `json:"limit"`
	Name      string `json:"name,omitempty"`
	Algorithm string `json:"algorithm,omitempty"` // a word of store.Algorithm, unless the limit's text tells it
}

// value returns what the store keeps of an override, or an error for each mistake in itself.
func (o *Override) value(policy, key string) (text string, err error) {
	var wrong []error
	add := func(is bool, value, problem, remedy string) {
		if is {
			wrong = append(wrong, configError("Override", value, problem, remedy))
		}
	}
	given := 0
	for _, is := range [...]bool{o.Limits != nil, o.Denied, o.Unlimited} {
		if is {
			given++
		}
	}
	add(given != 1, strconv.Itoa(given)+" of Limits, Denied and Unlimited", "exactly one must be set",
		"set one of them")
	left, isSet, end := time.Until(o.Until), !o.Until.IsZero(), o.Until.Format(time.RFC3339)
	add(!isSet, "no end", "an override needs an end", "set Until, such as time.Now().Add(24*time.Hour)")
	add(isSet && left <= 0, end, "the end is in the past", "set Until to a later instant")
	add(left > maxOverride, end, "the end is more than a year ahead", "set an earlier one, and renew it")
	add(len(o.Note) > maxNote || !utf8.ValidString(o.Note), strconv.Itoa(len(o.Note))+" bytes of Note",
		"the note is too long, or not UTF-8", fmt.Sprintf("use at most %d bytes of UTF-8", maxNote))
	var limits []storedLimit
	for i := range o.Limits {
		g := &o.Limits[i]
		add(g.Key != nil || g.InFlight, g.String(),
			"limits of an override have no key of their own, and count no requests in flight",
			"set By of the override, and leave out InFlight")
		for _, f := range g.Faults() {
			add(true, g.String(), f.Problem, f.Remedy)
		}
		limits = append(limits, storedLimit{g.String(), g.Name, g.Algorithm.String()})
	}
	add(o.Limits != nil && len(o.Limits) == 0, "none", "there are no limits",
		"pass at least one, such as core.PerMinute(100)")
	if wrong != nil {
		return "", errors.Join(wrong...)
	}
	stored := storedOverride{Policy: policy, Key: key, Denied: o.Denied, Unlimited: o.Unlimited, Note: o.Note}
	if limits != nil {
		if stored.Limits, err = json.Marshal(limits); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(stored)
	return string(b), err
}

// parseOverride reads what the store has of an override.
func parseOverride(from store.Override) (*Override, error) {
	var stored storedOverride
	if err := json.Unmarshal([]byte(from.Value), &stored); err != nil {
		return nil, err
	}
	o := &Override{
		Denied: stored.Denied, Unlimited: stored.Unlimited, Until: from.Until, Note: stored.Note, ID: from.Name,
		Policy: stored.Policy, Key: stored.Key, raw: from.Value, text: string(stored.Limits),
	}
	if stored.Limits == nil {
		return o, nil
	}
	var limits []storedLimit
	if err := json.Unmarshal(stored.Limits, &limits); err != nil {
		return nil, err
	}
	for _, s := range limits {
		limit, err := limittext.Parse(s.Limit)
		if err != nil {
			return nil, err
		}
		limit.Name = s.Name
		if !limit.Calendar.IsSet() && limit.Algorithm == store.SlidingLog {
			limit.Algorithm = algorithmOf(s.Algorithm)
		}
		o.Limits = append(o.Limits, Given{Limit: limit})
	}
	return o, nil
}

// algorithmOf returns the algorithm that a word names.
func algorithmOf(word string) store.Algorithm {
	for _, a := range [...]store.Algorithm{store.FixedWindow, store.SlidingCounter} {
		if a.String() == word {
			return a
		}
	}
	return store.SlidingLog
}

// override replaces the limits of a request that have overrides, or denies it. It returns them, and what they are asked
// if they are others.
func (e *Engine) override(ctx context.Context, set *Set, a *Ask, r *Result) (with *Set, asked Ask) {
	if !e.overrides.refresh(ctx) {
		return set, asked
	}
	with = set
	records := a.Mode == store.ModeRecord
	for i, k := range set.Keys { // those of the set with overrides are the same
		if slices.ContainsFunc(set.Keys[:i], func(before *Key) bool { return before.overrides == k.overrides }) {
			continue
		}
		o := e.overrides.find(k, &a.Identities[i], !records)
		switch {
		case o == nil || records && o.Limits == nil: // Record never denies
		case o.Denied:
			if wait := time.Until(o.Until); r.Cause != ByOverride || wait > r.Retry {
				r.Override, r.overridden = o, k.Rule
				r.refuse(ByOverride, wait)
			}
		default:
			next, err := e.overrideSet(with, k, o)
			if err != nil {
				if !o.misfit.Swap(true) {
					e.overrides.warn(ctx, "an override does not fit the limits of a request, so it has no effect", err)
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
	key *store.Namespace
	of  string // text of an override
}

// overrideSet returns a set with an override of a key, which is the same set if it replaces no limit.
func (e *Engine) overrideSet(s *Set, k *Key, o *Override) (*Set, error) {
	id := overriddenID{s, k.overrides, o.text}
	if with, ok := e.overridden.find(id); ok {
		return with.set, with.err
	}
	var with overridden
	with.set, with.err = e.newOverridden(s, k, o)
	e.overridden.add(id, with)
	return with.set, with.err
}

// overridden is a set with an override, or why there is none.
type overridden struct {
	set *Set
	err error
}

func (e *Engine) newOverridden(s *Set, k *Key, o *Override) (*Set, error) {
	replaces := func(l *Limit) bool {
		return l.key.overrides == k.overrides && !l.InFlight && (o.Limits == nil ||
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
		fresh, err := e.compile(o.Limits, e.ownerLike(&s.Limits[first]), "Override")
		if err = errors.Join(err, check(fresh, "Override")); err != nil {
			return nil, err
		}
		for _, l := range fresh {
			like := slices.IndexFunc(s.Limits, func(old Limit) bool { return replaces(&old) && old.Unit == l.Unit })
			if like < 0 {
				continue // no limit of the key counts this unit
			}
			l.Unit, l.key, l.Rule = s.Limits[like].Unit, s.Limits[like].key, s.Limits[like].Rule
			limits, costOf = append(limits, l), append(costOf, like)
		}
	}
	with := newSet(limits, s.Keys)
	with.costOf, with.Unit = costOf, s.Unit
	return with, e.admit(with)
}

// ownerLike returns whose limits those are that replace a limit.
func (e *Engine) ownerLike(l *Limit) *owner {
	o := &owner{policy: l.key.Namespace.Policy(), key: l.key, rule: l.Rule}
	if l.Rule != nil {
		o.label, o.prefix = l.Rule.Label, l.Rule.Prefix
	}
	return o
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

// OverrideKey is a key that overrides can be of.
type OverrideKey struct {
	Name   string   // the policy or the rule for its own key; with a slash and the name of a limit for that limit's key
	Policy string   // or the rule
	Own    bool     // it is the key of the policy or the rule
	Limits []string // names of its limits
	Spec   *keys.Spec

	key   *Key
	bases []*Set // of which an override must fit one; none if requests choose limits
}

// OverrideKeys returns the keys that overrides of a policy with this set can be of.
func (e *Engine) OverrideKeys(set *Set) []*OverrideKey {
	return nameOverrideKeys(e.config.Policy, []*Set{set})
}

// OverrideKeysOf returns the keys that overrides of rules can be of; rules of one Policy are parts of one rule. Rules in
// shadow have none.
func (e *Engine) OverrideKeysOf(rules []*Rule) (all []*OverrideKey) {
	done := make(map[string]bool)
	for _, r := range rules {
		if done[r.Policy] {
			continue
		}
		done[r.Policy] = true
		var sets []*Set
		for _, part := range rules {
			if part.Policy == r.Policy && !part.Shadow {
				sets = append(sets, part.alone)
			}
		}
		all = append(all, nameOverrideKeys(r.Policy, sets)...)
	}
	return all
}

// nameOverrideKeys returns the keys of sets. The policy's name stands for the first one, if that is its own or the only
// one.
func nameOverrideKeys(policy string, sets []*Set) (all []*OverrideKey) {
	for _, s := range sets {
		for i := range s.Limits {
			l := &s.Limits[i]
			n := slices.IndexFunc(all, func(k *OverrideKey) bool { return k.key.overrides == l.key.overrides })
			if n < 0 {
				n = len(all)
				all = append(all, &OverrideKey{Policy: policy, Own: l.key.Own, Spec: l.key.Spec, key: l.key})
			}
			k := all[n]
			if k.Limits = append(k.Limits, l.Name); !slices.Contains(k.bases, s) {
				k.bases = append(k.bases, s)
			}
		}
	}
	own := slices.DeleteFunc(slices.Clone(all), func(k *OverrideKey) bool { return !k.Own })
	if len(own) != 1 {
		own = slices.Clone(all)
	}
	for _, k := range all {
		k.Name = policy + "/" + k.Limits[0]
	}
	if len(own) == 1 {
		own[0].Name = policy
		all = slices.Concat(own, slices.DeleteFunc(all, func(k *OverrideKey) bool { return k == own[0] }))
	}
	return all
}

// OverrideKeyOf returns a key for overrides of a policy whose limits requests choose: its own if spec is nil. If requests
// choose limits of several keys of one kind, one must have come before.
func (e *Engine) OverrideKeyOf(spec *keys.Spec) *OverrideKey {
	k := e.owner.key
	if spec != nil && spec != k.Spec {
		g := Given{Key: spec}
		k = e.keyOf(&g, e.owner)
		k.overrides = k.Namespace
		for _, c := range e.chosen.all() {
			if i := slices.IndexFunc(c.set.Keys, func(of *Key) bool { return of.Spec == spec }); i >= 0 {
				k = c.set.Keys[i]
			}
		}
	}
	return &OverrideKey{Name: e.config.Policy, Policy: e.config.Policy, Own: k.Own, Spec: k.Spec, key: k}
}

// SetOverride keeps an override of an identity of a key. text is the identity as it was given. The error has a
// [store.ConfigError] for each mistake, or is a [store.StoreError].
func (e *Engine) SetOverride(ctx context.Context, k *OverrideKey, id store.Identity, text string, o *Override) error {
	if e.overrides == nil {
		return noOverrides("Override")
	}
	return e.setOverride(ctx, k, id, text, o, "")
}

func (e *Engine) setOverride(
	ctx context.Context, k *OverrideKey, id store.Identity, text string, o *Override, mark string,
) error {
	if len(e.config.Secret) > 0 {
		text = "" // which must not be readable
	}
	value, err := o.value(k.Policy, text)
	if err != nil {
		return err
	}
	key := store.Key{Namespace: k.key.overrides, Identity: id}
	until := o.Until.Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond)
	kept := store.Override{Name: key.String() + mark, Value: value, Until: until, Extend: mark == pauseMark}
	if o.Limits != nil {
		read, err := parseOverride(kept)
		if err == nil {
			err = e.fits(k, read)
		}
		if err != nil {
			return err
		}
	}
	return e.overrides.put(ctx, kept)
}

// fits returns an error for each mistake of an override that fits none of the sets which have the key.
func (e *Engine) fits(k *OverrideKey, o *Override) (err error) {
	for _, base := range slices.Backward(k.bases) {
		var faults []error
		for i := range o.Limits {
			g := &o.Limits[i]
			if !slices.ContainsFunc(base.Limits, func(l Limit) bool {
				return l.key.overrides == k.key.overrides && !l.InFlight && l.Unit == g.Unit
			}) {
				faults = append(faults, configError("Override", g.String(),
					"no limit of the key counts "+limittext.UnitName(g.Unit), "leave it out"))
			}
		}
		_, err = e.overrideSet(base, k.key, o)
		if err = errors.Join(append(faults, err)...); err == nil {
			return nil
		}
	}
	return err
}

// SetOverrideOf is SetOverride for the identity of a decision: of the own key if spec is nil, else of that key.
func (r *Result) SetOverride(ctx context.Context, spec *keys.Spec, o *Override) error {
	for i, all := 0, r.all(); i < len(all); i++ {
		k := r.keyOf(i)
		if spec == nil && !k.Own || spec != nil && k.Spec != spec || k.Rule != nil && k.Rule != r.Rule() {
			continue
		}
		policy := r.engine.config.Policy
		if k.Rule != nil {
			policy = k.Rule.Policy
		}
		of := &OverrideKey{Policy: policy, key: k, bases: []*Set{r.Set}}
		id := all[i].Key.Clone()
		return r.engine.SetOverride(ctx, of, id, id.Label(), o)
	}
	name := "the limiter's key"
	if spec != nil {
		name = spec.Name
	}
	return configError("Override", name, "no limit has this key",
		"set By to the key of a limit, or leave it out for the limiter's own key")
}

// Pause denies all requests of an identity of the own key until an instant, unless a later pause is in force. Another
// override of the identity applies again afterwards.
func (e *Engine) Pause(ctx context.Context, id store.Identity, text string, until time.Time) error {
	if e.overrides == nil {
		return noOverrides("Pause")
	}
	o := &Override{Denied: true, Until: until, Note: "a pause"}
	return e.setOverride(ctx, &OverrideKey{Policy: e.config.Policy, key: e.owner.key}, id, text, o, pauseMark)
}

// pauseMark ends the ID of an override that is a pause.
const pauseMark = ":pause"

// RemoveOverride ends the override and the pause of an identity.
func (e *Engine) RemoveOverride(ctx context.Context, k *OverrideKey, id store.Identity) error {
	if e.overrides == nil {
		return noOverrides("RemoveOverride")
	}
	key := store.Key{Namespace: k.key.overrides, Identity: id}
	err := e.overrides.put(ctx, store.Override{Name: key.String()})
	return errors.Join(err, e.overrides.put(ctx, store.Override{Name: key.String() + pauseMark}))
}

// RemoveOverrideByID ends the override with an ID.
func (e *Engine) RemoveOverrideByID(ctx context.Context, id string) error {
	if e.overrides == nil {
		return noOverrides("RemoveOverrideByID")
	}
	return e.overrides.put(ctx, store.Override{Name: id})
}

// Overrides reads the overrides from the store and returns those in force, ordered by policy and key. The error is of
// those that cannot be read, or a [store.StoreError].
func (e *Engine) Overrides(ctx context.Context) ([]*Override, error) {
	if e.overrides == nil {
		return nil, noOverrides("Overrides")
	}
	return e.overrides.list(ctx)
}

// IsOf reports whether an override that was read is of a key.
func (o *Override) IsOf(k *OverrideKey) bool {
	return strings.HasPrefix(o.ID, k.key.overrides.Name()+".")
}

func noOverrides(call string) error {
	return configError(call, "no overrides", "the limiter does not look for overrides",
		"make it with core.WithOverrides()")
}
