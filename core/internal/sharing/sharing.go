// Package sharing warns of limiters that share logs, which no single line of configuration shows.
package sharing

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"weak"
)

// Registry has the limiters of each shared store that are not closed.
type Registry struct {
	mu     sync.Mutex
	living map[place]int      // how many there are; none is 0
	warned map[[3]string]bool // by name and both limits
}

// place is where a limiter keeps its logs.
type place struct {
	store  weak.Pointer[byte]
	prefix string
	Limiter
}

// Limiter is a limiter in a [Registry].
type Limiter struct {
	Name   string // of the policy
	Limits string // as they are written
	Named  bool   // the name was chosen, and is not made of the limits
}

// Add warns, once for each pair of limits, if another limiter on the store has the same name, unless both were given
// that name and have equal limits. The function that it returns removes the limiter.
func (r *Registry) Add(store any, l Limiter) (remove func()) {
	own, ok := placeOf(store, l)
	if !ok {
		return func() {} // the store has no pointer to know it by
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.living == nil {
		r.living, r.warned = make(map[place]int), make(map[[3]string]bool)
	}
	for other := range r.living {
		onPurpose := other.Limits == l.Limits && other.Named && l.Named
		switch {
		case other.store.Value() == nil:
			delete(r.living, other)
		case other.store == own.store && other.prefix == own.prefix && other.Name == l.Name && !onPurpose:
			r.warn(other.Limiter, l)
		}
	}
	r.living[own]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.living[own]--; r.living[own] <= 0 {
			delete(r.living, own)
		}
	}
}

func (r *Registry) warn(first, second Limiter) {
	pair := [3]string{first.Name, min(first.Limits, second.Limits), max(first.Limits, second.Limits)}
	if r.warned[pair] {
		return
	}
	r.warned[pair] = true
	slog.Default().LogAttrs(context.Background(), slog.LevelWarn,
		"sash: two limiters share a store and a name, and so their logs",
		slog.String("policy", first.Name), slog.String("first", first.Limits), slog.String("second", second.Limits),
		slog.String("remedy", "give each its own core.WithName, or both the same if they are to share; if one has "+
			"replaced the other, close the old one"))
}

// placeOf tells logs by the store, or by what the store returns from LogsOf: two stores of one client and prefix hold
// the same logs.
func placeOf(store any, l Limiter) (p place, ok bool) {
	v := reflect.ValueOf(store)
	if s, ok := store.(interface{ LogsOf() (any, string) }); ok {
		if client, prefix := s.LogsOf(); reflect.ValueOf(client).Kind() == reflect.Pointer {
			v, p.prefix = reflect.ValueOf(client), prefix
		}
	}
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return p, false
	}
	p.store, p.Limiter = weak.Make((*byte)(v.UnsafePointer())), l
	return p, true
}
