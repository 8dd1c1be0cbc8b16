package store

import (
	"context"
	"fmt"
	"time"
)

// Overrider is a [Store] that keeps overrides: texts by policy and name, each until an instant. Limiters with overrides
// need it, and read them about once a second.
type Overrider interface {
	// SetOverride keeps an override in place of the one of that name, or removes that one if Value is empty. A new one
	// is [TooManyOverrides] if the policy has as many of its kind as it may, which have not ended: see [Override.Most].
	SetOverride(ctx context.Context, policy string, o Override) error

	// Overrides returns the overrides of a policy, and a version, which is another one for each state of them; it is
	// empty if there never was an override, or if the store has lost all. Those that have ended may be left out. If
	// known is the present version, Overrides returns no overrides.
	Overrides(ctx context.Context, policy, known string) (version string, all []Override, err error)
}

// Override is what an [Overrider] keeps.
type Override struct {
	Name  string
	Value string
	Until time.Time // in whole milliseconds

	// Extend says that the override is a pause. SetOverride leaves one of the name alone that does not end before
	// Until.
	Extend bool
}

// MaxOverrides is how many overrides a policy has at most, and MaxPauses how many pauses beside them.
const (
	MaxOverrides = 10_000
	MaxPauses    = 1_000
)

// Most returns how many of its kind a policy has at most: overrides, or pauses.
func (o *Override) Most() int {
	if o.Extend {
		return MaxPauses
	}
	return MaxOverrides
}

// TooManyOverrides returns the [ConfigError] for an override or a pause that is one too many.
func TooManyOverrides(policy string, o *Override) error {
	kind, remedy := "overrides", "remove some, or choose limits by the customer's plan with LimitBy"
	if o.Extend {
		kind, remedy = "pauses", "wait until one has ended, or remove its override"
	}
	return configError("Override", policy,
		fmt.Sprintf("the policy has %d %s, and there is no room for more", o.Most(), kind), remedy)
}
