package core

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/internal/engine"
)

// Override is another quota for one key until an instant: see [Limiter.Override]. Exactly one of Limits, Denied and
// Unlimited is set.
type Override struct {
	// Limits replace the key's limits of the same units. Where windows are equal, what was used stays used: a larger
	// quota admits the difference at once, and a smaller one needs no reset. So there a limit without an [Algorithm]
	// counts as that which it replaces. Another window, or rate of a token bucket, begins with nothing used.
	// Limits of other units, of other keys and of requests in flight stay.
	Limits Limits

	// Denied refuses all requests of the key (429), with RetryAfter until the end.
	Denied bool

	// Unlimited lets the key's limits deny nothing. Requests are recorded, at least [store.MaxRecorded] units of each
	// limit. Limits of other keys and of requests in flight stay.
	Unlimited bool

	Until time.Time // the end: in the future, and within a year
	Note  string    // why, for people: at most 200 bytes
	By    Key       `json:"-"` // the key of limits with [Limit.By] that is meant; the zero Key is the limiter's own
}

// Kind returns "denied", "unlimited" or "limits".
func (o *Override) Kind() string {
	switch {
	case o.Denied:
		return "denied"
	case o.Unlimited:
		return "unlimited"
	}
	return "limits"
}

// KeyOverride is an override in force, as [Limiter.Overrides] lists it.
type KeyOverride struct {
	Policy string // its name, or that of the rule
	Key    string // as it was given; empty with [WithSecret]. It may be personal data
	ID     string // names the key, for [Limiter.RemoveOverrideByID]
	Override
}

// inner returns the override as the engine gets it.
func (o *Override) inner() *engine.Override {
	inner := &engine.Override{Denied: o.Denied, Unlimited: o.Unlimited, Until: o.Until, Note: o.Note}
	if o.Limits != nil {
		inner.Limits = o.Limits.given([]engine.Given{})
	}
	return inner
}

// publicOverride returns an override that was read as users get it. It is made once.
func publicOverride(o *engine.Override) *Override {
	if made, ok := o.Public.Load().(*Override); ok {
		return made
	}
	own := &Override{Denied: o.Denied, Unlimited: o.Unlimited, Until: o.Until, Note: o.Note}
	for i := range o.Limits {
		g := &o.Limits[i]
		own.Limits = append(own.Limits, Limit{Quota: g.Quota, Window: g.Window, Name: g.Name, form: g.Form})
	}
	o.Public.Store(own)
	return own
}

// Override gives a key another quota until an instant, in place of an earlier override of the key: for a customer who
// needs more until Friday, or for a key that must be stopped. It is in force in this process when Override returns, and
// within a second in all others whose limiter has the same name, store and kind of key, and [WithOverrides].
//
//	err := limiter.Override(ctx, "customer 7", core.Override{
//		Limits: core.Limits{core.PerMinute(600)}, Until: friday, Note: "ticket 4711",
//	})
//
// The key is a text as for [Limiter.Allow]. For keys without such a text, as those of [Join], use [Decision.Override].
// The store keeps the key as it is given, so that it can be listed, unless the limiter has [WithSecret].
//
// An override ends everywhere at its end, by the clock of each process. A policy has at most 10,000, and those of
// [Limiter.Pause] beside them. An override does not lift a ban ([WithBan]), and none makes [Limiter.Record] deny. If
// several keys of a request have overrides, all of them apply.
//
// The error has a [ConfigError] for each mistake, or is a [StoreError].
func (l *Limiter) Override(ctx context.Context, key string, o Override) error {
	k, id, err := l.overridden("Override", key, o.By)
	if err != nil {
		return errors.Join(err, o.inner().Validate())
	}
	return l.engine.SetOverride(ctx, k, id, key, o.inner())
}

