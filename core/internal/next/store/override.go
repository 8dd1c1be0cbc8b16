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
	// is a [ConfigError] if [MaxOverrides] of the policy have not ended; see [TooManyOverrides].
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

	// Extend, in SetOverride, leaves an override of the name alone that does not end before Until.
	Extend bool
}

// MaxOverrides is how many overrides a policy has at most.
const MaxOverrides = 10_000

// TooManyOverrides returns the error for one override too many.
func TooManyOverrides(policy string) error {
	return configError("Override", policy,
		fmt.Sprintf("the policy has %d overrides, and there is no room for more", MaxOverrides),
		"remove some, or choose limits by the customer's plan with LimitBy")
}
