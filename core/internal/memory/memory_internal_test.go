package memory

import (
	"fmt"
	"iter"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/store"
)

func newSpace(policy string) *store.Namespace { return store.NewNamespace(policy, nil) }

// planOf returns a plan of one limit.
func planOf(quota int, window time.Duration) *store.Plan {
	return store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: quota, Window: window}}})
}

// policy makes takes of keys with one plan.
type policy struct {
	s    *Store
	ns   *store.Namespace
	plan *store.Plan
}

func newPolicy(s *Store, name string, quota int, window time.Duration) policy {
	return policy{s, newSpace(name), planOf(quota, window)}
}

func (p policy) take(text string, cost int, mode store.Mode) (id uint64, allowed bool) {
	var a store.Answer
	t := store.Take{Plan: p.plan, Cost: cost, Mode: mode}
	p.s.takeOne(textKey(p.ns, text), &t, &a)
	return t.ID, a.Allowed
}

func (p policy) allow(text string) bool {
	_, allowed := p.take(text, 1, store.ModeCharge)
	return allowed
}

func (p policy) settle(text string, id uint64, cost int) {
	p.s.Settle(&store.Settlement{Key: *textKey(p.ns, text), ID: id, Cost: cost})
}

func textKey(sp *store.Namespace, text string) *store.Key {
	return &store.Key{Namespace: sp, Identity: store.Identity{Kind: "by", Text: text}}
}

// logs returns the logs that keys have of their own.
func (s *Store) logs() iter.Seq[*keyLog] {
	return func(yield func(*keyLog) bool) {
		for i := range s.shards {
			slots := s.shards[i].logs.all()
			for j := range slots {
				if log := slots[j].log.Load(); log != nil && !log.shared && !yield(log) {
					return
				}
			}
		}
	}
}

// takeAt takes one unit for a caller that has read the clock at now and gets the lock later.
func takeAt(s *Store, k *store.Key, now time.Duration) {
	takes := []store.Take{{Key: *k, Plan: planOf(1, time.Minute), Cost: 1}}
	if answers, at := make([]store.Answer, 1), (instant{clock: int64(now)}); !s.takeOwn(&takes[0], &answers[0], at) {
		s.takeParts(takes, answers, at)
	}
}

// other returns another key in the same shard and bucket as k.
func other(k *store.Key) *store.Key {
	s := New(1 << 18)
	bucket := func(k *store.Key) netip.Addr { return s.bucketOf(k, k.Hash()).Addr }
	for i := 0; ; i++ {
		c := textKey(k.Namespace, fmt.Sprint("other ", i))
		if c.Hash()%shardCount == k.Hash()%shardCount && bucket(c) == bucket(k) {
			return c
		}
	}
}

// The instants of a key do not decrease when it gets a log of its own, nor when it loses it.
func TestTimeBetweenLogs(t *testing.T) {
	sp := newSpace("p")
	a, b := textKey(sp, "a"), textKey(sp, "b")
	hash := b.Hash()
	late := int64(70500 * time.Millisecond)

	s := New(1)
	takeAt(s, a, 0)
	takeAt(s, b, 10*time.Second)
	s.Reset(a)
	sh := &s.shards[hash%shardCount]
	sh.findShared(s, b, hash).now = late // as after a look at it
	takeAt(s, b, 69900*time.Millisecond) // its unit is still in the window
	if log := sh.logs.find(b, hash); log == nil || log.At(0) != late {
		t.Errorf("its own log does not begin at %v", time.Duration(late))
	}

	s = New(1)
	takeAt(s, b, 10*time.Second)
	takeAt(s, other(b), time.Duration(late)) // it gets b's place
	takeAt(s, b, 69900*time.Millisecond)
	sh = &s.shards[hash%shardCount]
	if log := sh.findShared(s, b, hash); log == nil || log.At(0) != late {
		t.Errorf("the shared log does not begin at %v", time.Duration(late))
	}
}

// Logs without entries are removed, so that other keys get their places.
func TestEmptyLogsAreRemoved(t *testing.T) {
	for name, take := range map[string]func(policy, string){
		"undone": func(p policy, key string) {
			id, _ := p.take(key, 1, store.ModeCharge)
			p.settle(key, id, 0)
		},
		"never": func(p policy, key string) { p.take(key, 11, store.ModeCharge) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(1000)
				l := newPolicy(s, "p", 10, 24*time.Hour)
				for i := range 10_000 {
					take(l, fmt.Sprint(i))
				}
				if s.Keys() > 2*shardCount || s.Shared() > 0 {
					t.Errorf("%d keys, %d takes of shared logs; want few and none", s.Keys(), s.Shared())
				}
			})
		})
	}
}