// Override is [Limiter.Override] for the key of this decision, or with By, for that key of its limits. It works for all
// keys.
func (d Decision) Override(ctx context.Context, o Override) error {
	if d.result.Set == nil {
		return errNotLimited("Override")
	}
	k, id := d.result.OverrideKey(o.By.spec)
	if k == nil {
		return noSuchKey("Override", o.By)
	}
	return d.limiter.engine.SetOverride(ctx, k, id, id.Label(), o.inner())
}

// RemoveOverride ends the override of a key, which is a text as for [Limiter.Override]. by is the key of limits with
// [Limit.By], if the text belongs to that key. Without an override it does nothing.
func (l *Limiter) RemoveOverride(ctx context.Context, key string, by ...Key) error {
	k, id, err := l.overridden("RemoveOverride", key, append(by, Key{})[0])
	if err != nil {
		return err
	}
	return l.engine.RemoveOverride(ctx, k, id)
}

// RemoveOverrideByID ends the override with an ID, which [Limiter.Overrides] lists. Without one it does nothing.
func (l *Limiter) RemoveOverrideByID(ctx context.Context, id string) error {
	return l.engine.RemoveOverrideByID(ctx, id)
}

// Overrides lists the overrides in force, ordered by their keys. It reads them from the store.
func (l *Limiter) Overrides(ctx context.Context) ([]KeyOverride, error) {
	read, err := l.engine.Overrides(ctx)
	all := make([]KeyOverride, 0, len(read))
	for _, o := range read {
		listed := KeyOverride{Policy: o.Policy, Key: o.Key, ID: o.ID, Override: *publicOverride(o)}
		listed.By = l.keyOfOverride(o)
		all = append(all, listed)
	}
	return all, err
}

// keyOfOverride returns the key of limits that an override is for, or the zero Key.
func (l *Limiter) keyOfOverride(o *engine.Override) Key {
	if l.gate.Policy.Set != nil {
		for _, k := range l.engine.OverrideKeys(l.gate.Policy.Set) {
			if !k.Own && o.IsOf(k) {
				return Key{k.Spec}
			}
		}
	}
	return Key{}
}

// overridden finds the key and the identity that a text names.
func (l *Limiter) overridden(call, text string, by Key) (k *engine.OverrideKey, id identity, err error) {
	switch set := l.gate.Policy.Set; {
	case l.gate.Rules != nil:
		return nil, id, configError(call, "a text", "keys of rules belong to a rule", "use the method of the rules.Set")
	case set == nil:
		k = l.engine.OverrideKeyOf(by.spec)
	default:
		all := l.engine.OverrideKeys(set)
		of := slices.IndexFunc(all, func(k *engine.OverrideKey) bool { return k.IsBy(by.spec) })
		if of < 0 {
			return nil, id, noSuchKey(call, by)
		}
		k = all[of]
	}
	err = k.Spec.Identify(&id, call, text, &l.gate.Prefixes)
	return k, id, err
}

func noSuchKey(call string, by Key) error {
	name := "the limiter's key"
	if by.spec != nil {
		name = by.spec.Name
	}
	return configError(call, name, "no limit has this key",
		"set By to the key of a limit, or leave it out for the limiter's own key")
}

// Pause denies all requests of a key until an instant, within a year, in all processes, unless a later pause is in
// force: for clients of a server that has asked for a pause, as [nethttp.Transport] does it. It reports whether the
// limiter has [WithOverrides]; otherwise it does nothing. The key is a text as for [Limiter.Wait]. Another override of
// the key applies again afterwards. A policy has at most about 1,000 pauses, so they leave room for other overrides.
//
// [nethttp.Transport]: https://pkg.go.dev/github.com/sashlimit/sash/nethttp#Transport
func (l *Limiter) Pause(ctx context.Context, key string, until time.Time) (ok bool, err error) {
	if !l.engine.HasOverrides() {
		return false, nil
	}
	var id identity
	if err = l.identify(&id, "Pause", key); err != nil {
		return true, err
	}
	pause := &engine.Override{Denied: true, Pause: true, Until: until, Note: "a pause"}
	return true, l.engine.SetOverride(ctx, l.engine.OverrideKeyOf(nil), id, key, pause)
}
