package store_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// MapStore keeps logs in a map behind a mutex. It has the three methods that every limiter needs.
type MapStore struct {
	mu   sync.Mutex
	logs map[string]*keyLog
}

// keyLog is what one key was admitted, oldest first.
type keyLog struct {
	entries []entry
	keep    time.Duration // the longest Plan.Keep so far
}

type entry struct {
	at      time.Time
	cost    int
	id      uint64
	trimmed bool // some of its units were trimmed
}

func NewMapStore() *MapStore { return &MapStore{logs: make(map[string]*keyLog)} }

// Validate accepts limits that share a log, however large they are.
func (s *MapStore) Validate(plans ...*store.Plan) error { return store.OneLog(plans) }

// Take decides under the lock, so that two takes never get the same last unit.
func (s *MapStore) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	answers[0] = s.take(now, takes[0]) // there are no others: see Validate
	s.sweep(now)
	return nil
}

// take is Take under the lock.
func (s *MapStore) take(now time.Time, t store.Take) store.Answer {
	l := s.logs[t.Key.String()]
	if l == nil {
		l = new(keyLog)
		s.logs[t.Key.String()] = l
	}
	l.keep = max(l.keep, t.Plan.Keep)
	l.expire(now)
	return l.take(now, t)
}

// Reset forgets a log.
func (s *MapStore) Reset(_ context.Context, key store.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logs, key.String())
	return nil
}

// sweep looks at two logs, in a map's random order, and removes those that are empty. So the logs of keys that are no
// longer used are given back without a goroutine.
func (s *MapStore) sweep(now time.Time) {
	looked := 0
	for key, l := range s.logs {
		if l.expire(now); len(l.entries) == 0 {
			delete(s.logs, key)
		}
		if looked++; looked == 2 {
			return
		}
	}
}

// take answers t and records it as its mode says.
func (l *keyLog) take(now time.Time, t store.Take) (a store.Answer) {
	p, asked := t.Plan, t.Cost
	t.Cost, t.Mode = p.Counted(t.Cost, t.Mode) // others for slots
	for i, limit := range p.Limits {
		a.State[i].Used = units(l.window(now, limit.Window))
	}
	p.Judge(&a, t.Cost, t.Mode) // fills in Allowed and Denied
	units := t.Cost
	if t.Mode == store.ModeUpTo {
		if p.Grant(&a, asked); !p.Slots {
			units, t.Cost = a.Granted, 1 // a denial is one of a unit
		}
	}
	a.Shadow = l.wait(now, p.Shadows(), t.Cost)

	switch {
	case t.Mode == store.ModeRecord:
		l.record(now, t)
		l.trim(max(p.Largest(), store.MaxRecorded))
	case t.Mode != store.ModePeek && a.Allowed:
		t.Cost = units
		l.record(now, t)
		if len(p.Deciding()) == 0 {
			l.trim(store.MaxRecorded)
		}
	case t.Mode == store.ModeChargeDenied && !p.NeverFits(t.Cost):
		l.record(now, t)
		l.trim(p.Bound)
	}

	if !a.Allowed {
		a.Retry = l.wait(now, p.Deciding(), t.Cost)
	}
	for i, limit := range p.Limits {
		if w := l.window(now, limit.Window); len(w) > 0 {
			a.State[i].Reset = limit.Window - now.Sub(w[0].at)
		}
	}
	return a
}

// window returns the entries younger than d.
func (l *keyLog) window(now time.Time, d time.Duration) []entry {
	i := 0
	for i < len(l.entries) && now.Sub(l.entries[i].at) >= d {
		i++
	}
	return l.entries[i:]
}

// wait returns how long it takes until all limits have room for cost units. It is 0 if they have it now, and if the
// cost is above a quota.
func (l *keyLog) wait(now time.Time, limits []store.Limit, cost int) (longest time.Duration) {
	for _, limit := range limits {
		if cost > limit.Quota {
			return 0
		}
		w := l.window(now, limit.Window)
		for excess := units(w) + cost - limit.Quota; excess > 0; w = w[1:] {
			excess -= w[0].cost
			longest = max(longest, limit.Window-now.Sub(w[0].at))
		}
	}
	return longest
}

// expire drops the entries that are too old for every plan.
func (l *keyLog) expire(now time.Time) { l.entries = l.window(now, l.keep) }

func (l *keyLog) record(now time.Time, t store.Take) {
	l.entries = append(l.entries, entry{at: now, cost: t.Cost, id: t.ID})
}

// trim removes the oldest units beyond the number to keep.
func (l *keyLog) trim(keep int) {
	for excess := units(l.entries) - keep; excess > 0; {
		oldest := &l.entries[0]
		if oldest.cost > excess {
			oldest.cost, oldest.trimmed = oldest.cost-excess, true
			return
		}
		excess -= oldest.cost
		l.entries = l.entries[1:]
	}
}

func units(entries []entry) (n int) {
	for _, e := range entries {
		n += e.cost
	}
	return n
}

// A whole store, and a limiter on it. For one key it takes time in proportion to the entries of the log.
func Example() {
	limiter, err := core.New(core.PerMinute(2), core.Global(), core.WithStore(NewMapStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		decision, err := limiter.Allow(context.Background(), "customer 7")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(decision.Allowed, decision.Remaining, decision.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1m0s
}
