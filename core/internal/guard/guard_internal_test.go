package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// full is what stores can do that records are replayed to.
var full = &remote{settler: constant{}, merger: constant{}}

// The rest of an entry that was trimmed is replayed once, with an ID.
func TestTrimmedEntriesAreReplayed(t *testing.T) {
	j := newRecord(10, full)
	k := new(store.Key)
	*k = store.NewKey("p", "b")
	plan := planOf(9, time.Minute)
	take := func(id uint64, cost int) {
		t := &store.Take{Key: *k, Plan: plan, Cost: cost, ID: id, Mode: store.ModeChargeDenied}
		j.take(requestOf(t, new(store.Answer)), new([store.MaxLimits]bool), unsent)
	}
	take(1, 4)
	take(2, 4)
	take(3, 4) // one unit of the first remains
	b, _ := j.begin(k)
	recorded := func() part { return j.next(b) }
	first, again := recorded(), recorded()
	oldest := first.merged[0]
	if len(first.merged) != 3 || oldest.cost != 1 || oldest.id == 0 || again.merged[0].id != oldest.id {
		t.Errorf("%v, then %v", first.merged, again.merged)
	}
	take(4, 1) // nothing remains of the first, and after the replay of the rest three units of the second
	j.markMerged(b)
	take(5, 1)
	for _, e := range recorded().merged {
		if e.id == 0 || e.id == 2 && e.cost != 3 {
			t.Errorf("%v are replayed again", recorded().merged)
		}
	}
	j.reset(k)
	take(11, 4)
	recorded()
	take(12, 4)
	j.markMerged(b)
	take(13, 4) // one unit remains of 11, which was replayed whole
	if p := recorded(); len(p.merged) != 2 || p.merged[0].id != 12 {
		t.Errorf("%v are replayed, want 12 and 13", p.merged)
	}
}

// A part is bounded by its entries, since an entry of any cost is one to the store.
func TestPartsOfABacklog(t *testing.T) {
	j := newRecord(10, full)
	key := store.NewKey("p", "parts")
	plan := planOf(10_000_000, time.Minute)
	for id := range uint64(maxPart + 2) {
		take := &store.Take{Key: key, Plan: plan, Cost: 5000, ID: id + 1, Mode: store.ModeCharge}
		j.take(requestOf(take, new(store.Answer)), new([store.MaxLimits]bool), unsent)
	}
	b, _ := j.begin(&key)
	for _, want := range []int{maxPart, 2, 0} {
		p := j.next(b)
		if len(p.merged) != want {
			t.Errorf("a part of %d entries, want %d", len(p.merged), want)
		}
		j.markMerged(b)
	}
}

type panicky struct{ store.Store }

func (panicky) Take(context.Context, []store.Take, []store.Answer) error {
	panic("a bug of the store")
}

// A panic of the store counts as a failure, so that the breaker opens.
func TestPanicsAreFailures(t *testing.T) {
	r := New(Config{Store: panicky{}, Policy: "p", Failure: Open, Timeout: time.Second})
	plan := planOf(1, time.Minute)
	panics := 0
	for range 20 {
		func() {
			defer func() {
				if recover() != nil {
					panics++
				}
			}()
			r.takeOne(t.Context(), &store.Take{Key: store.NewKey("p", "b"), Plan: plan, Cost: 1}, new(store.Answer))
		}()
	}
	if panics != failuresToOpen || r.breaker.state() != open {
		t.Errorf("%d panics of 20, and the breaker is %v", panics, r.breaker.state())
	}
}

type scripted struct {
	store.Store

	take func(cost int) error
}

func (s scripted) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	answers[0].Allowed = true
	return s.take(takes[0].Cost)
}

// A success of a call that began before the breaker opened does not let later calls bypass the breaker.
func TestLateSuccessAllowsNoBypass(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	st := scripted{nil, func(cost int) error {
		if cost == 2 {
			return errPanicked
		}
		asked <- struct{}{}
		<-answer
		return nil
	}}
	r := New(Config{Store: st, Policy: "p", Failure: Open, Timeout: time.Minute})
	plan := planOf(9, time.Minute)
	ask := func(cost int) bool {
		take := &store.Take{Key: store.NewKey("p", "b"), Plan: plan, Cost: cost}
		from, _ := r.takeOne(t.Context(), take, new(store.Answer))
		return from == event.Local
	}
	for range failuresToOpen - 1 {
		ask(2)
	}
	late := make(chan bool)
	go func() { late <- ask(1) }()
	<-asked
	ask(2)
	close(answer)
	if <-late || r.breaker.state() != open {
		t.Fatalf("the late call failed, or the breaker is %v", r.breaker.state())
	}
	if !ask(1) { // a call to the store would block
		t.Error("the store was called though the breaker is open")
	}
}

// A call that is repeated ends before the next one begins: a take that the store executed after it was told to remove
// it would count for good. A store that does not end calls in time holds nobody up for long.
func TestRepeatedCallsEnd(t *testing.T) {
	const timeout = 2 * time.Second
	for _, test := range []struct {
		ends time.Duration // of the first call, since its context ended
		wait time.Duration // for it
	}{{timeout / 2, timeout / 2}, {time.Hour, timeout}} {
		synctest.Test(t, func(t *testing.T) {
			g := New(Config{Store: constant{}, Policy: "p", Failure: Local, Timeout: timeout, LocalKeys: 10})
			var calls atomic.Int32
			var ended atomic.Bool
			begun := time.Now()
			err := g.attempt(t.Context(), func(ctx context.Context) error {
				if calls.Add(1) > 1 {
					return nil
				}
				<-ctx.Done()
				time.Sleep(test.ends)
				ended.Store(true)
				return ctx.Err()
			})
			if took := time.Since(begun); err != nil || calls.Load() != 2 || took != timeout+test.wait {
				t.Errorf("%d calls in %v: %v", calls.Load(), took, err)
			}
			if ended.Load() != (test.ends < timeout) {
				t.Errorf("the first call has ended: %t", ended.Load())
			}
			time.Sleep(test.ends) // the bubble must have no goroutines left
		})
	}
}

// The error of Close is the one with which the store has refused the replay, also if that concerns one key.
func TestCloseTellsWhyNothingWasReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLogs().connect()
		g := New(Config{Store: s, Policy: "p", Failure: Local, Timeout: time.Second, LocalKeys: 10})
		s.down(oneKey)
		take := &store.Take{Key: store.NewKey("p", "k"), Plan: planOf(9, time.Minute), Cost: 1}
		if from, err := g.takeOne(t.Context(), take, new(store.Answer)); from != event.Local {
			t.Fatal(from, err)
		}
		if err := g.Close(); !errors.Is(err, errOneKey) {
			t.Errorf("Close: %v, want %v", err, errOneKey)
		}
		time.Sleep(2 * time.Minute) // the bubble must have no timers left
	})
}
