package redisstore_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// batchTrace is the life of some logs that are asked about together, beside an exact and slow store that is asked
// about one take after the other.
type batchTrace struct {
	t       *testing.T
	r       *rand.Rand
	c       clock
	store   core.Store
	oracle  *coretest.FakeStore
	single  bool
	repeats bool
	desc    string

	keys           []store.Key
	limits, shadow core.Limits
	varied         []core.Limits // nil unless windows vary
	keep           time.Duration
	unitsOnly      bool // all entries cost one unit, so that logs without weights answer

	now     time.Duration
	ids     uint64
	made    []store.Settlement // of takes that were admitted
	at      []time.Duration
	last    time.Duration // the wait of the last denial
	answers int
	left    int // logs that had emptied, right after another such log in a script
}

var batchPolicies = []core.Limits{
	{{Quota: 7, Window: time.Second}},
	{{Quota: 150, Window: time.Second}},
	{{Quota: 1, Window: 10 * time.Millisecond}},
	{{Quota: 2, Window: 50 * time.Millisecond}, {Quota: 3, Window: 70 * time.Millisecond}},
	{{Quota: 3, Window: 2 * time.Second}},
	{{Quota: 5, Window: time.Second}, {Quota: 20, Window: 9 * time.Second}},
	{{Quota: 12, Window: 3 * time.Second}, {Quota: 3, Window: 20 * time.Millisecond}, {Quota: 6, Window: time.Second}},
}

// TestBatchesAgainstOracle compares batches with the oracle on every path: short and long paths, logs that have
// emptied next to each other, several takes of one log, windows that vary, shadows, costs and corrections.
func TestBatchesAgainstOracle(t *testing.T) {
	t.Parallel()
	for _, single := range []bool{true, false} {
		for _, repeats := range []bool{false, true} {
			t.Run(fmt.Sprintf("one script %v, sent twice %v", single, repeats), func(t *testing.T) {
				p := newPaths(newHashed(start(t)))
				c := newClock(p)
				if repeats {
					c.processor = twice{processor: p, t: t}
				}
				least := map[string]int{ // about a third of the usual counts
					"one limit admits": 700, "one limit denies": 300,
					"several limits admits": 500, "several limits denies": 150,
					"plain: a cost": 400, "plain: an odd log": 400, "plain: takes of one log": 800,
					"mode c, shadow": 1500, "mode d": 60, "mode p": 200, "mode r": 100,
					"mode vc": 800, "mode vd": 10, "mode vp": 50, "mode vr": 20,
				}
				for path, n := range least {
					least[path] = testlen.Of(max(n/20, 1), n)
				}
				answers, left := traceBatches(t, c, single, repeats, func() bool { return p.few(least) })
				t.Logf("%6d logs that have emptied after another one", left)
				if p.want(t, least); single && left < testlen.Of(10, 200) {
					t.Errorf("of %d logs only %d had emptied after another one", answers, left)
				}
			})
		}
	}
}

// traceBatches goes on beyond the usual number of answers, up to ten times as many, while few reports that a path has
// answered too rarely.
func traceBatches(t *testing.T, c clock, single, repeats bool, few func() bool) (answers, left int) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	logs, oracle := newStore(c), new(coretest.FakeStore)
	most := testlen.Of(5000, 25_000)
	for n := 0; answers < most || few() && answers < 10*most; n++ {
		tr := &batchTrace{
			t: t, r: r, c: c, store: logs, oracle: oracle, single: single, repeats: repeats,
			desc:   fmt.Sprintf("seed %#x, trace %d", seed, n),
			keys:   keysOf(t, 6, fmt.Sprintf("trace-%x-%d", seed, n)),
			limits: batchPolicies[n%len(batchPolicies)],
			ids:    rand.Uint64(),

			unitsOnly: n/4%2 == 0,
		}
		tr.run(n % 4)
		answers += tr.answers
		left += tr.left
	}
	return answers, left
}

