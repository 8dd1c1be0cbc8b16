package plan

import (
	"slices"

	"github.com/sashlimit/sash/core/store"
)

// OverrideKey is a kind of key that overrides can be of, in a policy or a rule.
type OverrideKey struct {
	Policy string   // or the rule
	Name   string   // the policy, or with a slash and the name of a limit if it stands for another key
	Own    bool     // it is that of the policy or the rule
	Limits []string // names of its limits
	Key    Key
	Space  *store.Namespace // a [Log.KeySpace]
	Bases  []*Plan          // that have the key
}

// Named is a rule with the plans of its parts that have limits.
type Named struct {
	Name  string
	Plans []*Plan
}

// OverrideKeys returns the keys of a policy that has these plans. Its name stands for the first one, if that is its own
// or the only one. Limits in shadow have nothing to override.
func OverrideKeys(policy string, plans []*Plan) (keys []*OverrideKey) {
	for _, pl := range plans {
		for _, log := range pl.Logs {
			if log.Deciding() == 0 {
				continue
			}
			i := slices.IndexFunc(keys, func(k *OverrideKey) bool { return k.Space == log.KeySpace })
			if i < 0 {
				i = len(keys)
				keys = append(keys, &OverrideKey{Policy: policy, Own: log.Own, Key: log.Key, Space: log.KeySpace})
			}
			k := keys[i]
			for _, limit := range log.Limits[:log.Deciding()] {
				k.Limits = append(k.Limits, limit.Name)
			}
			if !slices.Contains(k.Bases, pl) {
				k.Bases = append(k.Bases, pl)
			}
		}
	}
	own := slices.DeleteFunc(slices.Clone(keys), func(k *OverrideKey) bool { return !k.Own })
	if len(own) != 1 {
		own = slices.Clone(keys)
	}
	for _, k := range keys {
		k.Name = policy + "/" + k.Limits[0]
	}
	if len(own) == 1 {
		own[0].Name = policy
		keys = slices.Concat(own, slices.DeleteFunc(keys, func(k *OverrideKey) bool { return k == own[0] }))
	}
	return keys
}
