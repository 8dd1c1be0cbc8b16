package engine

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/internal/next/keys"
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
}

// OverrideKey is a key that overrides can be of.
type OverrideKey struct {
	Name   string   // the policy or the rule for its own key; with a slash and the name of a limit for that limit's key
	Policy string   // or the rule
	Own    bool     // it is the key of the policy or the rule
	Limits []string // names of its limits
	Spec   *keys.Spec
}

// OverrideKeys returns the keys that overrides of a policy with this set can be of; none without overrides.
func (e *Engine) OverrideKeys(set *Set) []*OverrideKey { return nil }

// OverrideKeysOf returns the keys that overrides of rules can be of; rules of one Name are parts of one rule.
func (e *Engine) OverrideKeysOf(rules []*Rule) []*OverrideKey { return nil }

// SetOverride keeps an override of an identity of a key. text is the identity as it was given. The error has a
// [store.ConfigError] for each mistake, or is a [store.StoreError].
func (e *Engine) SetOverride(ctx context.Context, k *OverrideKey, id store.Identity, text string, o *Override) error {
	return nil
}

// SetOverrideOf is SetOverride for the identity of a decision: of the own key if spec is nil, else of that key.
func (r *Result) SetOverride(ctx context.Context, spec *keys.Spec, o *Override) error { return nil }

// Pause denies all requests of an identity of the own key until an instant, unless a later pause is in force. Another
// override of the identity applies again afterwards.
func (e *Engine) Pause(ctx context.Context, id store.Identity, text string, until time.Time) error { return nil }

// RemoveOverride ends the override and the pause of an identity.
func (e *Engine) RemoveOverride(ctx context.Context, k *OverrideKey, id store.Identity) error { return nil }

// RemoveOverrideByID ends the override with an ID.
func (e *Engine) RemoveOverrideByID(ctx context.Context, id string) error { return nil }

// Overrides reads the overrides from the store and returns those in force, ordered by key. The error is of those that
// cannot be read, or a [store.StoreError].
func (e *Engine) Overrides(ctx context.Context) ([]*Override, error) { return nil, nil }
