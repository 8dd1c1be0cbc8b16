package setup

import (
	"context"
	"hash/maphash"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"weak"
)

// Sharers are the limiters on each shared store that are not closed, as long as the store lives.
type Sharers struct {
	mu     sync.Mutex
	byLogs map[logNamespace][]*sharer // not empty
	logged map[[3]string]bool         // pairs of places, and of policies if these differ
}

// Len returns how many limiters are remembered. Equal ones are remembered once.
func (s *Sharers) Len() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.byLogs {
		n += len(all)
	}
	return n
}

// logNamespace identifies where limiters of one name keep their logs.
type logNamespace struct {
	store        weak.Pointer[byte]
	prefix, name string
}

// secretSeed is random in each process, so that the hash of a secret reveals nothing.
var secretSeed = maphash.MakeSeed()

// Limiter is what tells which logs a limiter uses.
type Limiter struct {
	Store  any
	Name   string // of the policy
	Limits string // the name that is made of the limits
	Named  bool   // WithName was given
	Keys   []KeyClass
	V4, V6 int // lengths of the prefixes of addresses
	Secret []byte
}

// sharer is one or several equal limiters.
type sharer struct {
	Limiter

	secret   uint64
	place    string // file and line that made it
	limiters int    // that are not closed
}

func (s *sharer) equal(o *sharer) bool {
	return s.place == o.place && s.secret == o.secret && s.Limits == o.Limits && s.Named == o.Named &&
		s.V4 == o.V4 && s.V6 == o.V6 && reflect.DeepEqual(s.Keys, o.Keys)
}

// Add warns if a limiter on a shared store uses the same logs as another that is not closed, unless both were given
// that name and have equal limits. The function that it returns is called when the limiter is closed.
func (s *Sharers) Add(l Limiter) (remove func()) {
	logs, ok := logNamespaceOf(&l)
	if !ok {
		return nil // the store has no pointer to identify it by
	}
	added := &sharer{Limiter: l, place: position(find(callers(), isOutside))}
	if added.Store, added.Secret = nil, nil; len(l.Secret) > 0 {
		added.secret = maphash.Bytes(secretSeed, l.Secret)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for known := range s.byLogs {
		if known.store.Value() == nil {
			delete(s.byLogs, known)
		}
	}
	if s.byLogs == nil {
		s.byLogs, s.logged = make(map[logNamespace][]*sharer), make(map[[3]string]bool)
	}
	all := s.byLogs[logs]
	for _, other := range slices.Backward(all) {
		if added.secret == other.secret && overlap(added.Keys, other.Keys, &added.Limiter, &other.Limiter) {
			s.warn(other, added)
			break
		}
	}
	// The latest is last, and equal ones are kept once, so their number is bounded by the program's source.
	if i := slices.IndexFunc(all, added.equal); i >= 0 {
		added = all[i]
		all = slices.Delete(all, i, i+1)
	}
	added.limiters++
	s.byLogs[logs] = append(all, added)
	return func() { s.remove(logs, added) }
}

func (s *Sharers) remove(logs logNamespace, closed *sharer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if closed.limiters--; closed.limiters > 0 {
		return
	}
	rest := slices.DeleteFunc(s.byLogs[logs], func(o *sharer) bool { return o == closed })
	if s.byLogs[logs] = rest; len(rest) == 0 {
		delete(s.byLogs, logs)
	}
}

func (s *Sharers) warn(first, second *sharer) {
	pair := [3]string{min(first.place, second.place), max(first.place, second.place)}
	problem := "two limiters share a store and a name, and so their logs"
	remedy := "give each its own core.WithName, or both the same if they are to share, unless one has replaced " +
		"the other"
	switch {
	case first.Limits != second.Limits:
		pair[2] = first.Name + " " + min(first.Limits, second.Limits) + " " + max(first.Limits, second.Limits)
		problem = "two policies share a store and a name, and so their logs"
		remedy = "give each its own core.WithName, unless one has replaced the other"
	case first.Named && second.Named:
		return
	}
	if s.logged[pair] {
		return
	}
	s.logged[pair] = true
	slog.Default().LogAttrs(context.Background(), slog.LevelWarn, "sash: "+problem,
		slog.String("policy", first.Name), slog.String("first", first.place), slog.String("second", second.place),
		slog.String("remedy", remedy))
}

// logNamespaceOf identifies the logs by the store, or by what the store returns from LogsOf: two stores of one client
// and prefix hold the same logs.
func logNamespaceOf(l *Limiter) (ns logNamespace, ok bool) {
	v := reflect.ValueOf(l.Store)
	if s, ok := l.Store.(interface{ LogsOf() (any, string) }); ok {
		if of, prefix := s.LogsOf(); reflect.ValueOf(of).Kind() == reflect.Pointer {
			v, ns.prefix = reflect.ValueOf(of), prefix
		}
	}
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return ns, false
	}
	ns.store, ns.name = weak.Make((*byte)(v.UnsafePointer())), l.Name
	return ns, true
}

// KeyClass is a kind of identity that a key may return. Keys without a common class never name the same log.
type KeyClass struct {
	Kind, Scope string
	Address     bool         // its identities are prefixes of addresses
	Parts       [][]KeyClass // of a key that is made of several, in order
}

// AnyScope is the scope of keys that determine it for each request.
const AnyScope = "*"

// overlap reports whether keys of these classes, which two limiters have, may name the same log.
func overlap(a, b []KeyClass, x, y *Limiter) bool {
	return slices.ContainsFunc(a, func(a KeyClass) bool {
		return slices.ContainsFunc(b, func(b KeyClass) bool { return a.overlaps(&b, x, y) })
	})
}

func (a *KeyClass) overlaps(b *KeyClass, x, y *Limiter) bool {
	switch {
	case a.Kind != b.Kind,
		a.Scope != b.Scope && a.Scope != AnyScope && b.Scope != AnyScope,
		len(a.Parts) != len(b.Parts):
		return false
	case a.Address:
		return x.V4 == y.V4 || x.V6 == y.V6
	}
	for i := range a.Parts {
		if !overlap(a.Parts[i], b.Parts[i], x, y) {
			return false
		}
	}
	return true
}
