// Package sharing warns of limiters that share logs, which no single line of configuration shows.
package sharing

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"weak"
)

// Registry has the limiters of each shared store that are not closed, by the names of their policies.
type Registry struct {
	mu     sync.Mutex
	living map[logs]map[Limiter]int // how many there are; none is 0
	warned map[[3]string]bool       // by name and both limits
}

// logs is where limiters of one name keep their logs.
type logs struct {
	store        weak.Pointer[byte]
	prefix, name string
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
	of, ok := logsOf(store, l.Name)
	if !ok {
		return func() {} // the store has no pointer to know it by
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.living == nil {
		r.living, r.warned = make(map[logs]map[Limiter]int), make(map[[3]string]bool)
	}
	for known := range r.living {
		if known.store.Value() == nil {
			delete(r.living, known)
		}
	}
	for other := range r.living[of] {
		if other.Limits != l.Limits || !other.Named || !l.Named { // otherwise they share on purpose
			r.warn(other, l)
		}
	}
	if r.living[of] == nil {
		r.living[of] = make(map[Limiter]int)
	}
	r.living[of][l]++
	return func() { r.remove(of, l) }
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

func (r *Registry) remove(of logs, l Limiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.living[of]
	if all[l]--; all[l] <= 0 {
		delete(all, l)
	}
	if len(all) == 0 {
		delete(r.living, of)
	}
}

// logsOf tells logs by the store, or by what the store returns from LogsOf: two stores of one client and prefix hold
// the same logs.
func logsOf(store any, name string) (of logs, ok bool) {
	v := reflect.ValueOf(store)
	if s, ok := store.(interface{ LogsOf() (any, string) }); ok {
		if client, prefix := s.LogsOf(); reflect.ValueOf(client).Kind() == reflect.Pointer {
			v, of.prefix = reflect.ValueOf(client), prefix
		}
	}
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return of, false
	}
	of.store, of.name = weak.Make((*byte)(v.UnsafePointer())), name
	return of, true
}
