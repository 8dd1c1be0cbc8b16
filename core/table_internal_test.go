package core

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The table against a map, through growing, shrinking and places that are contended.
func TestTableAgainstMap(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	var tab table
	sp := newSpace("p", nil)
	model := make(map[string]*memoryLog)
	hashes := make(map[string]uint64)
	names := make([]string, 3000)
	for i := range names {
		names[i] = strings.Repeat("k", 1+i/100) + string(rune('a'+i%100))
		shift := i % 3 % 2 * 13 // many of them meet
		if i%24 == 0 {
			shift = 26 // and these all begin at the same place
		}
		hashes[names[i]] = r.Uint64() << shift
	}
	most := 0
	for step := range 200_000 {
		name := names[r.IntN(max(1, len(names)*(step/10_000%5)/4))]
		key := &StorageKey{space: sp, identity: identity{kind: kindBy, text: name}}
		log, want := tab.find(key, hashes[name]), model[name]
		if log != want {
			t.Fatalf("seed %#x, step %d: find(%q) = %v", seed, step, name, log)
		}
		switch {
		case log != nil && step/10_000%5 < 3:
			tab.remove(tab.index(hashes[name], log))
			delete(model, name)
		case log == nil:
			log := &memoryLog{key: key.kept(false)}
			tab.add(hashes[name], log, 0)
			model[name] = log
		}
		most = max(most, len(tab.all()))
		if tab.used != len(model) || 8*tab.used > 7*len(tab.all()) || 8*tab.used < len(tab.all()) && len(tab.all()) > smallestTable {
			t.Fatalf("seed %#x, step %d: %d of %d places, want %d", seed, step, tab.used, len(tab.all()), len(model))
		}
	}
	if most < 1024 {
		t.Fatalf("at most %d places: this test has tested nothing", most)
	}
	for name, log := range model {
		tab.remove(tab.index(hashes[name], log))
	}
	if len(tab.all()) != smallestTable {
		t.Errorf("%d places for no log", len(tab.all()))
	}
}

// Who reads the clock first may get the lock last.
func TestInstantsDoNotRunBackwards(t *testing.T) {
	s := NewMemoryStore()
	take := Take{Key: StorageKey{space: newSpace("p", nil)}, Limits: Limits{PerSecond(1)}, Keep: MaxWindow, Cost: 1, ID: 1}
	s.Take(t.Context(), take)
	sh, log, _, _ := s.locked(&take.Key)
	later := log.now + int64(MaxWindow)/2
	log.now = later
	sh.unlock(log)
	take.ID = 2
	if a, _ := s.Take(t.Context(), take); !a.Allowed {
		t.Error("denied by a unit that has left the window")
	}
	entries, _ := s.Log(t.Context(), take.Key, MaxWindow)
	if len(entries) != 2 || entries[1].At.Before(entries[0].At) || int64(entries[1].At.Sub(s.start)) != later {
		t.Errorf("instants %v", entries)
	}
}

// A kept key stands for itself alone, also where a hash is all that is kept of it.
func TestKeptKeys(t *testing.T) {
	long := strings.Repeat("x", longestText)
	sum := sha256.Sum256([]byte(long + "a"))
	texts := []string{"", "a", long, long + "a", long + "b", string(sum[:]), strings.Repeat("y", 9000)}
	sp := newSpace("p", nil)
	key := func(text string) *StorageKey {
		return &StorageKey{space: sp, identity: identity{kind: kindBy, text: text}}
	}
	for i := range 50 { // more families than a space remembers
		k := &StorageKey{space: sp, identity: identity{kind: kindBy, scope: fmt.Sprint(i % 25), text: "a"}}
		next := &StorageKey{space: sp, identity: identity{kind: kindBy, scope: fmt.Sprint(i%25 + 1), text: "a"}}
		if kept := k.kept(false); kept.key().identity != k.identity || !kept.names(k) || kept.names(next) {
			t.Errorf("scope %s became %v", k.scope, kept.key().identity)
		}
	}
	for i, a := range texts {
		kept, whole := key(a).kept(false), key(a).kept(true)
		if kept.long != nil && len(*kept.long) > longestText {
			t.Errorf("%d bytes are kept of %d", len(*kept.long), len(a))
		}
		if got := whole.key(); got.identity != key(a).identity || got.space != sp {
			t.Errorf("text %d became %v", i, got.identity)
		}
		for j, b := range texts {
			if names := kept.names(key(b)); names != (i == j) || names != whole.names(key(b)) {
				t.Errorf("text %d names text %d: %v", i, j, names)
			}
		}
		other := key(a)
		other.space = newSpace("q", nil)
		if kept.names(other) {
			t.Errorf("text %d names another policy's", i)
		}
		other.space, other.scope = newSpace("p", nil), "s"
		if kept.names(other) {
			t.Errorf("text %d names another scope's", i)
		}
		if other.scope = ""; !kept.names(other) {
			t.Errorf("text %d does not name itself in another limiter of the same policy", i)
		}
	}
}

// Who has found a log that is forgotten before he gets its lock takes from the one that follows.
func TestForgottenLog(t *testing.T) {
	s := NewMemoryStore()
	take := Take{Key: StorageKey{space: newSpace("p", nil)}, Limits: Limits{PerHour(1)}, Keep: time.Hour, Cost: 1}
	s.take(&take.Key, &take, new(Answer))
	sh, log, _, _ := s.locked(&take.Key)
	sh.unlock(log)
	s.Reset(t.Context(), take.Key)
	if log.lock(0) {
		t.Error("a log that was forgotten can be locked")
	}
	first := take.ID
	take.ID = 0
	var a Answer
	if s.take(&take.Key, &take, &a); !a.Allowed || s.Keys() != 1 {
		t.Errorf("%v after a reset, %d keys", a, s.Keys())
	}
	s.Settle(t.Context(), Settle{Key: take.Key, ID: first})
	if entries, _ := s.Log(t.Context(), take.Key, time.Hour); len(entries) != 1 || take.ID == first {
		t.Errorf("id %d then %d; %d entries are left of the second", first, take.ID, len(entries))
	}
}