func (tr *batchTrace) run(kind int) {
	for _, l := range tr.limits {
		tr.keep = max(tr.keep, l.Window)
	}
	switch kind {
	case 2:
		for range 4 {
			limits := slices.Clone(tr.limits)
			for i := range limits {
				limits[i].Quota = 1 + tr.r.IntN(2*limits[i].Quota)
				limits[i].Window = time.Duration(1+tr.r.Int64N(tr.keep.Milliseconds())) * time.Millisecond
			}
			tr.varied = append(tr.varied, limits)
		}
	case 3:
		shadow := batchPolicies[tr.r.IntN(len(batchPolicies))]
		for _, l := range shadow {
			tr.keep = max(tr.keep, l.Window)
		}
		tr.limits, tr.shadow = slices.Concat(tr.limits, shadow), shadow
	}
	for range testlen.Of(30, 150) {
		tr.wait()
		switch k := tr.r.IntN(24); {
		case k < 18:
			tr.batch(store.ModeCharge)
		case k < 19:
			tr.batch(store.ModePeek)
		case k < 20:
			tr.batch([]store.Mode{store.ModeRecord, store.ModeChargeDenied}[tr.r.IntN(2)])
		case k < 22:
			tr.settle()
		case k < 23:
			tr.log(tr.keys[tr.r.IntN(len(tr.keys))])
		case tr.r.IntN(2) == 0:
			tr.merge(tr.keys[tr.r.IntN(len(tr.keys))])
		default:
			tr.reset(tr.keys[tr.r.IntN(len(tr.keys))])
		}
	}
}

// wait moves time by nothing, a little, what the last denial said, or until an entry leaves, give or take a
// microsecond.
func (tr *batchTrace) wait() {
	d := time.Duration(0)
	switch tr.r.IntN(20) {
	case 0:
		d = time.Duration(tr.r.IntN(int(tr.keep/time.Microsecond/2))) * time.Microsecond
	case 2:
		d = time.Microsecond
	case 3:
		d = tr.last - time.Duration(tr.r.IntN(2))*time.Microsecond
	case 4, 5:
		if n := min(len(tr.at), 10); n > 0 {
			d = tr.at[len(tr.at)-1-tr.r.IntN(n)] + tr.keep - tr.now + time.Duration(tr.r.IntN(3)-1)*time.Microsecond
		}
	case 6:
		d = tr.keep
	}
	if d > 0 {
		tr.c.Advance(d)
		tr.oracle.Advance(d)
		tr.now += d
	}
}

// batch takes from some logs at once, and from the oracle in the order in which the script decides.
func (tr *batchTrace) batch(mode store.Mode) {
	limits, p := tr.limits, store.Plan{Shadow: len(tr.shadow), Keep: tr.keep, Bound: 300}
	if tr.varied != nil && tr.r.IntN(3) > 0 {
		limits, p.Varies = tr.varied[tr.r.IntN(len(tr.varied))], true
	}
	take := store.Take{Plan: planOf(limits, p), Mode: mode}
	var batch []store.Take
	var of []int
	for range 1 + tr.r.IntN(8) {
		k := tr.r.IntN(len(tr.keys))
		if mode == store.ModeChargeDenied && slices.Contains(of, k) {
			continue // sent again, a denial that counts has the others in its numbers
		}
		tr.ids++
		take.Key, take.ID, take.Cost = tr.keys[k], tr.ids, 1
		if !tr.unitsOnly && tr.r.IntN(8) == 0 {
			take.Cost = 1 + tr.r.IntN(take.Plan.Limits[0].Quota+1)
		}
		batch, of = append(batch, take), append(of, k)
	}
	tr.countLeft(batch)
	got, err := redisstore.TakeTogether(tr.t.Context(), tr.store, tr.single, batch)
	if err != nil {
		tr.t.Fatalf("%s: %v", tr.desc, err)
	}
	for _, i := range sideBySide(batch, of) {
		want, err := tr.oracle.Take(tr.t.Context(), batch[i])
		if err != nil {
			tr.t.Fatal(err)
		}
		alike := 0
		for j := range batch {
			if of[j] == of[i] && batch[j].Cost == batch[i].Cost && mode == store.ModeCharge && take.Plan.Shadow == 0 {
				alike++
			}
		}
		if !sameVerdict(&got[i], &want, &batch[i], !tr.repeats) || alike <= 1 && !tr.repeats && got[i] != want {
			tr.t.Fatalf("%s, after %d answers: %v, mode %d, varies %v, take %d of %d, cost %d:\ngot  %+v\nwant %+v",
				tr.desc, tr.answers, take.Plan.Limits, mode, take.Plan.Varies,
				i, len(batch), batch[i].Cost, got[i], want)
		}
		tr.answers++
		if want.Allowed && mode != store.ModePeek || mode == store.ModeChargeDenied {
			tr.made = append(tr.made, store.Settlement{Key: batch[i].Key, ID: batch[i].ID})
			tr.at = append(tr.at, tr.now)
		}
		if !want.Allowed {
			tr.last = want.Retry
		}
	}
}

