package core_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sashlimit/sash/core"
)

// policyKeeper is an observer that keeps something for each policy, as those of metrics do.
type policyKeeper struct {
	mu   sync.Mutex
	kept map[string]*keptPolicy
	late int
}

type keptPolicy struct {
	by       *policyKeeper
	name     string
	limiters atomic.Int64
	events   int
}

func (p *keptPolicy) Opened() { p.limiters.Add(1) }

func (p *keptPolicy) Closed() {
	if p.limiters.Add(-1) == 0 {
		p.by.mu.Lock()
		defer p.by.mu.Unlock()
		if p.by.kept[p.name] == p {
			delete(p.by.kept, p.name)
		}
	}
}

func (k *policyKeeper) observe(_ context.Context, e core.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil {
		k.kept = make(map[string]*keptPolicy)
	}
	p := k.kept[e.Policy]
	if p == nil {
		p = &keptPolicy{by: k, name: e.Policy}
	}
	if !e.Keep(p) {
		k.late++
		return
	}
	k.kept[e.Policy] = p
	p.events++
}

// events returns how many events of policy a were kept.
func (k *policyKeeper) events() int {
	if p := k.kept["a"]; p != nil {
		return p.events
	}
	return 0
}

func (k *policyKeeper) open(t *testing.T, name string) *core.Limiter {
	t.Helper()
	l, err := core.New(core.PerHour(1), core.Global(), core.WithName(name), core.WithObserver(k.observe))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func allowN(t *testing.T, l *core.Limiter, n int) {
	t.Helper()
	for range n {
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
}

func closeAll(t *testing.T, limiters ...*core.Limiter) {
	t.Helper()
	for _, l := range limiters {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// An observer learns when the last limiter of a name that it observes is closed, and which events are late. A new
// limiter of the name begins anew.
func TestKeep(t *testing.T) {
	var k, other policyKeeper
	a, b, elsewhere := k.open(t, "a"), k.open(t, "a"), other.open(t, "a")
	allowN(t, a, 2)
	allowN(t, b, 1)
	allowN(t, elsewhere, 1)
	closeAll(t, a, a)
	allowN(t, a, 1)
	allowN(t, b, 1)
	if k.events() != 4 || k.late != 1 || !a.Stats().Closed || b.Stats().Closed {
		t.Errorf("%d events while a limiter of that name is open, %d late", k.events(), k.late)
	}
	closeAll(t, b)
	allowN(t, a, 1)
	allowN(t, b, 1)
	if len(k.kept) > 0 || k.late != 3 || other.events() != 1 {
		t.Errorf("kept %v, %d late, and %d of another observer", k.kept, k.late, other.events())
	}
	again := k.open(t, "a")
	allowN(t, again, 1)
	allowN(t, b, 1)
	if k.events() != 1 || k.late != 4 {
		t.Errorf("%d events, %d late", k.events(), k.late)
	}
	var byHand core.Event
	if p := new(keptPolicy); !byHand.Keep(p) || p.limiters.Load() != 0 {
		t.Error("an event that no limiter has made is not late, and opens nothing")
	}
}

// Whatever decides while limiters are opened and closed, nothing is kept in the end.
func TestKeepWhileDeciding(t *testing.T) {
	var k policyKeeper
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 200 {
				l := k.open(t, fmt.Sprint((g+i)%3))
				var deciding sync.WaitGroup
				for range 2 {
					deciding.Go(func() { allowN(t, l, 3) })
				}
				closeAll(t, l)
				deciding.Wait()
			}
		})
	}
	all.Wait()
	if len(k.kept) > 0 {
		t.Errorf("kept %v", k.kept)
	}
}
