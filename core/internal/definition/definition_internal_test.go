package definition

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// itself is the definition as a store under test.
func itself(*testing.T) Clocked {
	s := new(Store)
	return Clocked{Store: s, Advance: s.Advance, Now: s.Now}
}

func TestRandomItself(t *testing.T) {
	Random(t, Config{New: itself, Operations: 20_000, Callers: 8})
}

// wrong is the definition with a mistake.
type wrong struct {
	*Store

	take   func(s *Store, takes []store.Take, answers []store.Answer) error
	settle func(s *Store, m store.Settlement)
	merge  func(s *Store, m store.MergeRequest)
	renew  func(s *Store, r store.Renewal)
	log    func(all []store.Entry) []store.Entry
	reset  func(s *Store, key store.Key, limits []*store.Limit, young time.Duration)
}

func (w *wrong) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if w.take != nil {
		return w.take(w.Store, takes, answers)
	}
	return w.Store.Take(ctx, takes, answers)
}

func (w *wrong) Settle(ctx context.Context, m store.Settlement) error {
	if w.settle != nil {
		w.settle(w.Store, m)
		return nil
	}
	return w.Store.Settle(ctx, m)
}

func (w *wrong) Merge(ctx context.Context, m store.MergeRequest) error {
	if w.merge != nil {
		w.merge(w.Store, m)
		return nil
	}
	return w.Store.Merge(ctx, m)
}

func (w *wrong) Renew(ctx context.Context, r store.Renewal) error {
	if w.renew != nil {
		w.renew(w.Store, r)
		return nil
	}
	return w.Store.Renew(ctx, r)
}

func (w *wrong) Log(ctx context.Context, key store.Key, l *store.Limit) ([]store.Entry, error) {
	all, err := w.Store.Log(ctx, key, l)
	if w.log != nil {
		all = w.log(all)
	}
	return all, err
}

func (w *wrong) Reset(ctx context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	if w.reset != nil {
		w.reset(w.Store, key, limits, young)
		return nil
	}
	return w.Store.Reset(ctx, key, limits, young)
}

// under returns a mistaken take: it is decided under limits that f has changed.
func under(f func(t *store.Take)) func(*Store, []store.Take, []store.Answer) error {
	return func(s *Store, takes []store.Take, answers []store.Answer) error {
		for i := range takes {
			l := *takes[i].Limit
			takes[i].Limit = &l
			f(&takes[i])
		}
		return s.Take(context.Background(), takes, answers)
	}
}

// answering returns a mistaken take: f has changed the answers.
func answering(f func(t *store.Take, a *store.Answer)) func(*Store, []store.Take, []store.Answer) error {
	return func(s *Store, takes []store.Take, answers []store.Answer) error {
		err := s.Take(context.Background(), takes, answers)
		for i := range takes {
			f(&takes[i], &answers[i])
		}
		return err
	}
}

