package memory

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Overrides are those of all policies of a store.
type Overrides struct {
	mu       sync.Mutex
	policies map[string]overridden
}

// overridden are the overrides of a policy by their names.
type overridden struct {
	version string
	byName  map[string]store.Override
}

// Set is SetOverride of [store.Overrider].
func (s *Overrides) Set(policy string, o store.Override) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.policies[policy].byName
	if all == nil {
		all = make(map[string]store.Override)
	}
	old, known := all[o.Name]
	switch {
	case o.Value == "":
		delete(all, o.Name)
	case o.Extend && known && !old.Until.Before(o.Until):
		return nil
	default:
		if !known && len(all) >= o.Most() {
			now, same := time.Now(), 0
			maps.DeleteFunc(all, func(_ string, o store.Override) bool { return !now.Before(o.Until) })
			for _, other := range all {
				if other.Extend == o.Extend {
					same++
				}
			}
			if same >= o.Most() {
				return store.TooManyOverrides(policy, &o)
			}
		}
		all[o.Name] = o
	}
	if s.policies == nil {
		s.policies = make(map[string]overridden)
	}
	s.policies[policy] = overridden{strconv.FormatUint(rand.Uint64(), 36), all}
	return nil
}

// All is Overrides of [store.Overrider].
func (s *Overrides) All(policy, known string) (version string, all []store.Override) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.policies[policy]
	if p.version == known {
		return known, nil
	}
	return p.version, slices.Collect(maps.Values(p.byName))
}
