package store_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// FullStore is the MapStore of the other example with what is optional: several logs at once, for limits with keys of
// their own, Settle for refunds, Log for Limiter.Log, Merge (with Settle) for core.FailLocal, and Renew (with Settle)
// for core.InFlight. Its overrides are in another store.
type FullStore struct {
	*MapStore
	store.Overrider
}

var _ store.Full = FullStore{} // it has all methods

// Validate accepts several logs, but no algorithm beside the sliding log.
func (s FullStore) Validate(plans ...*store.Plan) error { return store.SlidingLogs(plans) }

// Take decides about the takes under one lock. It peeks at all logs first, to see whether all have room.
func (s FullStore) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, mode, room, least := time.Now(), takes[0].Mode, true, store.MostGranted(takes)
	for i, t := range takes {
		t.Mode = store.ModePeek
		if mode == store.ModeUpTo {
			t.Cost = 1
		}
		answers[i] = s.take(now, t)
		room = room && answers[i].Allowed
		if t.Plan.Slots { // a request takes one
			continue
		}
		for n, limit := range t.Plan.Deciding() {
			least = min(least, limit.Quota-answers[i].State[n].Used)
		}
	}
	for i, t := range takes {
		if mode == store.ModeUpTo {
			t.Cost = least
		}
		record := room || mode == store.ModeRecord || mode == store.ModeChargeDenied && !answers[i].Allowed
		if record && mode != store.ModePeek {
			answers[i] = s.take(now, t)
		}
	}
	s.sweep(now)
	return nil
}

// Settle changes the cost of a recorded take.
func (s FullStore) Settle(_ context.Context, settled store.Settlement) error {
	return s.with(settled.Key, 0, func(l *keyLog, _ time.Time) {
		for i := range l.entries {
			if e := &l.entries[i]; e.id == settled.ID && !e.trimmed {
				e.cost = settled.Cost
			}
		}
		l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.cost == 0 })
	})
}

// Log lists the entries younger than window.
func (s FullStore) Log(_ context.Context, key store.Key, window time.Duration) (entries []store.Entry, err error) {
	err = s.with(key, 0, func(l *keyLog, now time.Time) {
		for _, e := range l.window(now, window) {
			entries = append(entries, store.Entry{At: e.at, Cost: e.cost})
		}
	})
	return entries, err
}

// Merge adds the entries whose ids are not in the log, and sorts it by time.
func (s FullStore) Merge(_ context.Context, m store.MergeRequest) error {
	return s.with(m.Key, m.Keep, func(l *keyLog, now time.Time) {
		for _, e := range m.Entries {
			if !slices.ContainsFunc(l.entries, func(held entry) bool { return held.id == e.ID }) {
				l.entries = append(l.entries, entry{at: now.Add(-e.Age), cost: e.Cost, id: e.ID})
			}
		}
		slices.SortStableFunc(l.entries, func(a, b entry) int { return cmp.Compare(a.at.Sub(b.at), 0) })
		l.expire(now)
	})
}

// Renew moves entries to now, and adds those that are not there.
func (s FullStore) Renew(_ context.Context, r store.Renewal) error {
	return s.with(r.Key, r.Keep, func(l *keyLog, now time.Time) {
		for _, id := range r.IDs {
			l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.id == id })
			l.entries = append(l.entries, entry{at: now, cost: 1, id: id})
		}
	})
}

// with calls f under the lock with the log of a key, which is made if there is none.
func (s FullStore) with(key store.Key, keep time.Duration, f func(l *keyLog, now time.Time)) error {
	if err := key.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := s.logs[key.String()]
	if l == nil {
		l = new(keyLog)
		s.logs[key.String()] = l
	}
	l.keep = max(l.keep, keep)
	l.expire(now)
	f(l, now)
	s.sweep(now)
	return nil
}

// What a store can do besides Take and Reset, and what a limiter makes of it.
func Example_full() {
	logs := FullStore{NewMapStore(), core.NewMemoryStore()}
	limiter, err := core.New(core.PerMinute(2), core.Global(), core.WithStore(logs))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	decision, err := limiter.AllowN(ctx, "customer 7", 2)
	fmt.Println(decision.Allowed, decision.Remaining, err)

	fmt.Println(decision.Settle(ctx, 1)) // it has cost 1 unit only
	entries, err := limiter.Log(ctx, "customer 7")
	fmt.Println(len(entries), entries[0].Cost, err)
	// Output:
	// true 0 <nil>
	// <nil>
	// 1 1 <nil>
}