// countLeft counts logs that have emptied and come after another such log.
func (tr *batchTrace) countLeft(batch []store.Take) {
	if !tr.single || batch[0].Mode != store.ModeCharge || len(batch[0].Plan.Limits) > 1 || batch[0].Plan.Varies {
		return
	}
	before := 0
	var seen []string
	for _, take := range batch {
		if slices.Contains(seen, take.Key.String()) {
			continue
		}
		seen = append(seen, take.Key.String())
		all, _ := tr.oracle.Log(tr.t.Context(), take.Key, 1<<62)
		held, _ := tr.oracle.Log(tr.t.Context(), take.Key, tr.keep)
		if len(all) == len(held) {
			before = 0
			continue
		}
		if before++; before > 1 {
			tr.left++
		}
	}
}

// settle corrects one of the youngest takes.
func (tr *batchTrace) settle() {
	if len(tr.made) == 0 {
		return
	}
	s := tr.made[len(tr.made)-1-tr.r.IntN(min(len(tr.made), 20))]
	s.Cost = []int{0, 0, tr.r.IntN(12), tr.r.IntN(400)}[tr.r.IntN(4)]
	if tr.unitsOnly {
		s.Cost = min(s.Cost, 1)
	}
	tr.must(listing(tr.store).Settle(tr.t.Context(), s))
	tr.must(tr.oracle.Settle(tr.t.Context(), s))
}

func (tr *batchTrace) merge(key store.Key) {
	m := store.MergeRequest{Key: key, Keep: tr.keep, Varies: tr.varied != nil && tr.r.IntN(2) == 0}
	for range tr.r.IntN(4) {
		tr.ids++
		age := time.Duration(tr.r.Int64N(int64(tr.keep/time.Microsecond))) * time.Microsecond
		entry := store.Entry{ID: tr.ids, Age: age, Cost: 1}
		if !tr.unitsOnly {
			entry.Cost += tr.r.IntN(3)
		}
		m.Entries = append(m.Entries, entry)
	}
	tr.must(listing(tr.store).Merge(tr.t.Context(), m))
	tr.must(tr.oracle.Merge(tr.t.Context(), m))
}

func (tr *batchTrace) reset(key store.Key) {
	tr.must(tr.store.Reset(tr.t.Context(), key))
	tr.must(tr.oracle.Reset(tr.t.Context(), key))
}

func (tr *batchTrace) log(key store.Key) {
	got, err := listing(tr.store).Log(tr.t.Context(), key, tr.keep)
	tr.must(err)
	want, err := tr.oracle.Log(tr.t.Context(), key, tr.keep)
	tr.must(err)
	if !slices.Equal(sinceFirst(got), sinceFirst(want)) {
		tr.t.Fatalf("%s: log\ngot  %v\nwant %v", tr.desc, got, want)
	}
}

type sinceEntry struct {
	since time.Duration
	cost  int
}

func sinceFirst(entries []core.Entry) []sinceEntry {
	all := make([]sinceEntry, len(entries))
	for i, e := range entries {
		all[i] = sinceEntry{e.At.Sub(entries[0].At), e.Cost}
	}
	slices.SortFunc(all, func(a, b sinceEntry) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.cost, b.cost))
	})
	return all
}

func (tr *batchTrace) must(err error) {
	tr.t.Helper()
	if err != nil {
		tr.t.Fatalf("%s: %v", tr.desc, err)
	}
}
