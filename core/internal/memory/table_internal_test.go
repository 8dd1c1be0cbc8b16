package memory

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// The table agrees with a map while it grows and shrinks and while many entries have the same home slot.
func TestTableAgainstMap(t *testing.T) {
	testlen.SkipRace(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	var tab table
	var classes classes
	sp := store.NewNamespace("p", "own", nil)
	model := make(map[string]*entry)
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
		e, want := tab.find(key, hashes[name]), model[name]
		if e != want {
			t.Fatalf("seed %#x, step %d: find(%q) = %v", seed, step, name, e)
		}
		switch {
		case e != nil && step/10_000%5 < 3:
			tab.remove(tab.index(hashes[name], e))
			delete(model, name)
		case e == nil:
			e := &entry{key: classes.stored(key)}
			tab.add(hashes[name], e, 0)
			model[name] = e
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
	for name, e := range model {
		tab.remove(tab.index(hashes[name], e))
	}
	if len(tab.all()) != smallestTable {
		t.Errorf("%d slots for no entry", len(tab.all()))
	}
}
