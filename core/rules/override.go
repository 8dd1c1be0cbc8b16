package rules

import (
	"context"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/bridge"
)

// Override gives a key of a rule another quota until an instant, as [core.Limiter.Override] does. The rules need
// [core.WithOverrides] among the options of [WithOptions].
//
//	err := set.Override(ctx, "api", "customer 7", core.Override{
//		Limits: core.Limits{core.PerMinute(600)}, Until: friday, Note: "ticket 4711",
//	})
//
// The key is a text that the rule's key finds: an address for ip, the identity for a header or a value, either for
// first. It is empty for global. What join and keys of package jwtkey find is named by no text:
// [core.Decision.Override] overrides the key of a request.
//
// Where a limit or a descriptor has a key of its own, rule is the name of the rule, a slash, and the name of such a
// limit, as in RateLimit-Policy: "api/all". Without the slash it is the rule's own key, or else the only one that its
// limits have. Descriptors of the same keys have their overrides in common, whatever their values are.
//
// What other rules count for the same key stays as it is. Overrides are kept when the file is loaded again, as they are
// named by domain, rule and key. A rule in shadow has nothing to override, which is an error.
func (s *Set) Override(ctx context.Context, rule, key string, o core.Override) error {
	return overrides.Override(ctx, s.limiter, rule, key, o)
}

// RemoveOverride ends the override of a key, named as for [Set.Override], or by the ID of a [core.KeyOverride].
func (s *Set) RemoveOverride(ctx context.Context, rule, key string) error {
	return overrides.RemoveOverride(ctx, s.limiter, rule, key)
}

// Overrides lists the overrides in force, as [core.Limiter.Overrides] does: those of rules that this Set has, or had
// before its file was loaded again.
func (s *Set) Overrides(ctx context.Context) ([]core.KeyOverride, error) {
	return s.limiter.Overrides(ctx)
}

//nolint:forcetypeassert // core sets it
var overrides = bridge.Limiters.(*bridge.Functions[*core.Limiter, core.Decision, core.Override])

// named returns the rules in force.
func (s *Set) named() []bridge.Named {
	rules := s.active.Load().rules
	all := make([]bridge.Named, len(rules))
	for i, r := range rules {
		all[i].Name = r.name
		for _, of := range r.parts() {
			if of.prepared != nil {
				all[i].Parts = append(all[i].Parts, of.prepared)
			}
		}
	}
	return all
}
