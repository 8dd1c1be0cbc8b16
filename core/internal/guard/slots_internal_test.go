package guard

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// settling counts the settlements that are under way at the same time.
type settling struct {
	*faultyStore

	mu        sync.Mutex
	now, most int
}

func (s *settling) Settle(ctx context.Context, t store.Settlement) error {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	return s.faultyStore.Settle(ctx, t)
}

// Slots that the store may have recorded for nobody are given back one after the other, also when the store answers
// again only later; peeks have none, and those whose lease has ended are left.
func TestUnclaimedSlots(t *testing.T) {
	for _, failure := range []Failure{Open, Closed} {
		synctest.Test(t, func(t *testing.T) {
			logs := newSharedLogs()
			s := &settling{faultyStore: logs.connect()}
			g := New(Config{Store: s, Policy: "p", Failure: failure, Timeout: 100 * time.Millisecond, LocalKeys: 10})
			defer g.Close()
			plan := store.NewPlan(store.Plan{
				Limits: []store.Limit{{Quota: 5000, Window: time.Minute}}, Slots: true,
			})
			key := store.NewKey("p", "k")
			s.down(loses)
			var all sync.WaitGroup
			for n := range 2000 {
				all.Go(func() {
					mode := []store.Mode{store.ModeCharge, store.ModeChargeDenied, store.ModeUpTo, store.ModePeek}[n%4]
					g.takeOne(t.Context(), &store.Take{Key: key, Plan: plan, Cost: 1, Mode: mode}, new(store.Answer))
				})
			}
			all.Wait()
			if kept := g.record.entries.Load(); kept == 0 || kept > 1500 {
				t.Errorf("%d slots are remembered", kept)
			}
			used := func(want bool) {
				t.Helper()
				a := make([]store.Answer, 1)
				logs.logs.Take([]store.Take{{Key: key, Plan: plan, Cost: 1, Mode: store.ModePeek}}, a)
				if a[0].State[0].Used > 0 != want {
					t.Errorf("%d slots are taken", a[0].State[0].Used)
				}
			}
			used(true)
			s.down(refuses)
			time.Sleep(20 * time.Second)
			used(true)
			s.up(time.Millisecond)
			time.Sleep(5 * time.Second)
			used(false)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.most != 1 {
				t.Errorf("%d slots are given back at the same time", s.most)
			}
		})
	}
}
