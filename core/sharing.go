package core

import (
	"context"
	"hash/maphash"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"weak"
)

// sharers holds the limiters on each shared store that are not closed, as long as the store lives.
var sharers struct {
	sync.Mutex

	of   map[logNamespace][]*sharer // not empty
	said map[[3]string]bool         // pairs of places, and of policies if these differ
}

// logNamespace identifies where limiters of one name keep their logs.
type logNamespace struct {
	store        weak.Pointer[byte]
	prefix, name string
}

// secretSeed is random in each process, so that the hash of a secret reveals nothing.
var secretSeed = maphash.MakeSeed()

// sharer describes a limiter.
type sharer struct {
	policy   string // name made of the limits
	named    bool   // WithName was given
	keys     []keyClass
	prefixes prefixes
	secret   uint64
	place    string // file and line that made it
	limiters int    // that are equal and not closed
}

func (s *sharer) equal(o *sharer) bool {
	return s.policy == o.policy && s.named == o.named && s.place == o.place && s.secret == o.secret &&
		s.prefixes == o.prefixes && reflect.DeepEqual(s.keys, o.keys)
}

// shareLogs warns if a limiter on a shared store uses the same logs as another that is not closed, unless both were
// given that name and have equal limits. The function that it returns is called when the limiter is closed.
func shareLogs(c *config, k Key, policy string, named bool) (unshare func()) {
	ns, ok := logNamespaceOf(c)
	if !ok {
		return nil // the store has no pointer to identify it by
	}
	s := &sharer{
		policy:   policy,
		named:    named,
		keys:     k.classes,
		prefixes: prefixes{v4: c.prefixes.v4, v6: c.prefixes.v6},
		place:    position(outside(callers())),
	}
	if _, memory := c.store.(*MemoryStore); len(c.secret) > 0 && !memory {
		s.secret = maphash.Bytes(secretSeed, c.secret)
	}
	sharers.Lock()
	defer sharers.Unlock()
	for known := range sharers.of {
		if known.store.Value() == nil {
			delete(sharers.of, known)
		}
	}
	if sharers.of == nil {
		sharers.of, sharers.said = make(map[logNamespace][]*sharer), make(map[[3]string]bool)
	}
	for _, other := range slices.Backward(sharers.of[ns]) {
		if s.secret == other.secret && overlap(s.keys, other.keys, &s.prefixes, &other.prefixes) {
			warnSharer(c.name, other, s)
			break
		}
	}
	// The latest is last, and equal ones are kept once, so their number is bounded by the program's source.
	all := sharers.of[ns]
	if i := slices.IndexFunc(all, s.equal); i >= 0 {
		s = all[i]
		all = slices.Delete(all, i, i+1)
	}
	s.limiters++
	sharers.of[ns] = append(all, s)
	return func() { unshareLogs(ns, s) }
}

func unshareLogs(ns logNamespace, s *sharer) {
	sharers.Lock()
	defer sharers.Unlock()
	if s.limiters--; s.limiters > 0 {
		return
	}
	rest := slices.DeleteFunc(sharers.of[ns], func(o *sharer) bool { return o == s })
	if len(rest) == 0 {
		delete(sharers.of, ns)
		return
	}
	sharers.of[ns] = rest
}

func warnSharer(name string, first, second *sharer) {
	pair := [3]string{min(first.place, second.place), max(first.place, second.place)}
	problem := "two limiters share a store and a name, and so their logs"
	remedy := "give each its own core.WithName, or both the same if they are to share, unless one has replaced " +
		"the other"
	switch {
	case first.policy != second.policy:
		pair[2] = name + " " + min(first.policy, second.policy) + " " + max(first.policy, second.policy)
		problem = "two policies share a store and a name, and so their logs"
		remedy = "give each its own core.WithName, unless one has replaced the other"
	case first.named && second.named:
		return
	}
	if sharers.said[pair] {
		return
	}
	sharers.said[pair] = true
	slog.Default().LogAttrs(context.Background(), slog.LevelWarn, "sash: "+problem, slog.String("policy", name),
		slog.String("first", first.place), slog.String("second", second.place), slog.String("remedy", remedy))
}

// logNamespaceOf identifies the logs by the store, or by what the store returns from LogsOf: two stores of one client
// and prefix hold the same logs.
func logNamespaceOf(c *config) (ns logNamespace, ok bool) {
	var behind any = c.store
	if s, ok := c.store.(interface{ LogsOf() (any, string) }); ok {
		if of, prefix := s.LogsOf(); reflect.ValueOf(of).Kind() == reflect.Pointer {
			behind, ns.prefix = of, prefix
		}
	}
	v := reflect.ValueOf(behind)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return ns, false
	}
	ns.store, ns.name = weak.Make((*byte)(v.UnsafePointer())), c.name
	return ns, true
}