// mistakes has stores that are wrong, by what is wrong.
var mistakes = map[string]wrong{
	"one unit too many": {take: under(func(t *store.Take) { t.Limit.Quota++ })},
	"one unit too few":  {take: under(func(t *store.Take) { t.Limit.Quota = max(1, t.Limit.Quota-1) })},
	"an entry one window old counts": {take: under(func(t *store.Take) {
		if t.Limit.Algorithm == store.SlidingLog {
			t.Limit.Window += time.Microsecond
		}
	})},
	"an entry leaves a microsecond early": {take: under(func(t *store.Take) {
		if t.Limit.Algorithm == store.SlidingLog {
			t.Limit.Window -= time.Microsecond
		}
	})},
	"expired entries count": {take: under(func(t *store.Take) {
		if t.Limit.Algorithm == store.SlidingLog {
			t.Limit.Window *= 2
		}
	})},
	"one used too many": {take: answering(func(_ *store.Take, a *store.Answer) {
		if a.Used > 2 {
			a.Used++
		}
	})},
	"one used too few": {take: answering(func(_ *store.Take, a *store.Answer) { a.Used = max(0, a.Used-1) })},
	"a wait that is a microsecond short": {take: answering(func(_ *store.Take, a *store.Answer) {
		a.Retry = max(0, a.Retry-time.Microsecond)
	})},
	"a reset of a denial as if it were recorded": {take: answering(func(t *store.Take, a *store.Answer) {
		if !a.Allowed && a.Reset == 0 {
			a.Reset = t.Limit.Window
		}
	})},
	"each take by itself": {take: func(s *Store, takes []store.Take, answers []store.Answer) error {
		for i := range takes {
			if err := s.Take(context.Background(), takes[i:i+1], answers[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}},
	"a peek records": {take: under(func(t *store.Take) {
		if t.Mode == store.ModePeek {
			t.Mode = store.ModeCharge
		}
	})},
	"denials do not count": {take: under(func(t *store.Take) {
		if t.Mode == store.ModeChargeDenied {
			t.Mode = store.ModeCharge
		}
	})},
	"a grant without its share": {take: under(func(t *store.Take) { t.Share = 0 })},
	"undone twice": {settle: func(s *Store, m store.Settlement) {
		_ = s.Settle(context.Background(), m)
		if g := s.log(&m.Key, m.Limit); m.Cost == 0 && len(g.entries) > 0 {
			m.ID = g.entries[0].id
			_ = s.Settle(context.Background(), m)
		}
	}},
	"not undone": {settle: func(s *Store, m store.Settlement) {
		if m.Cost > 0 {
			_ = s.Settle(context.Background(), m)
		}
	}},
	"not settled if the cost was another": {settle: func(s *Store, m store.Settlement) {
		g := s.log(&m.Key, m.Limit)
		if n := g.find(m.ID); n >= 0 && g.entries[n].units == m.Was {
			_ = s.Settle(context.Background(), m)
		}
	}},
	"settled to a unit too many": {settle: func(s *Store, m store.Settlement) {
		if m.Cost > 1 {
			m.Cost++
		}
		_ = s.Settle(context.Background(), m)
	}},
	"settled to a unit too few": {settle: func(s *Store, m store.Settlement) {
		if m.Cost > 1 {
			m.Cost--
		}
		_ = s.Settle(context.Background(), m)
	}},
	"a trimmed log loses an entry more": {take: func(s *Store, takes []store.Take, answers []store.Answer) error {
		err := s.Take(context.Background(), takes, answers)
		for i := range takes {
			g := s.log(&takes[i].Key, takes[i].Limit)
			if takes[i].Mode == store.ModeChargeDenied && !answers[i].Allowed && len(g.entries) > 1 {
				g.entries = g.entries[1:]
			}
		}
		return err
	}},
	"settled at a later instant": {settle: func(s *Store, m store.Settlement) {
		g := s.log(&m.Key, m.Limit)
		if n := g.find(m.ID); n >= 0 && m.Cost > 0 && m.Limit.Algorithm == store.SlidingLog {
			m.Cost, g.entries[n].at = 1, s.now
		}
		_ = s.Settle(context.Background(), m)
	}},
	"merged twice": {merge: func(s *Store, m store.MergeRequest) {
		for i := range m.Entries {
			m.Entries[i].ID ^= 1 << 63
		}
		_ = s.Merge(context.Background(), m)
	}},
	"merged entries are not settled": {merge: func(s *Store, m store.MergeRequest) {
		for i, e := range m.Entries {
			if s.log(&m.Key, m.Limit).find(e.ID) >= 0 && e.Sent > 0 {
				m.Entries[i].Cost = e.Sent
			}
		}
		_ = s.Merge(context.Background(), m)
	}},
	"renewed permits keep their instant": {renew: func(s *Store, r store.Renewal) {
		g := s.log(&r.Key, r.Limit)
		for i, id := range r.IDs {
			if g.find(id) >= 0 {
				r.IDs[i] = r.IDs[0]
			}
		}
	}},
	"a lost permit is not renewed": {renew: func(s *Store, r store.Renewal) {
		g, held := s.log(&r.Key, r.Limit), []uint64(nil)
		for _, id := range r.IDs {
			if g.find(id) >= 0 {
				held = append(held, id)
			}
		}
		r.IDs = held
		_ = s.Renew(context.Background(), r)
	}},
	"the oldest is not listed": {log: func(all []store.Entry) []store.Entry { return all[min(1, len(all)):] }},
	"young entries are reset": {reset: func(s *Store, key store.Key, limits []*store.Limit, _ time.Duration) {
		_ = s.Reset(context.Background(), key, limits, 0)
	}},
	"one log is not reset": {reset: func(s *Store, key store.Key, limits []*store.Limit, young time.Duration) {
		_ = s.Reset(context.Background(), key, limits[:1], young)
	}},
}

// Each mistake is found, and told in a few steps: in one of several traces, since some need a large quota used up.
func TestRandomFindsMistakes(t *testing.T) {
	for name, mistake := range mistakes {
		t.Run(name, func(t *testing.T) {
			c := Config{Operations: 50_000, New: func(t *testing.T) Clocked {
				c, w := itself(t), mistake
				w.Store = c.Store.(*Store)
				c.Store = &w
				return c
			}}
			for tries := 10; ; tries-- {
				n, failure := c.random(t, rand.Uint64()>>16)
				if failure != "" && strings.Count(failure, "\n") <= 20 {
					t.Logf("found after %d operations: %s", n.operations, failure)
					return
				}
				if tries == 1 {
					t.Fatalf("not found in %d operations, or not told in a few steps: %s", n.operations, failure)
				}
			}
		})
	}
}

// The nanoseconds in which 298 units come back to a bucket of one a year are more than an int64 has.
func TestSettleOfSlowBucket(t *testing.T) {
	limit := Limits(1, longestWindow)[store.TokenBucket]
	take := store.Take{Key: store.NewKey("p", "k"), Limit: limit, Cost: 1, ID: 1}
	s, ctx, answers := new(Store), context.Background(), make([]store.Answer, 1)
	if err := s.Take(ctx, []store.Take{take}, answers); err != nil || !answers[0].Allowed {
		t.Fatalf("%+v, %v", answers[0], err)
	}
	take.Mode = store.ModePeek
	for _, c := range []struct{ cost, used int }{{299, 1}, {0, 0}} {
		if err := s.Settle(ctx, store.Settlement{Key: take.Key, Limit: limit, ID: 1, Cost: c.cost}); err != nil {
			t.Fatal(err)
		}
		if err := s.Take(ctx, []store.Take{take}, answers); err != nil || answers[0].Used != c.used {
			t.Errorf("settled to %d: %d used (%v), want %d", c.cost, answers[0].Used, err, c.used)
		}
	}
}

// A take that is always admitted, as one that is only recorded, leaves a bucket empty, however much it costs.
func TestUnlimitedTakeOfBucket(t *testing.T) {
	limit := *Limits(1, longestWindow)[store.TokenBucket]
	limit.Unlimited = true
	take := store.Take{Key: store.NewKey("p", "k"), Limit: &limit, Cost: 1, ID: 1}
	s, answers := new(Store), make([]store.Answer, 1)
	for i, cost := range []int{2, 1, store.MaxQuota, 1} {
		take.Cost, take.ID = cost, uint64(i+1)
		err := s.Take(context.Background(), []store.Take{take}, answers)
		if a := answers[0]; err != nil || !a.Allowed || a.Used != min(i, 1) || a.Reset != longestWindow {
			t.Errorf("take %d: %+v, %v", i+1, a, err)
		}
	}
}
