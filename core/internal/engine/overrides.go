package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// overrides are those of a policy as this process knows them. The store keeps them, and they are read from it about
// once a second while there are requests. They are read again when they are older than readAfter, while requests use
// those that are known. A request that finds them older than outdated waits for the new ones, as the first one after
// some idle time does.
type overrides struct {
	engine *Engine
	from   store.Overrider
	start  time.Time
	asked  atomic.Int64 // when the store was last asked, in nanoseconds since start, or never

	reading sync.Mutex // held while the store is asked
	version string     // that was read; of reading
	failing bool       // the last question was not answered, and that was logged; of reading

	mu    sync.RWMutex
	byID  map[string]*Override // changed by those alone who hold the lock of reading as well
	known atomic.Int64         // the length of byID
}

const (
	readAfter = 900 * time.Millisecond
	outdated  = time.Second
	never     = -int64(outdated)

	stale = "stale" // a version that no store has
)

func newOverrides(e *Engine, from store.Overrider) *overrides {
	s := &overrides{engine: e, from: from, start: time.Now(), byID: make(map[string]*Override)}
	s.asked.Store(never)
	return s
}

func (s *overrides) age() time.Duration { return time.Since(s.start) - time.Duration(s.asked.Load()) }

// refresh reads the overrides if that is due and the store answers, and reports whether there may be any. While it does
// not, those that are known stay.
func (s *overrides) refresh(ctx context.Context) bool {
	switch age := s.age(); {
	case age >= readAfter && !s.engine.store.Answers():
	case age >= outdated:
		s.reading.Lock()
		if s.age() >= outdated {
			s.read(ctx) //nolint:errcheck // it is logged
		}
		s.reading.Unlock()
	case age >= readAfter && s.reading.TryLock():
		go func() {
			defer s.reading.Unlock()
			s.read(context.WithoutCancel(ctx)) //nolint:errcheck // as above
		}()
	}
	return s.known.Load() > 0
}

// read reads the overrides. The caller holds the lock of reading.
func (s *overrides) read(ctx context.Context) error {
	version, all, err := s.from.Overrides(ctx, s.engine.config.Policy, s.version)
	s.asked.Store(int64(time.Since(s.start)))
	if err != nil {
		if !s.failing {
			s.warn(ctx, "overrides cannot be read, so those that are known stay in force", "see the error", err)
			s.failing = true
		}
		return store.Error(err)
	}
	if s.failing = false; version == s.version {
		return nil
	}
	byID := make(map[string]*Override, len(all))
	for _, o := range all {
		made := s.byID[o.Name]
		if made == nil || made.raw != o.Value || !made.Until.Equal(o.Until) { // it is new
			made = parseOverride(o)
			if made.broken != nil { // the line is without its ID, which may have an address
				s.warn(ctx, "an override cannot be read, so it has no effect",
					"set it again, or run the same release of sash in all processes; Overrides names it", made.broken)
			}
		}
		byID[o.Name] = made
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID, s.version = byID, version
	s.known.Store(int64(len(byID)))
	return nil
}

// put has the store keep an override, as in [store.Overrider], or removes one, and notes here what was made of it, or
// nil. It costs the same however many there are.
func (s *overrides) put(ctx context.Context, o store.Override, made *Override) error {
	s.reading.Lock() // or what was read before would replace it
	defer s.reading.Unlock()
	if err := s.from.SetOverride(ctx, s.engine.config.Policy, o); err != nil {
		return store.Error(err)
	}
	s.version = stale
	s.mu.Lock()
	defer s.mu.Unlock()
	switch before := s.byID[o.Name]; {
	case made == nil:
		delete(s.byID, o.Name)
	case o.Extend && before != nil && !before.Until.Before(o.Until):
	default:
		s.byID[o.Name] = made
	}
	s.known.Store(int64(len(s.byID)))
	return nil
}

// find returns the override of an identity that has not ended, or else nil. Pauses come first, unless they are not to
// be found.
func (s *overrides) find(k *Key, id *store.Identity, pauses bool) *Override {
	key := store.Key{Namespace: k.overrides, Identity: *id}
	var space [128]byte
	name := key.AppendTo(space[:0])
	s.mu.RLock()
	defer s.mu.RUnlock()
	if o := s.byID[string(append(name, pauseMark...))]; pauses && o.inForce() {
		return o
	}
	if o := s.byID[string(name)]; o.inForce() {
		return o
	}
	return nil
}

// own returns those of this engine's policy or rules that are in force, and why others cannot be read. All rules on one
// store keep theirs together.
func (s *overrides) own() (all []*Override, err error) {
	policies := make(map[string]bool)
	for _, n := range s.engine.namespaces.all() {
		policies[n.Policy()] = true
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id, o := range s.byID {
		switch policy, _, _ := strings.Cut(id, ":"); {
		case !policies[policy]:
		case o.broken != nil:
			err = errors.Join(err, fmt.Errorf("sash: the override %s: %w", id, o.broken))
		case o.inForce():
			all = append(all, o)
		}
	}
	return all, err
}

// list reads the overrides and returns those in force.
func (s *overrides) list(ctx context.Context) ([]*Override, error) {
	s.reading.Lock()
	err := s.read(ctx)
	s.reading.Unlock()
	if err != nil {
		return nil, err
	}
	all, err := s.own()
	slices.SortFunc(all, func(a, b *Override) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Key, b.Key), strings.Compare(a.ID, b.ID))
	})
	return all, err
}

// warn logs an error. Its text has no identity.
func (s *overrides) warn(ctx context.Context, problem, remedy string, err error) {
	slog.Default().WarnContext(ctx, "sash: "+problem, slog.String("policy", s.engine.config.Policy),
		slog.Any("error", err), slog.String("remedy", remedy))
}
