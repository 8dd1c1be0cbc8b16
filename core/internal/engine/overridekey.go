package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// OverrideKey is a key that overrides can be of.
type OverrideKey struct {
	*Key

	Name   string   // the policy or the rule for its own key; with a slash and the name of a limit for that limit's key
	Policy string   // or the rule
	Limits []string // names of its limits
	Texts  []string // the limits as users write them

	bases []*Set // of which an override must fit one; none if requests choose limits
}

// OverrideKeys returns the keys that overrides of sets can be of: of a policy, or of rules that were prepared, of which
// those of one Policy are parts of one rule. What is tried out has none. The policy's name stands for its own key, or
// for the only one.
func (e *Engine) OverrideKeys(sets ...*Set) (all []*OverrideKey) {
	for _, s := range sets {
		for i := range s.Limits {
			l := &s.Limits[i]
			if l.key.owner.shadow {
				continue
			}
			n := slices.IndexFunc(all, func(k *OverrideKey) bool { return k.sharesOverrides(l.key) })
			if n < 0 {
				n = len(all)
				all = append(all, &OverrideKey{Key: l.key, Policy: l.key.policy()})
			}
			k := all[n]
			if k.Limits, k.Texts = append(k.Limits, l.Name), append(k.Texts, l.Text); !slices.Contains(k.bases, s) {
				k.bases = append(k.bases, s)
			}
		}
	}
	for _, k := range all {
		k.Name = k.Policy
		if slices.ContainsFunc(all, func(other *OverrideKey) bool {
			return other != k && other.Policy == k.Policy && (other.Own || !k.Own)
		}) {
			k.Name += "/" + k.Limits[0]
		}
	}
	return all
}

// OverrideKeyOf returns a key for overrides of a policy whose limits requests choose: its own if spec is nil. If
// requests choose limits of several keys of one kind, one must have come before.
func (e *Engine) OverrideKeyOf(spec *keys.Spec) *OverrideKey {
	k := e.owner.key
	if spec != nil && spec != k.Spec {
		k = e.keyOf(&Given{Key: spec}, e.owner)
		for _, c := range e.chosen.all() {
			if i := slices.IndexFunc(c.set.Keys, func(of *Key) bool { return of.Spec == spec }); i >= 0 {
				k = c.set.Keys[i]
			}
		}
	}
	return &OverrideKey{Key: k, Name: k.policy(), Policy: k.policy()}
}

// SetOverride keeps an override of an identity of a key. text is the identity as it was given. The error has a
// [store.ConfigError] for each mistake, or is a [store.StoreError].
func (e *Engine) SetOverride(ctx context.Context, k *OverrideKey, id store.Identity, text string, o *Override) error {
	if err := e.LacksOverrides("Override"); err != nil {
		return err
	}
	if len(e.config.Secret) > 0 {
		text = "" // which must not be readable
	}
	value, err := o.value(k.Policy, text)
	if err != nil {
		return err
	}
	key := store.Key{Namespace: k.overrides, Identity: id}
	until := o.Until.Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond)
	kept := store.Override{Name: key.String(), Value: value, Until: until, Extend: o.Pause}
	if o.Pause {
		kept.Name += pauseMark
	}
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
				return l.key.sharesOverrides(k.Key) && !l.InFlight && l.Unit == g.Unit
			}) {
				faults = append(faults, configError("Override", g.String(),
					"no limit of the key counts "+limittext.UnitName(g.Unit), "leave it out"))
			}
		}
		_, err = e.overrideSet(base, k.Key, o)
		if err = errors.Join(append(faults, err)...); err == nil {
			return nil
		}
	}
	return err
}

// OverrideKey returns a key of the request that overrides can be of, and the identity that it has found: the own key if
// spec is nil, of the rule that has denied or the first one, and otherwise that key. It returns nil if there is none.
func (r *Result) OverrideKey(spec *keys.Spec) (*OverrideKey, store.Identity) {
	for i, all := 0, r.all(); i < len(all); i++ {
		if k := r.limitOf(i).key; k.IsBy(spec) && (k.owner.rule == nil || k.owner.rule == r.Rule()) {
			of := &OverrideKey{Key: k, Policy: k.policy(), bases: []*Set{r.Set}}
			return of, all[i].Key.Identity.Clone()
		}
	}
	return nil, store.Identity{}
}

// OverrideOf returns the override that is in force for the request's identity of a limit's key, or nil.
func (r *Result) OverrideOf(l *Limit) *Override {
	if r.engine.overrides == nil {
		return nil
	}
	for i, all := 0, r.all(); i < len(all); i++ {
		if r.limitOf(i).SameKey(l) {
			return r.engine.overrides.find(l.key, &all[i].Key.Identity, true)
		}
	}
	return nil
}

// pauseMark ends the ID of an override that is a pause.
const pauseMark = ":pause"

// RemoveOverride ends the override and the pause of an identity.
func (e *Engine) RemoveOverride(ctx context.Context, k *OverrideKey, id store.Identity) error {
	if err := e.LacksOverrides("RemoveOverride"); err != nil {
		return err
	}
	key := store.Key{Namespace: k.overrides, Identity: id}
	err := e.overrides.put(ctx, store.Override{Name: key.String()})
	return errors.Join(err, e.overrides.put(ctx, store.Override{Name: key.String() + pauseMark}))
}

// RemoveOverrideByID ends the override with an ID.
func (e *Engine) RemoveOverrideByID(ctx context.Context, id string) error {
	if err := e.LacksOverrides("RemoveOverrideByID"); err != nil {
		return err
	}
	return e.overrides.put(ctx, store.Override{Name: id})
}

// Overrides reads the overrides from the store and returns those in force, ordered by policy and key. The error is of
// those that cannot be read, or a [store.StoreError].
func (e *Engine) Overrides(ctx context.Context) ([]*Override, error) {
	if err := e.LacksOverrides("Overrides"); err != nil {
		return nil, err
	}
	return e.overrides.list(ctx)
}

// IsOf reports whether an override that was read is of a key.
func (o *Override) IsOf(k *OverrideKey) bool {
	identity, ok := strings.CutPrefix(o.ID, k.overrides.Name()+".")
	kind, _, _ := strings.Cut(identity, ":")
	return ok && (k.Spec == nil || k.Spec.MayFind(kind))
}

// LacksOverrides returns an error for a call unless the engine looks for overrides.
func (e *Engine) LacksOverrides(call string) error {
	if e.overrides != nil {
		return nil
	}
	return configError(call, "no overrides", "the limiter does not look for overrides",
		"make it with core.WithOverrides()")
}

// HasOverrides reports whether the engine looks for overrides.
func (e *Engine) HasOverrides() bool { return e.overrides != nil }