// Logs that had entries at the last sweep are removed soon after these were undone.
func TestUndoneLogsAreRemoved(t *testing.T) {
	s := New(1000)
	l := newPolicy(s, "p", 10, 24*time.Hour)
	ids := make([]uint64, 1000)
	for i := range ids {
		ids[i], _ = l.take(fmt.Sprint(i), 1, store.ModeCharge)
	}
	for i := range s.shards {
		s.shards[i].sweep(s, 1000)
	}
	for i := range ids {
		l.settle(fmt.Sprint(i), ids[i], 0)
	}
	for i := range 900 {
		l.allow(fmt.Sprint("new ", i))
	}
	if s.Shared() > 0 {
		t.Errorf("%d takes of shared logs, though all other logs are empty", s.Shared())
	}
}

// Recorded takes of one key do not trim the entries of another in a shared log.
func TestRecordedInSharedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		l := newPolicy(s, "p", 3, time.Minute)
		allowed := 0
		takeFive := func() {
			for range 5 {
				if l.allow("b") {
					allowed++
				}
			}
		}
		l.allow("a")
		takeFive()
		if _, allowed := l.take(other(textKey(l.ns, "b")).Text, 2*store.MaxRecorded, store.ModeRecord); !allowed {
			t.Error("a recorded take was denied")
		}
		s.Reset(textKey(l.ns, "a"))
		if takeFive(); allowed != 3 {
			t.Errorf("%d were allowed, want 3", allowed)
		}
	})
}

// An entry without an ID can be merged.
func TestMergeWithoutID(t *testing.T) {
	s, key := New(10), textKey(newSpace("p"), "b")
	s.Merge(&store.MergeRequest{Key: *key, Keep: time.Minute, Entries: []store.Entry{{ID: 0, Cost: 1}}})
	if entries := s.Log(key, time.Minute); len(entries) != 1 {
		t.Errorf("%d entries, want 1", len(entries))
	}
}

// Slots are renewed in logs of one key and in those that keys share, and taken back if they were lost. The sweep keeps
// the logs while slots are renewed, and removes them afterwards.
func TestRenewSlots(t *testing.T) {
	for _, places := range []int{100, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := New(places)
			filler := newPolicy(s, "filler", 1, time.Hour)
			filler.allow("x")
			l := newPolicy(s, "p", 3, 3*time.Second)
			l.plan = store.NewPlan(store.Plan{Limits: l.plan.Limits, Slots: true, Keep: 10 * time.Second})
			renew := func(text string, ids ...uint64) {
				s.Renew(&store.Renewal{Key: *textKey(l.ns, text), IDs: ids, Keep: 10 * time.Second})
			}
			wantFree := func(free bool) {
				t.Helper()
				if _, allowed := l.take("a", 1, store.ModePeek); allowed != free {
					t.Errorf("%d places: a slot is free: %v, want %v", places, allowed, free)
				}
			}
			settle := func(id uint64) { s.Settle(&store.Settlement{Key: *textKey(l.ns, "a"), ID: id}) }
			first, _ := l.take("a", 5, store.ModeCharge)
			second, _ := l.take("a", 1, store.ModeCharge)
			third, _ := l.take("a", 1, store.ModeCharge)
			wantFree(false)
			for range 200 {
				time.Sleep(time.Second)
				renew("a", third, first)
				s.sweepAll()
			}
			wantFree(true)
			renew("a", second) // lost
			wantFree(false)
			time.Sleep(3*time.Second - time.Nanosecond)
			renew("a", first)
			time.Sleep(time.Nanosecond)
			l.take("a", 1, store.ModeCharge)
			l.take("a", 1, store.ModeCharge)
			wantFree(false)
			renew("a", third) // lost, but in the log still, which is full
			settle(first)
			wantFree(false)
			settle(third)
			wantFree(true)
			time.Sleep(20 * time.Second)
			s.sweepAll()
			renew("a", first, second, third) // in no log
			wantFree(false)
			settle(second)
			wantFree(true)
			time.Sleep(20 * time.Second)
			s.sweepAll()
			for log := range s.logs() {
				if log.key.Equal(textKey(l.ns, "a")) {
					t.Error("the empty log is still there")
				}
			}
			if n := s.sharedLogs.Load(); n != 0 {
				t.Errorf("%d shared logs are left", n)
			}
		})
	}
}

// Peeks at keys without a log take no places.
func TestPeeksAddNoLogs(t *testing.T) {
	s := New(10)
	if _, allowed := newPolicy(s, "p", 1, time.Minute).take("a", 1, store.ModePeek); !allowed || s.Keys() != 0 {
		t.Errorf("allowed %v, and %d keys have a log; want none", allowed, s.Keys())
	}
}

// takeOne is Take for one log.
func (s *Store) takeOne(key *store.Key, t *store.Take, a *store.Answer) {
	takes, answers := []store.Take{*t}, []store.Answer{*a}
	takes[0].Key = *key
	s.Take(takes, answers)
	t.ID, *a = takes[0].ID, answers[0]
}
