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
	Limits []*Limit // that have the key; none if requests choose limits

	bases []*Set // of these, of which an override must fit one
}

// OverrideKeys returns the keys that overrides of sets can be of: of a policy, or of rules that were prepared, of which
// those of one Policy are parts of one rule. What is tried out has none. The policy's name stands for its own key, or
// for the only one.
func (e *Engine) OverrideKeys(sets ...*Set) (all []*OverrideKey) {
	for _, s := range sets {
		for i := range s.Limits {
			l := &s.Limits[i]
			if l.key.rule.Shadow {
				continue
			}
			n := slices.IndexFunc(all, func(k *OverrideKey) bool { return k.sharesOverrides(l.key) })
			if n < 0 {
				n = len(all)
				all = append(all, &OverrideKey{Key: l.key, Name: l.key.rule.Policy})
			}
			k := all[n]
			if k.Limits = append(k.Limits, l); !slices.Contains(k.bases, s) {
				k.bases = append(k.bases, s)
			}
		}
	}
	for _, k := range all {
		if slices.ContainsFunc(all, func(other *OverrideKey) bool {
			return other != k && other.rule.Policy == k.rule.Policy && (other.Own || !k.Own)
		}) {
			k.Name += "/" + k.Limits[0].Name
		}
	}
	return all
}

// OverrideKeyOf returns a key for overrides of a policy whose limits requests choose: its own if spec is nil. If
// requests choose limits of several keys of one kind, one must have come before.
func (e *Engine) OverrideKeyOf(spec *keys.Spec) *OverrideKey {
	k := e.own
	if spec != nil && spec != k.Spec {
		k = e.keyOf(&Given{Key: spec}, e.own.rule)
		for _, c := range e.chosen.all() {
			if i := slices.IndexFunc(c.set.Keys, func(of *Key) bool { return of.Spec == spec }); i >= 0 {
				k = c.set.Keys[i]
			}
		}
	}
	return &OverrideKey{Key: k, Name: k.rule.Policy}
}

// SetOverride keeps an override of an identity of a key. text is the identity as it was given. The error has a
// [store.ConfigError] for each mistake, or is a [store.StoreError].
func (e *Engine) SetOverride(ctx context.Context, k *OverrideKey, id store.Identity, text string, o *Override) error {
	if err := e.LacksOverrides("Override"); err != nil {
		return err
	}
	if o.Policy = k.rule.Policy; len(e.config.Secret) == 0 { // with one, the key must not be readable
		o.Key = text
	}
	value, err := o.value()
	if err != nil {
		return err
	}
	key := store.Key{Namespace: k.overrides, Identity: id}
	until := o.Until.Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond)
	kept := store.Override{Name: key.String(), Value: value, Until: until, Extend: o.Pause}
	if o.Pause {
		kept.Name += pauseMark
	}
	made := parseOverride(kept)
	if made.broken != nil {
		return made.broken
	}
	if o.Limits != nil {
		if err = e.fits(k, made); err != nil {
			return err
		}
	}
	return e.overrides.put(ctx, kept, made)
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
		_, err = e.newOverridden(base, k.Key, o)
		if err = errors.Join(append(faults, err)...); err == nil {
			return nil
		}
	}
	return err
}

// OverrideKey returns a key of the request that overrides can be of, and the identity that it has found: the own key if
// spec is nil, of the rule that has denied or the first one, and otherwise that key. It returns nil if there is none.
func (r *Result) OverrideKey(spec *keys.Spec) (*OverrideKey, store.Identity) {
	all, _ := r.all()
	for i := range all {
		if k := r.Set.Limits[i].key; k.IsBy(spec) && k.rule == r.Rule() {
			return &OverrideKey{Key: k, bases: []*Set{r.Set}}, all[i].Key.Identity.Clone()
		}
	}
	return nil, store.Identity{}
}

// OverrideOf returns the override that is in force for the request's identity of a limit's key, or nil.
func (r *Result) OverrideOf(limit int) *Override {
	if r.engine.overrides == nil {
		return nil
	}
	all, _ := r.all()
	return r.engine.overrides.find(r.Set.Limits[limit].key, &all[limit].Key.Identity, true)
}

// pauseMark ends the ID of an override that is a pause.
const pauseMark = ":pause"

// RemoveOverride ends the override and the pause of an identity.
func (e *Engine) RemoveOverride(ctx context.Context, k *OverrideKey, id store.Identity) error {
	if err := e.LacksOverrides("RemoveOverride"); err != nil {
		return err
	}
	key := store.Key{Namespace: k.overrides, Identity: id}
	err := e.overrides.put(ctx, store.Override{Name: key.String()}, nil)
	return errors.Join(err, e.overrides.put(ctx, store.Override{Name: key.String() + pauseMark}, nil))
}

// RemoveOverrideByID ends the override with an ID.
func (e *Engine) RemoveOverrideByID(ctx context.Context, id string) error {
	if err := e.LacksOverrides("RemoveOverrideByID"); err != nil {
		return err
	}
	return e.overrides.put(ctx, store.Override{Name: id}, nil)
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
