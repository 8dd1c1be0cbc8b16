package lease

import (
	"fmt"
	"hash/maphash"
	"testing"

	"github.com/sashlimit/sash/core/internal/testlen"
)

var seed = maphash.MakeSeed()

// hash returns a number that is equal for equal worlds.
func (w *world) hash() uint64 {
	return maphash.String(seed, fmt.Sprint(w.now, w.back, w.left, w.ids, w.entries, w.uses, w.net, w.processes))
}

// explore visits the worlds of a config, those with few steps first, and returns the first that breaks a promise, or
// nil, and how many it has visited.
func explore(c *config, most int) (broken *world, visited int, err error) {
	first := newWorld(c)
	seen := map[uint64]struct{}{first.hash(): {}}
	for level := []*world{first}; len(level) > 0; {
		var next []*world
		for _, w := range level {
			w.next(func(v *world, failed error) {
				if failed != nil && err == nil {
					broken, err = v, failed
				}
				h := v.hash()
				if _, ok := seen[h]; !ok && len(seen) < most {
					seen[h] = struct{}{}
					next = append(next, v)
				}
			})
			if err != nil {
				return broken, len(seen), err
			}
		}
		level = next
	}
	return nil, len(seen), nil
}

var (
	two   = []limit{{2, 3}}
	three = []limit{{3, 3}}
	short = []limit{{2, 1}} // a window that is shorter than a lease
	both  = []limit{{2, 2}, {3, 5}}
	equal = [processes]int{2, 2}
)

// With the rules as they are, no window is over a quota and no denial is wrong, whatever happens.
func TestWorlds(t *testing.T) {
	t.Parallel()
	testlen.SkipRace(t)
	total := 0
	for _, c := range []config{
		{limits: two, d: equal, ops: 4, do: "tbs", alone: true},
		{limits: two, d: equal, ops: 5, do: "tbs"},
		{limits: three, d: equal, ops: 5, do: "tbse"},
		{limits: short, d: equal, ops: 5, do: "tbse"},
		{limits: both, d: equal, ops: 5, do: "tbse"},
		{limits: three, d: equal, ops: 4, do: "tBsEg2"},
		{limits: three, d: equal, ops: 5, do: "tbseum"},
		{limits: two, d: equal, ops: 5, do: "tBsEu2"},
		{limits: three, d: equal, ops: 5, do: "tbsrec"},
		{limits: two, d: equal, ops: 5, do: "tbBsdEg"},
		{limits: both, d: equal, ops: 6, do: "tbBseEumdrcg2"},
	} {
		most := testlen.Of(7000, 40_000)
		if c.alone { // whose worlds are few
			most *= 5
		}
		w, visited, err := explore(&c, most)
		if err != nil {
			t.Errorf("%+v: %v%v", c, err, w.trace)
		}
		total += visited
	}
	t.Logf("%d worlds", total)
}

// Each rule is needed: without it, a world is found that breaks a promise.
func TestBrokenRules(t *testing.T) {
	t.Parallel()
	testlen.SkipRace(t)
	for _, c := range []struct {
		name string
		config
	}{
		{"the windows of the log are those that are promised", config{
			broken: broken{windowsAlone: true}, limits: two, d: equal, alone: true, ops: 4, do: "tbs",
		}},
		{"the windows are longer by the asker's own leases", config{
			broken: broken{ownWindows: true}, limits: three, d: [processes]int{3, 0}, ops: 5, do: "tbs",
		}},
		{"the end is counted from the reply", config{
			broken: broken{endFromReply: true}, limits: two, d: equal, alone: true, ops: 4, do: "tBs",
		}},
		{"a lease is spent after its end", config{
			broken: broken{tickLate: true}, limits: two, d: equal, alone: true, ops: 4, do: "tbs",
		}},
		{"a reset removes leases in hand", config{
			broken: broken{resetLive: true}, limits: three, d: equal, ops: 6, do: "tbsr",
		}},
		{"the sum is read before the lease is closed", config{
			broken: broken{sumBeforeClose: true}, limits: three, d: equal, alone: true, ops: 5, do: "tbsE",
		}},
		{"a settlement is relative", config{
			broken: broken{relative: true}, limits: three, d: equal, alone: true, ops: 6, do: "tbsE2",
		}},
		{"settlements overtake each other", config{
			broken: broken{outOfOrder: true}, limits: three, d: equal, alone: true, still: true, ops: 7, do: "tbsEu",
		}},
		{"more units of a use are told at the end of the lease", config{
			broken: broken{moreAtEnd: true}, limits: three, d: equal, alone: true, ops: 5, do: "tbsm",
		}},
		{"a use is not undone after its lease was settled", config{
			broken: broken{undoLost: true}, limits: three, d: equal, alone: true, ops: 6, do: "tbseu",
		}},
		{"takes without an answer are kept", config{
			broken: broken{unanswered: true}, limits: three, d: equal, alone: true, ops: 3, do: "tBg",
		}},
		{"a denial is remembered for longer than a lease", config{
			broken: broken{rememberLong: true}, limits: three, d: equal, alone: true, ops: 4, do: "tbe",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, visited, err := explore(&c.config, testlen.Of(300_000, 1_500_000))
			if err == nil {
				t.Fatalf("no world shows it, of %d", visited)
			}
			t.Logf("%d worlds; %v%s", visited, err, w.trace)
		})
	}
}
