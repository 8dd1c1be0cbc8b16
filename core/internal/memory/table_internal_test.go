package memory

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// The table agrees with a map while it grows and shrinks and while many logs have the same home slot.
func TestTableAgainstMap(t *testing.T) {
	testlen.SkipRace(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	var tab table
	sp := newSpace("p")
	model := make(map[string]*keyLog)
	hashes := make(map[string]uint64)
	names := make([]string, 3000)
	for i := range names {
		names[i] = strings.Repeat("k", 1+i/100) + string(rune('a'+i%100))
		shift := i % 3 % 2 * 13 // many have the same home slot in a small table
		if i%24 == 0 {
			shift = 26 // and these in any table
		}
		hashes[names[i]] = r.Uint64() << shift
	}
	most := 0
	for step := range 200_000 {
		name := names[r.IntN(max(1, len(names)*(step/10_000%5)/4))]
		key := &store.Key{Namespace: sp, Identity: store.Identity{Kind: "by", Text: name}}
		log, want := tab.find(key, hashes[name]), model[name]
		if log != want {
			t.Fatalf("seed %#x, step %d: find(%q) = %v", seed, step, name, log)
		}
		switch {
		case log != nil && step/10_000%5 < 3:
			tab.remove(tab.index(hashes[name], log))
			delete(model, name)
		case log == nil:
			log := &keyLog{key: key.Stored(false)}
			tab.add(hashes[name], log, 0)
			model[name] = log
		}
		most = max(most, len(tab.all()))
		size := len(tab.all())
		if tab.used != len(model) || 8*tab.used > 7*size || 8*tab.used < size && size > smallestTable {
			t.Fatalf("seed %#x, step %d: %d of %d slots, want %d", seed, step, tab.used, size, len(model))
		}
	}
	if most < 1024 {
		t.Fatalf("at most %d slots: this test has tested nothing", most)
	}
	for name, log := range model {
		tab.remove(tab.index(hashes[name], log))
	}
	if len(tab.all()) != smallestTable {
		t.Errorf("%d slots for no log", len(tab.all()))
	}
}

// Instants do not decrease, though a caller may read the clock first and get the lock last.
func TestInstantsDoNotDecrease(t *testing.T) {
	s := New(1 << 18)
	const keep = 365 * 24 * time.Hour
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 1, Window: time.Second}}, Keep: keep})
	take := store.Take{Key: *textKey(newSpace("p"), ""), Plan: plan, Cost: 1, ID: 1}
	s.takeOne(&take.Key, &take, new(store.Answer))
	sh, log, _, _ := s.locked(&take.Key)
	later := log.now + int64(keep)/2
	log.now = later
	sh.unlock(log)
	take.ID = 2
	var a store.Answer
	if s.takeOne(&take.Key, &take, &a); !a.Allowed {
		t.Error("denied by a unit that has left the window")
	}
	entries := s.Log(&take.Key, keep)
	if len(entries) != 2 || entries[1].At.Before(entries[0].At) || int64(entries[1].At.Sub(s.start)) != later {
		t.Errorf("instants %v", entries)
	}
}

// A take that has found a log which is removed before it gets the lock uses the next log of the key.
func TestRemovedLog(t *testing.T) {
	s := New(1 << 18)
	take := store.Take{Key: *textKey(newSpace("p"), ""), Plan: planOf(1, time.Hour), Cost: 1}
	s.takeOne(&take.Key, &take, new(store.Answer))
	sh, log, _, _ := s.locked(&take.Key)
	sh.unlock(log)
	s.Reset(&take.Key)
	if log.lock(0) {
		t.Error("a removed log can be locked")
	}
	first := take.ID
	take.ID = 0
	var a store.Answer
	if s.takeOne(&take.Key, &take, &a); !a.Allowed || s.Keys() != 1 {
		t.Errorf("%v after a reset, %d keys", a, s.Keys())
	}
	s.Settle(&store.Settlement{Key: take.Key, ID: first})
	if entries := s.Log(&take.Key, time.Hour); len(entries) != 1 || take.ID == first {
		t.Errorf("id %d then %d; %d entries are left of the second", first, take.ID, len(entries))
	}
}
