package guard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

// fault is what becomes of a call to a faultyStore.
type fault int

const (
	answers fault = iota
	refuses       // the call fails and is not executed
	loses         // the call is executed, but its answer is lost
	late          // the call is executed when its caller waits no longer
	partial       // the first of several takes is executed; other calls are not
	oneKey        // the same, and the error concerns one key
	panics        // the call is not executed
)

func (f fault) String() string {
	return [...]string{"answers", "refuses", "loses", "late", "partial", "oneKey", "panics"}[f]
}

// faultyStore is a connection to logs that may be shared, on the clock of a testing/synctest bubble. As stores outside
// the process do, it records takes of one ID once.
type faultyStore struct {
	*sharedLogs

	fault func() fault  // of the next call
	delay time.Duration // of each call
}

type sharedLogs struct {
	logs *memory.Store

	mu      sync.Mutex
	calls   []string                  // what was asked, such as "take all"
	answers map[uint64][]store.Answer // of takes that were executed, by ID
	parts   map[uint64]bool           // the IDs of takes that were executed in part
}

func newSharedLogs() *sharedLogs {
	return &sharedLogs{
		logs: memory.New(1000), answers: make(map[uint64][]store.Answer), parts: make(map[uint64]bool),
	}
}

var (
	errFault  = errors.New("the store is away")
	errOneKey = &store.StoreError{Err: errors.New("not a log"), OneKey: true}
)

// connect returns a connection that answers at once.
func (s *sharedLogs) connect() *faultyStore {
	return &faultyStore{sharedLogs: s, fault: func() fault { return answers }}
}

// faults makes fault choose what becomes of each call. It must not take long.
func (s *faultyStore) faults(fault func() fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// down makes all calls have a fault.
func (s *faultyStore) down(f fault) { s.faults(func() fault { return f }) }

// up makes all calls be answered after delay.
func (s *faultyStore) up(delay time.Duration) {
	s.down(answers)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = delay
}

func (s *faultyStore) call(ctx context.Context, name string, execute func(f fault)) error {
	s.mu.Lock()
	s.calls = append(s.calls, name)
	f, delay := s.fault(), s.delay
	s.mu.Unlock()
	// A select on a timer of no duration in a bubble crashes the race detector: golang/go#78156.
	if delay > 0 && (f == answers || f == loses) {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f == late {
		<-ctx.Done()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f {
	case answers:
		execute(f)
		return nil
	case panics:
		panic(errFault)
	case oneKey:
		execute(f)
		return errOneKey
	case refuses, loses, late, partial:
		execute(f)
	}
	return errFault
}

func executed(f fault) bool { return f == answers || f == loses || f == late }

func (s *faultyStore) Validate(...*store.Plan) error { return nil }

func (s *faultyStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	for i := range answers {
		if answers[i] != (store.Answer{}) {
			return &store.ConfigError{Option: "Take", Problem: "the answers are not zero"}
		}
	}
	name := "take"
	if len(takes) > 1 {
		name = "take all"
	}
	return s.call(ctx, name, func(f fault) {
		switch {
		case executed(f):
			copy(answers, s.execute(takes))
		case len(takes) > 1 && (f == partial || f == oneKey):
			s.executeFirst(takes)
		}
	})
}

func (s *sharedLogs) execute(takes []store.Take) []store.Answer {
	id := takes[0].ID
	if earlier := s.answers[id]; earlier != nil {
		return earlier
	}
	if s.parts[id] {
		s.logs.Settle(&store.Settlement{Key: takes[0].Key, ID: id})
	}
	answers := make([]store.Answer, len(takes))
	s.logs.Take(slices.Clone(takes), answers) // which changes the IDs of takes that it does not record
	if takes[0].Mode != store.ModePeek && !slices.ContainsFunc(answers, denied) {
		s.answers[id] = answers
	}
	return answers
}

func denied(a store.Answer) bool { return !a.Allowed }

func (s *sharedLogs) executeFirst(takes []store.Take) {
	if t := takes[0]; s.answers[t.ID] == nil && !s.parts[t.ID] {
		s.logs.Take([]store.Take{t}, make([]store.Answer, 1))
		s.parts[takes[0].ID] = true
	}
}

func (s *faultyStore) Settle(ctx context.Context, t store.Settlement) error {
	return s.call(ctx, "settle", func(f fault) {
		if executed(f) {
			s.logs.Settle(&t)
		}
	})
}

func (s *faultyStore) Merge(ctx context.Context, m store.MergeRequest) error {
	return s.call(ctx, "merge", func(f fault) {
		if executed(f) {
			s.logs.Merge(&m)
		}
	})
}

func (s *faultyStore) Log(ctx context.Context, key store.Key, window time.Duration) (e []store.Entry, err error) {
	err = s.call(ctx, "log", func(fault) { e = s.logs.Log(&key, window) })
	return e, err
}

func (s *faultyStore) Reset(ctx context.Context, key store.Key) error {
	return s.call(ctx, "reset", func(f fault) {
		if executed(f) {
			s.logs.Reset(&key)
		}
	})
}

// takeOne is Take for a request that draws from one log.
func (g *Guard) takeOne(ctx context.Context, t *store.Take, a *store.Answer) (from event.Source, err error) {
	takes, answers := [1]store.Take{*t}, [1]store.Answer{*a}
	from, err = g.Take(ctx, takes[:], answers[:])
	*t, *a = takes[0], answers[0]
	return from, err
}

func requestOf(t *store.Take, a *store.Answer) *request {
	return &request{takes: unsafe.Slice(t, 1), answers: unsafe.Slice(a, 1)}
}

// asked returns what was asked since the last call of asked.
func (s *sharedLogs) asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := strings.Join(s.calls, ", ")
	s.calls = nil
	return calls
}
