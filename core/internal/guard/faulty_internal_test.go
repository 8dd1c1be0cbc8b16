package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

// fault is what becomes of a call to a faultyStore.
type fault int

const (
	answers fault = iota
	refuses       // the call fails and is not executed
	loses         // the call is executed, but its answer is lost
	leaves        // the caller leaves at its deadline; the call is executed and ends after twice the time
	drops         // the caller leaves at its deadline; the call ends with an error after twice the time
	hangs         // the same, after a minute
	waits         // the caller leaves at its deadline; the call is never sent
	partial       // the first of several takes is executed; other calls are not
	oneKey        // the same, and the error concerns one key
	panics        // the call is not executed
)

// faultyStore is a connection to logs that may be shared, on the clock of a testing/synctest bubble. As stores outside
// the process do, it records takes of one ID once, and finds the entry of a settlement or a merge by its cost as well:
// by that which it is to have, by that which the caller says it had, and only of a settlement by a search.
type faultyStore struct {
	*sharedLogs

	fault func() fault  // of the next call
	delay time.Duration // of each call
}

type sharedLogs struct {
	logs *memory.Store

	mu    sync.Mutex
	calls []string // what was asked, such as "take 2"
	wrong []string // settlements whose age is not that of their take
}

func newSharedLogs() *sharedLogs { return &sharedLogs{logs: memory.New(100_000)} }

var (
	errFault  = errors.New("the store is away")
	errOneKey = &store.StoreError{Err: errors.New("not a log"), Class: "type", OneKey: true}
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
	begun := time.Now()
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
	if f == leaves || f == drops || f == hangs || f == waits {
		<-ctx.Done()
		left := &store.LeftError{Err: &store.StoreError{Err: ctx.Err(), Class: "timeout"}}
		go func() {
			if time.Sleep(time.Since(begun)); f == hangs {
				time.Sleep(time.Minute)
			}
			s.mu.Lock()
			if f == leaves {
				execute(f)
			}
			s.mu.Unlock()
			left.End()
		}()
		return left
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
	case loses, partial:
		execute(f)
	case refuses, leaves, drops, hangs, waits:
	}
	return errFault
}

func executed(f fault) bool { return f == answers || f == loses || f == leaves }

func (s *faultyStore) Validate(...*store.Limit) error { return nil }

func (s *faultyStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	for i := range answers {
		if answers[i] != (store.Answer{}) {
			return &store.ConfigError{Option: "Take", Problem: "the answers are not zero"}
		}
	}
	own := slices.Clone(takes)
	for i := range own {
		own[i].Key = own[i].Key.Clone()
	}
	return s.call(ctx, "take "+own[0].Key.Text, func(f fault) {
		switch {
		case executed(f):
			got := s.execute(own)
			if f != leaves {
				copy(answers, got)
			}
		case len(own) > 1 && (f == partial || f == oneKey):
			s.execute(own[:1])
		}
	})
}

// holds reports whether a log has an entry of an ID, with its cost.
func (s *sharedLogs) holds(k *store.Key, l *store.Limit, id uint64) (cost int, ok bool) {
	for _, e := range s.logs.Log(k, l) {
		if e.ID == id {
			return e.Cost, true
		}
	}
	return 0, false
}

// execute executes takes. Logs that have recorded the take already admit it again.
func (s *sharedLogs) execute(takes []store.Take) []store.Answer {
	all := make([]store.Answer, len(takes))
	var rest []store.Take
	for i := range takes {
		t := &takes[i]
		cost, ok := s.holds(&t.Key, t.Limit, t.ID)
		if ok && cost == t.Cost && t.Mode != store.ModePeek && t.Mode != store.ModeAtMost {
			all[i] = store.Answer{Known: true, Allowed: true, Used: cost}
		} else {
			rest = append(rest, *t)
		}
	}
	if len(rest) == 0 {
		return all
	}
	some := make([]store.Answer, len(rest))
	s.logs.Take(rest, some)
	for i := range all {
		if !all[i].Known {
			all[i], some = some[0], some[1:]
		}
	}
	return all
}

func (s *faultyStore) Settle(ctx context.Context, m store.Settlement) error {
	sent := time.Now()
	return s.call(ctx, "settle "+m.Key.Text, func(f fault) {
		if executed(f) {
			s.checkAge(&m, sent)
			s.logs.Settle(&m)
		}
	})
}

// checkAge notes a settlement for which a store would not look at the instant of its take: that may have been recorded
// some time after it was sent. Permits are moved when they are renewed.
func (s *sharedLogs) checkAge(m *store.Settlement, sent time.Time) {
	for _, e := range s.logs.Log(&m.Key, m.Limit) {
		late := e.At.Sub(sent.Add(-m.Age))
		if e.ID == m.ID && !m.Limit.Permits && (late < -ageSlack || late > 2*time.Second) {
			s.wrong = append(s.wrong, fmt.Sprintf("%s: %v", m.Key.Text, late))
		}
	}
}

func (s *faultyStore) Merge(ctx context.Context, m store.MergeRequest) error {
	m.Entries = slices.Clone(m.Entries)
	sent := time.Now()
	return s.call(ctx, "merge "+m.Key.Text, func(f fault) {
		if executed(f) {
			s.logs.Merge(s.merged(&m, time.Since(sent)))
		}
	})
}

// merged returns what a store adds that finds entries by their cost: one that has another cost than the request says
// is not found, and another entry is added.
func (s *sharedLogs) merged(m *store.MergeRequest, late time.Duration) *store.MergeRequest {
	for i := range m.Entries {
		e := &m.Entries[i]
		e.Age += late
		if cost, ok := s.holds(&m.Key, m.Limit, e.ID); ok && cost != e.Cost && cost != e.Sent {
			e.ID ^= 1 << 63
		}
	}
	return m
}

func (s *faultyStore) Renew(ctx context.Context, r store.Renewal) error {
	return s.call(ctx, "renew "+r.Key.Text, func(f fault) {
		if executed(f) {
			s.logs.Renew(&r)
		}
	})
}

func (s *faultyStore) Log(ctx context.Context, k store.Key, l *store.Limit) (e []store.Entry, err error) {
	err = s.call(ctx, "log "+k.Text, func(fault) { e = s.logs.Log(&k, l) })
	return e, err
}

func (s *faultyStore) Reset(ctx context.Context, k store.Key, limits []*store.Limit, young time.Duration) error {
	return s.call(ctx, "reset "+k.Text, func(f fault) {
		if executed(f) {
			s.logs.Reset(&k, limits, young)
		}
	})
}

func (s *faultyStore) Ping(ctx context.Context) error {
	return s.call(ctx, "ping", func(fault) {})
}

// asked returns what was asked since the last call of asked.
func (s *sharedLogs) asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := strings.Join(s.calls, ", ")
	s.calls = nil
	return calls
}
