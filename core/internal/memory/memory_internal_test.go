package memory

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/store"
)

func newSpace(policy string) *store.Namespace { return store.NewNamespace(policy, nil) }

// planOf is a plan of one limit.
func planOf(quota int, window time.Duration) *store.Plan {
	return store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: quota, Window: window}}})
}

// policy asks a store about keys of one plan.
type policy struct {
	s    *Store
	ns   *store.Namespace
	plan *store.Plan
}

func newPolicy(s *Store, name string, quota int, window time.Duration) policy {
	return policy{s, newSpace(name), planOf(quota, window)}
}

func (p policy) ask(text string, cost int, mode store.Mode) (id uint64, allowed bool) {
	var a store.Answer
	t := store.Take{Plan: p.plan, Cost: cost, Mode: mode}
	p.s.Take(textKey(p.ns, text), &t, &a)
	return t.ID, a.Allowed
}

func (p policy) allow(text string) bool {
	_, allowed := p.ask(text, 1, store.ModeCharge)
	return allowed
}

func (p policy) settle(text string, id uint64, cost int) {
	p.s.Settle(&store.Settlement{Key: *textKey(p.ns, text), ID: id, Cost: cost})
}

func textKey(sp *store.Namespace, text string) *store.Key {
	return &store.Key{Namespace: sp, Identity: store.Identity{Kind: "by", Text: text}}
}

// takeAt is a take of one unit by who has read the clock then, and gets the lock now.
func takeAt(s *Store, k *store.Key, now time.Duration) {
	t := store.Take{Plan: planOf(1, time.Minute), Cost: 1}
	hash := k.Hash()
	sh := &s.shards[hash%shardCount]
	if log := sh.logs.find(k, hash); log != nil && log.lock(int64(now)) {
		log.take(&t, new(store.Answer))
	} else {
		sh.takeNew(s, k, hash, int64(now), &t, new(store.Answer))
	}
}

// other is a key in the same shard as k, and in the same log where keys share some.
func other(k *store.Key) *store.Key {
	s := New(1 << 18)
	for i := 0; ; i++ {
		c := textKey(k.Namespace, fmt.Sprint("other ", i))
		if c.Hash()%shardCount == k.Hash()%shardCount && string(s.appendSlot(nil, c, c.Hash())) == string(s.appendSlot(nil, k, k.Hash())) {
			return c
		}
	}
}

// A key does not go back in time when it gets a log of its own, nor when it loses it.
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
	sh.shared[string(s.appendSlot(nil, b, hash))].now = late // somebody has looked at it
	takeAt(s, b, 69900*time.Millisecond)                     // while its unit is in the window
	if log := sh.logs.find(b, hash); log == nil || log.At(0) != late {
		t.Errorf("its own log has not begun at %v", time.Duration(late))
	}

	s = New(1)
	takeAt(s, b, 10*time.Second)
	takeAt(s, other(b), time.Duration(late)) // it takes b's place
	takeAt(s, b, 69900*time.Millisecond)
	sh = &s.shards[hash%shardCount]
	if log := sh.shared[string(s.appendSlot(nil, b, hash))]; log == nil || log.At(0) != late {
		t.Errorf("the shared log has not begun at %v", time.Duration(late))
	}
}

// Logs in which nothing is left, or nothing ever was, take nobody's place.
func TestEmptyLogsLeave(t *testing.T) {
	for name, ask := range map[string]func(policy, string){
		"undone": func(p policy, key string) {
			id, _ := p.ask(key, 1, store.ModeCharge)
			p.settle(key, id, 0)
		},
		"never": func(p policy, key string) { p.ask(key, 11, store.ModeCharge) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(1000)
				l := newPolicy(s, "p", 10, 24*time.Hour)
				for i := range 10_000 {
					ask(l, fmt.Sprint(i))
				}
				if s.Keys() > 2*shardCount || s.Shared() > 0 {
					t.Errorf("%d keys, %d takes of shared logs; want few and none", s.Keys(), s.Shared())
				}
			})
		})
	}
}

// Nor do those in which something was left when they were last looked at.
func TestUndoneLogsLeave(t *testing.T) {
	s := New(1000)
	l := newPolicy(s, "p", 10, 24*time.Hour)
	ids := make([]uint64, 1000)
	for i := range ids {
		ids[i], _ = l.ask(fmt.Sprint(i), 1, store.ModeCharge)
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
		t.Errorf("%d takes of shared logs, though nothing was left of others", s.Shared())
	}
}

// What one key records, where keys share a log, pushes out nothing that another has used.
func TestRecordedInSharedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		l := newPolicy(s, "p", 3, time.Minute)
		allowed := 0
		ask := func() {
			for range 5 {
				if l.allow("b") {
					allowed++
				}
			}
		}
		l.allow("a")
		ask()
		if _, allowed := l.ask(other(textKey(l.ns, "b")).Text, 2*store.MaxRecorded, store.ModeRecord); !allowed {
			t.Error("what is recorded was denied")
		}
		s.Reset(textKey(l.ns, "a"))
		if ask(); allowed != 3 {
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
