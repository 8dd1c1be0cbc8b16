// Package override has the overrides of a policy as this process knows them. They are kept by the store, and read from
// it about once a second while there are requests.
package override

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Overrides are read again when they are older than readAfter, while requests use those that are known. A request that
// finds them older than outdated waits for the new ones, as the first one after some idle time does.
const (
	readAfter = 900 * time.Millisecond
	outdated  = time.Second
)

// Set is the overrides of a policy. T is what is made of each.
type Set[T any] struct {
	Config[T]

	start   time.Time
	known   atomic.Pointer[table[T]]
	asked   atomic.Int64 // when the store was last asked, in nanoseconds since start, or never
	reading sync.Mutex   // held while the store is asked
	failing bool         // the last question was not answered, and that was logged
}

// Config is what a [Set] needs.
type Config[T any] struct {
	Policy string
	Store  store.Overrider
	Parse  func(store.Override) (T, error) // makes what Find returns; an override with an error is logged and ignored
	Counts func(name string) bool          // of InForce and Len
}

const never = -int64(outdated)

// table is what was read. It is not changed afterwards.
type table[T any] struct {
	version string
	byName  map[string]*Entry[T]
}

// Entry is an override that was read.
type Entry[T any] struct {
	store.Override

	Made T     // what Parse has made of it
	Err  error // of Parse
}

// New makes a set. It does no I/O.
func New[T any](c Config[T]) *Set[T] {
	s := &Set[T]{Config: c, start: time.Now()}
	s.known.Store(new(table[T]))
	s.asked.Store(never)
	return s
}

func (s *Set[T]) age() time.Duration { return time.Since(s.start) - time.Duration(s.asked.Load()) }

// Guard stands before a store that may not answer.
type Guard interface {
	store.Overrider
	Answers() bool
}

// Refresh reads the overrides if that is due and the store answers, and reports whether there may be any. While it does
// not, those that are known stay. by is the guard that the request is decided by, or nil.
func (s *Set[T]) Refresh(ctx context.Context, by Guard) bool {
	from := s.Store
	if by != nil {
		from = by
	}
	switch age := s.age(); {
	case age >= readAfter && by != nil && !by.Answers():
	case age >= outdated:
		s.reading.Lock()
		if s.age() >= outdated {
			s.ask(ctx, from) //nolint:errcheck // it is logged
		}
		s.reading.Unlock()
	case age >= readAfter && s.reading.TryLock():
		go func() {
			defer s.reading.Unlock()
			s.ask(context.WithoutCancel(ctx), from) //nolint:errcheck // as above
		}()
	}
	return len(s.known.Load().byName) > 0
}

// ReadNow reads the overrides now.
func (s *Set[T]) ReadNow(ctx context.Context) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	return store.Error(s.ask(ctx, s.Store))
}

// Put has the store keep an override, as in [store.Overrider], and reads it back, so that it is in force. One pause too
// many does not reach the store, which would look through all overrides for one that has ended.
func (s *Set[T]) Put(ctx context.Context, o store.Override) error {
	if o.Extend && !s.Has(o.Name) && s.pauses() >= o.Most() {
		return store.TooManyOverrides(s.Policy, &o)
	}
	err := s.Store.SetOverride(ctx, s.Policy, o)
	return cmp.Or(store.Error(err), s.ReadNow(ctx))
}

// ask reads the overrides. The caller holds the lock.
func (s *Set[T]) ask(ctx context.Context, from store.Overrider) error {
	known := s.known.Load()
	version, overrides, err := from.Overrides(ctx, s.Policy, known.version)
	s.asked.Store(int64(time.Since(s.start)))
	if err != nil {
		if !s.failing {
			slog.Default().WarnContext(ctx, "sash: overrides cannot be read, so those that are known stay in force",
				slog.String("policy", s.Policy), slog.Any("error", err))
			s.failing = true
		}
		return err
	}
	if s.failing = false; version == known.version {
		return nil
	}
	t := &table[T]{version, make(map[string]*Entry[T], len(overrides))}
	for _, o := range overrides {
		if old := known.byName[o.Name]; old != nil && old.Value == o.Value && old.Until.Equal(o.Until) {
			t.byName[o.Name] = old
			continue
		}
		e := &Entry[T]{Override: o}
		if e.Made, e.Err = s.Parse(o); e.Err != nil {
			slog.Default().WarnContext(ctx, "sash: an override cannot be read, so it has no effect",
				slog.String("policy", s.Policy), slog.Any("error", e.Err), // the name may have an address
				slog.String("remedy", "set it again, or run the same release of sash in all processes; "+
					"Overrides names it"))
		}
		t.byName[o.Name] = e
	}
	s.known.Store(t)
	return nil
}

// Find returns the override of a name that has not ended.
func (s *Set[T]) Find(name []byte) (made T, ok bool) {
	e := s.known.Load().byName[string(name)]
	if e == nil || e.Err != nil || !time.Now().Before(e.Until) {
		return made, false
	}
	return e.Made, true
}

// Has reports whether there is an override of a name.
func (s *Set[T]) Has(name string) bool { return s.known.Load().byName[name] != nil }

// InForce calls yield with the overrides that have not ended, those that cannot be read among them.
func (s *Set[T]) InForce(yield func(*Entry[T]) bool) {
	now := time.Now()
	for _, e := range s.known.Load().byName {
		if now.Before(e.Until) && s.Counts(e.Name) && !yield(e) {
			return
		}
	}
}

// pauses returns how many pauses are in force.
func (s *Set[T]) pauses() (n int) {
	for e := range s.InForce {
		if e.Extend {
			n++
		}
	}
	return n
}

// Len returns how many overrides are in force.
func (s *Set[T]) Len() (n int) {
	for e := range s.InForce {
		if e.Err == nil {
			n++
		}
	}
	return n
}
