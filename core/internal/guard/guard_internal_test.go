package guard

import (
	"context"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// What is left of an entry of which a part was trimmed away is replayed once, under a name.
func TestTrimmedEntriesAreReplayed(t *testing.T) {
	j := newJournal(10)
	j.replays = true
	k := new(store.Key)
	*k = store.NewKey("p", "b")
	plan := planOf(9, time.Minute)
	take := func(id uint64, cost int) {
		j.take(&store.Take{Key: *k, Plan: plan, Cost: cost, ID: id, Mode: store.ModeChargeDenied}, new(store.Answer), fateUnsent)
	}
	take(1, 4)
	take(2, 4)
	take(3, 4) // of the first one unit is left
	b, _, _ := j.begin(k)
	recorded := func() part { return j.part(k, b, 500) }
	first, again := recorded(), recorded()
	if len(first.entries) != 3 || first.entries[0].cost != 1 || first.entries[0].id == 0 || again.entries[0].id != first.entries[0].id {
		t.Errorf("%v, then %v", first.entries, again.entries)
	}
	take(4, 1) // nothing is left of that, and when the rest is in the store, three units of the second
	j.merged(b, first)
	take(5, 1)
	for _, e := range recorded().entries {
		if e.id == 0 || e.id == 2 && e.cost != 3 {
			t.Errorf("%v are replayed again", recorded().entries)
		}
	}
	j.reset(*k)
	take(11, 4)
	whole := recorded()
	take(12, 4)
	j.merged(b, whole)
	take(13, 4) // of the one that was replayed whole a unit is left
	if p := recorded(); len(p.entries) != 2 || p.entries[0].id != 12 {
		t.Errorf("%v are replayed, want 12 and 13", p.entries)
	}
}

type panicky struct{ store.Store }

func (panicky) Take(context.Context, store.Take) (store.Answer, error) {
	panic("a store's own mistake")
}

// A store that panics is left alone after a while, as one that fails.
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
			r.Take(t.Context(), &store.Take{Key: store.NewKey("p", "b"), Plan: plan, Cost: 1}, new(store.Answer))
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

func (s scripted) Take(_ context.Context, t store.Take) (store.Answer, error) {
	return store.Answer{Allowed: true}, s.take(t.Cost)
}

// A success that began before the breaker opened says nothing of the store since: the breaker is still asked.
func TestLateSuccessCalmsNobody(t *testing.T) {
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
		from, _ := r.Take(t.Context(), &store.Take{Key: store.NewKey("p", "b"), Plan: plan, Cost: cost}, new(store.Answer))
		return from == FromLocal
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
		t.Fatalf("the late one failed, or the breaker is %v", r.breaker.state())
	}
	if !ask(1) { // or this would wait for its turn to be asked
		t.Error("the store was asked though the breaker is open")
	}
}
