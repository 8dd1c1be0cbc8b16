package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

const lateTimeout = 100 * time.Millisecond

// missing is a store whose first answers this process misses: a call ends so long after its deadline.
type missing struct {
	store.Store

	misses int
	late   time.Duration
	ids    []uint64
}

func (m *missing) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if m.ids = append(m.ids, takes[0].ID); len(m.ids) > m.misses {
		answers[0].Allowed = true
		return nil
	}
	<-ctx.Done()
	time.Sleep(m.late)
	return &store.StoreError{Err: ctx.Err(), Class: "timeout"}
}

// What comes back long after its deadline is asked once more, by the same ID, and does not count as a failure. What
// comes back at the deadline, or has no ID, is not.
func TestMissedAnswerIsAskedForAgain(t *testing.T) {
	log := planOf(9, time.Minute)
	fixed := store.NewPlan(store.Plan{Limits: []store.Limit{
		{Quota: 9, Window: time.Minute, Algorithm: store.FixedWindow},
	}})
	for _, c := range []struct {
		name     string
		plan     *store.Plan
		misses   int
		late     time.Duration
		asked    int
		degraded bool
		class    string
	}{
		{"missed once", log, 1, lateTimeout, 2, false, ""},
		{"missed twice", log, 2, lateTimeout, 2, true, classProcess},
		{"a counter", fixed, 1, lateTimeout, 1, true, classProcess},
		{"no answer in time", log, 1, 0, 1, true, "timeout"},
	} {
		for _, failure := range []Failure{Local, Open, Closed} {
			t.Run(fmt.Sprint(c.name, " ", failure), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := &missing{misses: c.misses, late: c.late}
					g := New(Config{Store: m, Policy: "p", Failure: failure, Timeout: lateTimeout, LocalKeys: 10})
					defer g.Close()
					take := &store.Take{Key: store.NewKey("p", "k"), Plan: c.plan, Cost: 1}
					from, err := g.takeOne(t.Context(), take, new(store.Answer))
					var failed *store.StoreError
					class := ""
					if errors.As(err, &failed) {
						class = failed.Class
					}
					if (err != nil) != c.degraded || c.degraded && failure != Closed && from != event.Local ||
						class != c.class {
						t.Errorf("%v from %v, class %q; want %q", err, from, class, c.class)
					}
					if len(m.ids) != c.asked || len(slices.Compact(m.ids)) != 1 {
						t.Errorf("asked for the IDs %v, want %d times the same", m.ids, c.asked)
					}
					if failures := g.Stats().Failures; (failures > 0) != c.degraded {
						t.Errorf("%d failures", failures)
					}
				})
			})
		}
	}
}

// A process that cannot run does not hide that a store hangs: a call that has failed twice opens the breaker.
func TestHangingStoreOfABusyProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &missing{misses: 1 << 20, late: lateTimeout}
		g := New(Config{Store: m, Policy: "p", Failure: Open, Timeout: lateTimeout})
		var lines string
		begun := time.Now()
		for range failuresToOpen {
			lines += logged(func() {
				take := &store.Take{Key: store.NewKey("p", "k"), Plan: planOf(9, time.Minute), Cost: 1}
				g.takeOne(t.Context(), take, new(store.Answer))
			})
		}
		const most = 2 * 2 * lateTimeout // the first take is repeated, and each call takes twice the timeout
		if took := time.Since(begun); g.breaker.state() != open || took > most || len(m.ids) != 2 {
			t.Errorf("the breaker is %v after %v and %d calls", g.breaker.state(), took, len(m.ids))
		}
		if !strings.Contains(lines, "this process could not run") || strings.Contains(lines, "does not answer") {
			t.Errorf("logged %q", lines)
		}
	})
}

// halfMissing is a store with a node that hangs, and another one that answers.
type halfMissing struct{ missing }

func (m *halfMissing) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if takes[0].Key.Text == "hangs" {
		return m.missing.Take(ctx, takes, answers)
	}
	answers[0].Allowed = true
	return nil
}

// A node that hangs does not open the breaker in such a process while others answer.
func TestHangingNodeOfABusyProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &halfMissing{missing{misses: 1 << 20, late: lateTimeout}}
		g := New(Config{Store: m, Policy: "p", Failure: Open, Timeout: lateTimeout})
		take := func(key string) {
			take := &store.Take{Key: store.NewKey("p", key), Plan: planOf(9, time.Minute), Cost: 1}
			g.takeOne(t.Context(), take, new(store.Answer))
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range failuresToOpen {
				take("hangs")
			}
		}()
		for {
			select {
			case <-ended:
				if n := g.Stats().Outages; n > 0 || len(m.ids) != 2*failuresToOpen {
					t.Errorf("%d outages, %d calls of the node that hangs", n, len(m.ids))
				}
				return
			case <-time.After(lateTimeout / 10):
				take("k")
			}
		}
	})
}

// A stall is logged once in ten seconds, and counted.
func TestStallsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &missing{misses: 3}
		g := New(Config{Store: m, Policy: "p", Failure: Open, Timeout: lateTimeout})
		g.Round = func() { time.Sleep(time.Second) }
		lines := logged(func() {
			for range 3 {
				take := &store.Take{Key: store.NewKey("p", "k"), Plan: planOf(9, time.Minute), Cost: 1}
				g.takeOne(t.Context(), take, new(store.Answer))
			}
		})
		if n := strings.Count(lines, `level=WARN msg="sash: this process could not run for longer`); n < 1 || n > 2 {
			t.Errorf("%d lines about stalls: %s", n, lines)
		}
		if stalled := g.Stats().Stalled; stalled < time.Second {
			t.Errorf("%v stalled", stalled)
		}
		time.Sleep(time.Minute) // the bubble must have no timers left
	})
}

// refusing refuses each take after a while, and counts the calls that make connections.
type refusing struct {
	*missing

	err   error
	wait  time.Duration
	takes int
	logs  atomic.Int32
}

func (r *refusing) Take(ctx context.Context, _ []store.Take, _ []store.Answer) error {
	r.takes++
	select {
	case <-time.After(r.wait):
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *refusing) Log(context.Context, store.Key, time.Duration) ([]store.Entry, error) {
	r.logs.Add(1)
	return nil, nil
}

// Only what has timed out may lack a connection: a store that refuses slowly is asked as often as one that does so at
// once.
func TestSlowRefusalsMakeNoConnections(t *testing.T) {
	for _, c := range []struct {
		wait time.Duration
		logs bool
	}{{lateTimeout * 9 / 10, false}, {time.Hour, true}} {
		synctest.Test(t, func(t *testing.T) {
			refused := &store.StoreError{Err: errors.New("NOPERM"), Class: "auth"}
			r := &refusing{missing: new(missing), err: refused, wait: c.wait}
			g := New(Config{Store: r, Policy: "p", Failure: Open, Timeout: lateTimeout})
			for range failuresToOpen {
				take := &store.Take{Key: store.NewKey("p", "k"), Plan: planOf(9, time.Minute), Cost: 1}
				g.takeOne(t.Context(), take, new(store.Answer))
				synctest.Wait()
			}
			if (r.logs.Load() > 0) != c.logs || r.takes != failuresToOpen {
				t.Errorf("refused after %v: %d takes, %d calls for connections", c.wait, r.takes, r.logs.Load())
			}
			g.Close()
		})
	}
}
