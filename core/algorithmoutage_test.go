package core_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

// remote is a store on a bubble's clock that may not answer. It notes what it was told about which log.
type remote struct {
	coretest.FakeStore

	mu    sync.Mutex
	at    time.Time
	cut   bool          // calls fail
	loses bool          // and are executed all the same
	delay time.Duration // of each answer, after the call was executed
	calls []string
}

func newRemote() *remote {
	s := &remote{at: time.Now()}
	s.Advance(time.Duration(s.at.UnixNano()))
	return s
}

func (s *remote) set(cut, loses bool, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut, s.loses, s.delay = cut, loses, delay
}

// call executes a call as the state of the store says.
func (s *remote) call(ctx context.Context, what string, key *store.Key, execute func() error) error {
	s.mu.Lock()
	now := time.Now()
	s.Advance(now.Sub(s.at))
	s.at = now
	s.calls = append(s.calls, what+" "+key.Namespace.Policy())
	cut, loses, delay := s.cut, s.loses, s.delay
	s.mu.Unlock()
	if cut && !loses {
		return errDown
	}
	err := execute()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if cut {
		return errDown
	}
	return err
}

func (s *remote) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	name := "take"
	if len(takes) > 1 {
		name = "take all"
	}
	return s.call(ctx, name, &takes[0].Key, func() error { return s.FakeStore.Take(ctx, takes, answers) })
}

func (s *remote) Settle(ctx context.Context, t store.Settlement) error {
	return s.call(ctx, "settle", &t.Key, func() error { return s.FakeStore.Settle(ctx, t) })
}

func (s *remote) Merge(ctx context.Context, m store.MergeRequest) error {
	return s.call(ctx, "merge", &m.Key, func() error { return s.FakeStore.Merge(ctx, m) })
}

func (s *remote) Log(ctx context.Context, key store.Key, limit *store.Limit) (e []core.Entry, err error) {
	err = s.call(ctx, "log", &key, func() (err error) { e, err = s.FakeStore.Log(ctx, key, limit); return err })
	return e, err
}

// told returns the calls so far that begin with one of the words.
func (s *remote) told(words ...string) (calls []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(c, w) }) {
			calls = append(calls, c)
		}
	}
	return calls
}

// algorithmLimits returns a limit of each algorithm that admits quota units at once and in a window.
func algorithmLimits(quota int, window time.Duration) core.Limits {
	l := core.Limit{Quota: quota, Window: window}
	return core.Limits{l.With(core.FixedWindow), l.With(core.SlidingCounter), core.TokenBucket(l, quota)}
}

// mustAllow asks for a unit, and checks what is answered.
func mustAllow(t *testing.T, l *core.Limiter, allowed, degraded bool) core.Decision {
	t.Helper()
	d, err := l.Allow(t.Context(), "k")
	if err != nil || d.Allowed != allowed || d.Degraded != degraded {
		t.Fatalf("%+v, %v; want allowed %v, degraded %v", d, err, allowed, degraded)
	}
	return d
}

// In an outage, this process limits by the same algorithm. Afterwards the store is told nothing, whether it has
// executed what was lost or not, and the limiter has nothing to wait for.
func TestOutageOfAlgorithms(t *testing.T) {
	for _, limit := range algorithmLimits(3, time.Hour) {
		for _, lost := range []bool{false, true} {
			inBubble(t, fmt.Sprint(limit, lost), func(t *testing.T) {
				s := newRemote()
				l := newLimiter(t, limit, core.WithStore(s))
				s.set(true, lost, 0)
				for n := range 8 {
					mustAllow(t, l, n < 3, true)
				}
				s.set(false, false, 0)
				began := time.Now()
				if err := l.Close(); err != nil || time.Since(began) != 0 {
					t.Errorf("Close: %v after %v", err, time.Since(began))
				}
				time.Sleep(2 * time.Second) // until the breaker admits a probe
				for n := range 4 {          // the store has counted what it executed
					mustAllow(t, l, !lost && n < 3, false)
				}
				if told := s.told("settle", "merge"); len(told) > 0 {
					t.Errorf("the store was told %q", told)
				}
			})
		}
	}
}

// Of a request over a log and numbers, what the log was charged in an outage is replayed. The next request waits for
// that, since the store could not take the numbers back, and is counted once.
func TestOutageOfAlgorithmsBesideLogs(t *testing.T) {
	for _, limit := range algorithmLimits(5, time.Hour) {
		for _, failures := range []int{1, 8} { // with 8 the breaker is open
			inBubble(t, fmt.Sprint(limit, failures), func(t *testing.T) {
				s := newRemote()
				limit.Name = "numbers"
				l := newLimiter(t, core.Limits{{Name: "log", Quota: 3, Window: time.Hour}, limit}, core.WithStore(s),
					core.WithName("mixed"))
				defer l.Close()
				s.set(true, false, 0)
				for n := range failures {
					mustAllow(t, l, n < 3, true)
				}
				s.set(false, false, 0)
				if failures > 1 {
					time.Sleep(5 * time.Second)
					synctest.Wait()
				}
				admitted := min(failures, 3)
				d := mustAllow(t, l, admitted < 3, false)
				if d.Used != admitted {
					t.Errorf("%+v, want the %d that were admitted in the outage", d, admitted)
				}
				synctest.Wait()
				told := slices.Compact(s.told("settle", "merge"))
				if len(told) != 1 || told[0] != "merge mixed" {
					t.Errorf("the store was told %q, want merges into the log alone", told)
				}
				alone := newLimiter(t, limit, core.WithStore(s), core.WithName("mixed"))
				numbers, err := alone.Peek(t.Context(), "k")
				if want := map[bool]int{true: 1}[d.Allowed]; err != nil || numbers.Used != want {
					t.Errorf("%+v, %v; want %d used", numbers, err, want)
				}
			})
		}
	}
}

// A denial is remembered until the next unit comes back, and in an outage for its whole wait.
func TestDenyCacheOfAlgorithms(t *testing.T) {
	for _, limit := range algorithmLimits(2, time.Minute) {
		inBubble(t, fmt.Sprint(limit), func(t *testing.T) {
			time.Sleep(time.Second) // into a period
			s := newRemote()
			l := newLimiter(t, limit, core.WithStore(s))
			defer l.Close()
			mustAllow(t, l, true, false)
			mustAllow(t, l, true, false)
			first := mustAllow(t, l, false, false)
			asked := s.Takes()
			time.Sleep(time.Second / 2)
			d := mustAllow(t, l, false, false)
			if s.Takes() != asked || d.RetryAfter != first.RetryAfter-time.Second/2 {
				t.Errorf("%+v after %+v, want it from memory", d, first)
			}
			s.set(true, false, 0)
			time.Sleep(d.RetryAfter - time.Microsecond)
			if d := mustAllow(t, l, false, true); d.RetryAfter != time.Microsecond {
				t.Errorf("in an outage: %+v, want a wait of 1us", d)
			}
			time.Sleep(time.Microsecond)
			mustAllow(t, l, true, true)
		})
	}
}
