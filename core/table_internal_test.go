package core

import (
	"crypto/sha256"
	"math/rand/v2"
	"strings"
	"testing"
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
		hashes[names[i]] = r.Uint64() << (i % 3 * 20) // many of them meet
	}
	most := 0
	for step := range 200_000 {
		name := names[r.IntN(max(1, len(names)*(step/10_000%5)/4))]
		key := &StorageKey{space: sp, identity: identity{kind: kindBy, text: name}}
		i, want := tab.find(key, hashes[name]), model[name]
		if want == nil && i >= 0 || want != nil && (i < 0 || tab.places[i].log != want) {
			t.Fatalf("seed %#x, step %d: find(%q) = %d", seed, step, name, i)
		}
		switch {
		case i >= 0 && step/10_000%5 < 3:
			tab.remove(i)
			delete(model, name)
		case i < 0:
			log := &memoryLog{key: key.kept(false)}
			tab.add(hashes[name], log)
			model[name] = log
		}
		most = max(most, len(tab.places))
		if tab.used != len(model) || 4*tab.used > 3*len(tab.places) || 8*tab.used < len(tab.places) && len(tab.places) > smallestTable {
			t.Fatalf("seed %#x, step %d: %d of %d places, want %d", seed, step, tab.used, len(tab.places), len(model))
		}
	}
	if most < 1024 {
		t.Fatalf("at most %d places: this test has tested nothing", most)
	}
	for name := range model {
		tab.remove(tab.find(&StorageKey{space: sp, identity: identity{kind: kindBy, text: name}}, hashes[name]))
	}
	if len(tab.places) != smallestTable {
		t.Errorf("%d places for no log", len(tab.places))
	}
}

// Who reads the clock first may get the lock last.
func TestInstantsDoNotRunBackwards(t *testing.T) {
	s := NewMemoryStore()
	take := Take{Key: StorageKey{space: newSpace("p", nil)}, Limits: Limits{PerSecond(1)}, Keep: MaxWindow, Cost: 1, ID: 1}
	s.Take(t.Context(), take)
	sh, _, _ := s.locked(&take.Key)
	later := sh.now + int64(MaxWindow)/2
	sh.now = later
	sh.mu.Unlock()
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
	for i, a := range texts {
		kept, whole := key(a).kept(false), key(a).kept(true)
		if len(kept.long) > longestText {
			t.Errorf("%d bytes are kept of %d", len(kept.long), len(a))
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
