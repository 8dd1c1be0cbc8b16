package memory

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/internal/next/store"
)

// Overrides are those of all policies of a store.
type Overrides struct {
	mu       sync.Mutex
	policies map[string]*overridden
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
	p := s.policies[policy]
	if p == nil {
		p = &overridden{byName: make(map[string]store.Override)}
	}
	old, known := p.byName[o.Name]
	switch {
	case o.Value == "":
		delete(p.byName, o.Name)
	case o.Extend && known && !old.Until.Before(o.Until):
		return nil
	default:
		if !known && len(p.byName) >= o.Most() {
			now, same := time.Now(), 0
			maps.DeleteFunc(p.byName, func(_ string, o store.Override) bool { return !now.Before(o.Until) })
			for _, other := range p.byName {
				if other.Extend == o.Extend {
					same++
				}
			}
			if same >= o.Most() {
				return store.TooManyOverrides(policy, &o)
			}
		}
		p.byName[o.Name] = o
	}
	p.version = strconv.FormatUint(rand.Uint64(), 36)
	if s.policies == nil {
		s.policies = make(map[string]*overridden)
	}
	s.policies[policy] = p
	return nil
}

// All is Overrides of [store.Overrider].
func (s *Overrides) All(policy, known string) (version string, all []store.Override) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.policies[policy]
	switch {
	case p == nil:
		return "", nil
	case p.version == known:
		return known, nil
	}
	return p.version, slices.Collect(maps.Values(p.byName))
}
