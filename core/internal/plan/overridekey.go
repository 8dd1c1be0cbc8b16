package plan

import (
	"slices"

	"github.com/sashlimit/sash/core/store"
)

// OverrideKey is a kind of key that overrides can be of, in a policy or a rule.
type OverrideKey struct {
	Policy string
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

// OverrideKeys returns the keys of a policy that has these plans. Limits in shadow have nothing to override.
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
	return keys
}

// Main returns the key that the name of a policy or a rule stands for: its own one, or the only one. It is nil if there
// are several.
func Main(keys []*OverrideKey) *OverrideKey {
	own := slices.DeleteFunc(slices.Clone(keys), func(k *OverrideKey) bool { return !k.Own })
	switch {
	case len(own) == 1:
		return own[0]
	case len(keys) == 1:
		return keys[0]
	}
	return nil
}

// NamesOf returns what keys are called: the policy or the rule for its [Main] key, and with a slash and the name of a
// limit for others.
func NamesOf(keys []*OverrideKey) (names []string) {
	of := Main(keys)
	for _, k := range keys {
		if k == of {
			names = append([]string{k.Policy}, names...)
		} else {
			names = append(names, k.Policy+"/"+k.Limits[0])
		}
	}
	return names
}
