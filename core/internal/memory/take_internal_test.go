package memory

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Keys of one shard: a decision over both must not wait for a log that it has locked itself, whichever logs are swept
// meanwhile. The store is so small that keys share logs as well.
func TestJointTakesOfOneShard(t *testing.T) {
	for _, places := range []int{3, 100_000} {
		s := New(places)
		plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 2, Window: time.Millisecond}}})
		groups := make(map[uint64][]store.Key)
		for n := range 20 * shardCount {
			key := store.NewKey("p", fmt.Sprint(n))
			shard := key.Hash() % shardCount
			groups[shard] = append(groups[shard], key)
		}
		id := uint64(0)
		for _, keys := range groups {
			for i := range len(keys) - 3 {
				id++
				takes := make([]store.Take, 3)
				for n := range takes {
					takes[n] = store.Take{Key: keys[i+n], Plan: plan, Cost: 1, ID: id}
				}
				for range 2 * takesPerSweep {
					answers := make([]store.Answer, 3)
					s.Take(takes, answers)
					for n := range answers {
						if used := answers[n].State[0].Used; used > 2 {
							t.Fatalf("%d places: %d units used of 2", places, used)
						}
					}
				}
			}
		}
	}
}

// Keys that have logs of their own are decided without the locks of their shards, unless a log is in use.
func TestPathOfJointTakes(t *testing.T) {
	s := New(100)
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 100, Window: time.Hour}}})
	keys := []store.Key{store.NewKey("p", "a"), store.NewKey("p", "b")}
	used := 0
	take := func() {
		t.Helper()
		takes := []store.Take{{Key: keys[0], Plan: plan, Cost: 1}, {Key: keys[1], Plan: plan, Cost: 1}}
		answers := make([]store.Answer, 2)
		s.Take(takes, answers)
		for i, a := range answers {
			if !a.Allowed || a.State[0].Used != used || takes[i].ID == 0 {
				t.Errorf("log %d: %+v, id %d, want %d used", i, a, takes[i].ID, used)
			}
		}
		used++
	}
	take()

	for i := range s.shards {
		s.shards[i].mu.Lock()
	}
	take() // would wait without end
	for i := range s.shards {
		s.shards[i].mu.Unlock()
	}

	hash := keys[1].Hash()
	log := s.shards[hash%shardCount].logs.find(&keys[1], hash)
	log.mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		take()
	}()
	hash = keys[0].Hash()
	first := s.shards[hash%shardCount].logs.find(&keys[0], hash)
	for s.shards[hash%shardCount].mu.TryLock() { // until the other goroutine waits with the shards locked
		s.shards[hash%shardCount].mu.Unlock()
		runtime.Gosched()
	}
	log.mu.Unlock()
	<-done
	if first.Len() != 3 || log.Len() != 3 || first.HasLedger() {
		t.Errorf("%d and %d entries, want 3; ledger %v", first.Len(), log.Len(), first.HasLedger())
	}
}

// pairOfOneLog returns two keys that share a log, after it has filled the only place of s.
func pairOfOneLog(s *Store) []store.Key {
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 1, Window: time.Hour}}})
	filler := store.NewKey("filler", "a")
	s.takeOne(&filler, &store.Take{Plan: plan, Cost: 1}, new(store.Answer))
	byBucket := make(map[string]store.Key)
	for n := 0; ; n++ {
		key := store.NewKey("p", fmt.Sprint(n))
		hash := key.Hash()
		bucket := fmt.Sprint(hash%shardCount, s.bucketOf(&key, hash).Addr)
		if other, ok := byBucket[bucket]; ok {
			return []store.Key{other, key}
		}
		byBucket[bucket] = key
	}
}

// In ModeUpTo two keys that share a log are granted the same, for which it has room.
func TestJointUpToOfOneSharedLog(t *testing.T) {
	s := New(1)
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 5, Window: time.Hour}}})
	pair := pairOfOneLog(s)
	ask := func() []store.Answer {
		takes := []store.Take{
			{Key: pair[0], Plan: plan, Cost: 4, Mode: store.ModeUpTo},
			{Key: pair[1], Plan: plan, Cost: 4, Mode: store.ModeUpTo},
		}
		answers := make([]store.Answer, 2)
		s.Take(takes, answers)
		return answers
	}
	if a := ask(); a[0].Granted != 2 || a[1].Granted != 2 || !a[0].Allowed || !a[1].Allowed {
		t.Errorf("%+v, want 2 units granted to both", a)
	}
	if a := ask(); !a[0].Allowed || a[1].Allowed || a[0].Granted+a[1].Granted > 0 || a[1].Retry <= 0 {
		t.Errorf("%+v, want room for a unit of one of them", a)
	}
	a := new(store.Answer)
	if s.takeOne(&pair[1], &store.Take{Plan: plan, Cost: 4, Mode: store.ModeUpTo}, a); a.Granted != 1 {
		t.Errorf("%+v, want the last unit granted", a)
	}
}

// Two keys that share a log need room for both in it.
func TestJointTakesOfOneSharedLog(t *testing.T) {
	s := New(1)
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 1, Window: time.Hour}}})
	pair := pairOfOneLog(s)
	for range 2 {
		takes := []store.Take{{Key: pair[0], Plan: plan, Cost: 1}, {Key: pair[1], Plan: plan, Cost: 1}}
		answers := make([]store.Answer, 2)
		s.Take(takes, answers)
		if !answers[0].Allowed || answers[1].Allowed || answers[1].Retry != time.Hour || !answers[1].Denied.Has(0) {
			t.Errorf("%+v, want room for one of them", answers)
		}
	}
	if s.Shared() == 0 {
		t.Error("no key shares a log")
	}
	answer := new(store.Answer)
	if s.takeOne(&pair[1], &store.Take{Plan: plan, Cost: 1}, answer); !answer.Allowed {
		t.Errorf("%+v: the denied request has left a unit", answer)
	}
}

// Two keys that share a log need room for the costs of both in it.
func TestJointCostsOfOneSharedLog(t *testing.T) {
	s := New(1)
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 9, Window: time.Hour}}})
	pair := pairOfOneLog(s)
	ask := func(first, second int, mode store.Mode) []store.Answer {
		takes := []store.Take{
			{Key: pair[0], Plan: plan, Cost: first, Mode: mode}, {Key: pair[1], Plan: plan, Cost: second, Mode: mode},
		}
		answers := make([]store.Answer, 2)
		s.Take(takes, answers)
		return answers
	}
	for _, c := range []struct {
		costs   [2]int
		allowed bool // whether the second has room beside the first
		used    int
	}{
		{[2]int{1, 4}, true, 0},
		{[2]int{3, 2}, false, 5},
		{[2]int{1, 7}, false, 5},
		{[2]int{3, 1}, true, 5},
	} {
		for _, mode := range []store.Mode{store.ModePeek, store.ModeCharge} {
			a := ask(c.costs[0], c.costs[1], mode)
			if !a[0].Allowed || a[1].Allowed != c.allowed || a[0].State[0].Used != c.used {
				t.Errorf("mode %v, costs %d: %+v, want room for the second %v, %d used", mode, c.costs, a, c.allowed,
					c.used)
			}
		}
	}
	if a := ask(1, 1, store.ModePeek); a[0].Allowed || a[0].State[0].Used != 9 {
		t.Errorf("%+v, want a full log", a)
	}
}
