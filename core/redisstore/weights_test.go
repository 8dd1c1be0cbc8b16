package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// weightTrace is the life of a long log with weights, beside an exact and slow store.
type weightTrace struct {
	t      *testing.T
	r      *rand.Rand
	rdb    *redis.Client
	c      clock
	store  core.Store
	oracle *coretest.FakeStore
	desc   string

	key        store.Key
	plan       *store.Plan
	ids        uint64
	sequential bool
	made       []uint64
	last       time.Duration // the wait of the last denial
	answers    int
	blocks     int // how many blocks of weights the log had at most
}

// countLongForms counts, under a key of the server, the answers of the path cost to questions in the long form.
const countLongForms = `
if told ~= 0 and not plain then
  call('INCR', 'long-forms')
  call('PEXPIRE', 'long-forms', 600000)
end
`

// TestWeightsAgainstOracle compares logs of many entries of large costs with the oracle.
func TestWeightsAgainstOracle(t *testing.T) {
	testlen.SkipRace(t)
	t.Parallel()
	least := testlen.Of(400, 2000)
	for _, repeats := range []bool{false, true} {
		for n, limits := range []core.Limits{
			{{Quota: 2_000_000, Window: 10 * time.Second}},
			{{Quota: 400_000, Window: time.Second}, {Quota: 2_000_000, Window: 10 * time.Second}},
			{{Quota: core.MaxQuota, Window: 3 * time.Second}},
			{{Quota: core.MaxQuota, Window: time.Minute}},
			{{Quota: core.MaxQuota, Window: 24 * time.Hour}}, // asked about in the long form
		} {
			t.Run(fmt.Sprintf("%v, sent twice %v", limits, repeats), func(t *testing.T) {
				rdb := start(t)
				c := newClock(rdb)
				contents := make(map[string]string)
				if n == 4 {
					contents["cost_asked"] = redisstore.PartOf("cost_asked") + countLongForms
				}
				if repeats {
					c.processor = twice{processor: c.processor, t: t}
				}
				asked := newPaths(c.processor)
				c.processor = asked
				var sent processor = c
				if len(contents) > 0 {
					sent = newVariant(c, contents)
				}
				seed := rand.Uint64()
				tr := &weightTrace{
					t: t, r: rand.New(rand.NewPCG(seed, 5)), rdb: rdb, c: c, store: newStore(sent),
					oracle: new(coretest.FakeStore), key: keysOf(t, 1, fmt.Sprint("weights", n))[0],
					plan: planOf(limits, store.Plan{Bound: limits[0].Quota}), desc: fmt.Sprintf("seed %#x", seed),
					sequential: n%2 == 1,
				}
				for tr.answers < least || tr.few() && tr.answers < 10*least {
					tr.step(repeats)
				}
				t.Logf("%d answers, %d blocks at most", tr.answers, tr.blocks)
				if tr.few() {
					t.Errorf("%d blocks are too few", tr.blocks)
				}
				switch {
				case len(limits) > 1 || repeats: // no short path answers
				case n == 4:
					if short, _ := rdb.Get(t.Context(), "long-forms").Int(); short < tr.answers/5 {
						t.Errorf("%d of %d answers by the short path", short, tr.answers)
					}
				default:
					asked.want(t, map[string]int{"a cost admits": tr.answers / 5})
				}
			})
		}
	}
}

// few reports whether the log never had so many blocks of weights that all searches were needed.
func (tr *weightTrace) few() bool { return tr.blocks < 12 }

func (tr *weightTrace) step(repeats bool) {
	tr.wait()
	switch k := tr.r.IntN(100); {
	case k < 60:
		tr.take(store.ModeCharge)
	case k < 75:
		tr.take(store.ModePeek)
	case k < 76 && !repeats && tr.sequential: // sent twice, a denial that counts has itself in its numbers
		tr.take(store.ModeChargeDenied)
	case k < 79 && !repeats && tr.sequential: // nor is it known what was trimmed for it
		tr.take(store.ModeRecord)
	case k < 93:
		tr.settle()
	case k < 96:
		tr.merge()
	default:
		tr.compareLogs()
	}
}

func (tr *weightTrace) wait() {
	keep := tr.plan.Keep
	d := time.Duration(tr.r.Int64N(int64(keep/900/time.Microsecond))) * time.Microsecond
	switch tr.r.IntN(60) {
	case 0, 1, 2:
		d = tr.last - time.Duration(tr.r.IntN(2))*time.Microsecond
	case 3:
		d = time.Duration(tr.r.Int64N(int64(keep/8/time.Microsecond))) * time.Microsecond
	case 4, 5, 6, 7, 8, 9:
		d = 0
	}
	if tr.r.IntN(2000) == 0 {
		d = keep
	}
	d = max(d, 0)
	tr.c.Advance(d)
	tr.oracle.Advance(d)
}

func (tr *weightTrace) nextID() uint64 {
	if tr.sequential {
		tr.ids++
		return tr.ids
	}
	if tr.sequential { // of one instant, the smallest is the oldest
		tr.ids++
		return tr.ids
	}
	return tr.r.Uint64()
}

func (tr *weightTrace) take(mode store.Mode) {
	quota := tr.plan.Limits[0].Quota
	cost := 1
	switch tr.r.IntN(10) {
	case 0, 1, 2, 3, 4, 5:
		cost = 1 + tr.r.IntN(quota/900)
	case 6:
		cost = 1 + tr.r.IntN(quota)
		if mode == store.ModeCharge && tr.r.IntN(10) > 0 {
			mode = store.ModePeek // a log of few entries is of no interest here
		}
	}
	take := store.Take{Key: tr.key, Plan: tr.plan, ID: tr.nextID(), Cost: cost, Mode: mode}
	got, err := coretest.Take(tr.t.Context(), tr.store, take)
	tr.must(err)
	want, err := coretest.Take(tr.t.Context(), tr.oracle, take)
	tr.must(err)
	if got != want {
		tr.t.Fatalf("%s, after %d answers: %v, %v, cost %d:\ngot  %+v\nwant %+v", tr.desc, tr.answers,
			tr.plan.Limits, mode, cost, got, want)
	}
	tr.answers++
	if tr.last = want.Retry; mode != store.ModePeek {
		tr.made = append(tr.made, take.ID)
	}
}

// settle corrects one of all takes, mostly one of the youngest.
func (tr *weightTrace) settle() {
	if len(tr.made) == 0 {
		return
	}
	n := tr.r.IntN(min(len(tr.made), []int{20, 600}[tr.r.IntN(2)]))
	s := store.Settlement{Key: tr.key, ID: tr.made[len(tr.made)-1-n]}
	if tr.r.IntN(2) == 0 {
		s.Cost = 1 + tr.r.IntN(tr.plan.Limits[0].Quota/200)
	}
	tr.must(full(tr.store).Settle(tr.t.Context(), s))
	tr.must(tr.oracle.Settle(tr.t.Context(), s))
}

func (tr *weightTrace) merge() {
	m := store.MergeRequest{Key: tr.key, Keep: tr.plan.Keep}
	n, least, most := tr.r.IntN(4), time.Duration(0), m.Keep
	if tr.r.IntN(8) == 0 { // so many at about the same time that their weights do not all fit into a pack
		n = 80
		least = time.Duration(tr.r.Int64N(int64(most/time.Microsecond))) * time.Microsecond
		most = min(most, least+m.Keep/3000)
	}
	for range n {
		age := least + time.Duration(tr.r.Int64N(int64((most-least)/time.Microsecond)+1))*time.Microsecond
		m.Entries = append(m.Entries, store.Entry{ID: tr.nextID(), Age: age, Cost: 1 + tr.r.IntN(3000)})
	}
	tr.must(full(tr.store).Merge(tr.t.Context(), m))
	tr.must(tr.oracle.Merge(tr.t.Context(), m))
}

func (tr *weightTrace) compareLogs() {
	got, err := full(tr.store).Log(tr.t.Context(), tr.key, tr.plan.Keep)
	tr.must(err)
	want, err := tr.oracle.Log(tr.t.Context(), tr.key, tr.plan.Keep)
	tr.must(err)
	if g, w := fmt.Sprint(sinceFirst(got)), fmt.Sprint(sinceFirst(want)); g != w {
		tr.t.Fatalf("%s, after %d answers: log\ngot  %v\nwant %v", tr.desc, tr.answers, g, w)
	}
	for _, key := range tr.rdb.Keys(tr.t.Context(), "sash:*").Val() {
		weightsOf(tr.t, tr.rdb, key)
		tr.blocks = max(tr.blocks, int(tr.rdb.ZCount(tr.t.Context(), key, "(-4e15", "(0").Val()))
	}
}

func (tr *weightTrace) must(err error) {
	tr.t.Helper()
	if err != nil {
		tr.t.Fatalf("%s: %v", tr.desc, err)
	}
}

// weightsOf returns the weights of the entries of a log, by their members. It fails the test unless the sums in the log
// are those of its weights.
func weightsOf(t *testing.T, rdb *redis.Client, key string) map[string]int {
	t.Helper()
	all := rdb.ZRangeWithScores(t.Context(), key, 0, -1).Val()
	if len(all) == 0 || all[0].Score >= 0 {
		return nil
	}
	number := func(text string) (n int64) {
		for i := range len(text) {
			n = n<<8 | int64(text[i])
		}
		return n
	}
	var entries []redis.Z // newest first
	for _, z := range slices.Backward(all) {
		if z.Score >= 1 {
			entries = append(entries, z)
		}
	}
	of := make(map[string]int)
	newest := func(weights string, i int) (sum int) { // the last weight is that of entries[i]
		for ; weights != ""; i, weights = i+1, weights[:len(weights)-4] {
			weight := int(number(weights[len(weights)-4:]))
			if i >= len(entries) {
				t.Fatalf("%d entries in %d members: a weight has none", len(entries), len(all))
			}
			if _, twice := of[entries[i].Member.(string)]; twice {
				t.Fatalf("entry %d of %d has two weights", i, len(entries))
			}
			of[entries[i].Member.(string)] = weight
			sum += weight
		}
		return sum
	}
	summary := all[0].Member.(string)
	scale := 2.0
	if summary[31] >= 128 {
		scale = 1
	}
	// Weights of entries that have left; below 0, entries before all weights, or -128 if that is not known.
	gone, before := int(int8(summary[27])), len(entries)-len(summary[32:])/4
	sum, left := newest(summary[32:], 0), max(gone, 0)
	for _, z := range slices.Backward(all) { // the oldest block first
		if z.Score < -4e15 || z.Score >= 0 {
			continue
		}
		block, later := z.Member.(string), 0
		for later < len(entries) && entries[later].Score > -scale*z.Score {
			later++
		}
		if left >= 0 {
			before = len(entries) - later - len(block[14:])/4
		}
		sum += newest(block[14+4*max(left, 0):], later)
		left = -1
		units := int64(0)
		for i := 14; i < len(block); i += 4 {
			units += number(block[i : i+4])
		}
		if end := number(block[:7]); float64(-end) != z.Score || units != number(block[7:14]) {
			t.Fatalf("the block %x with score %.0f has %d units", block, z.Score, units)
		}
	}
	if gone != -128 && gone != -before {
		t.Fatalf("the summary %x: %d entries are before all weights", summary, before)
	}
	first := entries[len(entries)-1].Score / scale
	total := 1<<53 - number(summary[:7])
	if total != int64(len(entries)+sum) || float64(number(summary[7:14])) != first {
		t.Fatalf("the summary %x of %d entries from %.0f on, with %d units more", summary, len(entries), first, sum)
	}
	return of
}

// When a clock has stepped back, entries from the future move to the present with their weights. The sums of blocks
// must then not count them a second time.
func TestWeightsWhenTheClockStepsBack(t *testing.T) {
	testlen.SkipRace(t)
	for _, sequential := range []bool{false, true} {
		t.Run(fmt.Sprint("sequential ", sequential), func(t *testing.T) { stepBack(t, sequential) })
	}
}

func stepBack(t *testing.T, sequential bool) {
	const quota, keep = 2_000_000, 10 * time.Second
	rdb := start(t)
	c := newClock(rdb)
	seed := rand.Uint64()
	tr := &weightTrace{
		t: t, r: rand.New(rand.NewPCG(seed, 5)), rdb: rdb, c: c, store: newStore(c), oracle: new(coretest.FakeStore),
		key: keysOf(t, 1, "steps-back")[0], desc: fmt.Sprintf("seed %#x", seed),
		plan:       planOf(core.Limits{{Quota: quota, Window: keep}}, store.Plan{Bound: quota}),
		sequential: sequential,
	}
	const entries, apart, step = 800, 10 * time.Millisecond, 3 * time.Second
	present := store.MergeRequest{Key: tr.key, Keep: keep}
	for i := range entries {
		take := store.Take{Key: tr.key, Plan: tr.plan, ID: tr.nextID(), Cost: 2 + tr.r.IntN(1000)}
		mustTake(t, tr.store, take)
		tr.made = append(tr.made, take.ID)
		age := max(-store.LongestLease, time.Duration(entries-i)*apart-step)
		present.Entries = append(present.Entries, store.Entry{ID: take.ID, Age: age, Cost: take.Cost})
		c.Advance(apart)
	}
	c.Advance(-step)
	// The wait is that of one of the newest units.
	denied := store.Take{Key: tr.key, Plan: tr.plan, ID: tr.nextID(), Cost: quota - 5}
	a, err := coretest.Take(t.Context(), tr.store, denied)
	tr.must(err)
	if a.Allowed || a.Retry != keep+store.LongestLease {
		t.Fatalf("%s: %+v; want a denial for %v", tr.desc, a, keep+store.LongestLease)
	}
	tr.must(tr.oracle.Merge(t.Context(), present))
	for tr.answers < 2000 {
		tr.step(false)
	}
}

// An entry that counts though it was denied, and one that was trimmed in part, are not added again by a merge.
func TestMergeKnowsDeniedAndTrimmedEntries(t *testing.T) {
	s := full(newStore(newClock(start(t))))
	take := store.Take{
		Key: store.NewKey("merge", "k"), Plan: planOf(core.Limits{{Quota: 2, Window: time.Hour}}, store.Plan{Bound: 3}),
		Cost: 2, ID: 1, Mode: store.ModeChargeDenied,
	}
	mustTake(t, s, take)
	take.ID = 2
	if a, err := coretest.Take(t.Context(), s, take); err != nil || a.Allowed {
		t.Fatalf("%+v, %v; want a denial", a, err)
	}
	for id := range uint64(2) {
		m := store.MergeRequest{Key: take.Key, Keep: time.Hour, Entries: []store.Entry{{ID: id + 1, Cost: 2}}}
		if err := s.Merge(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		take.Mode = store.ModePeek
		if a, err := coretest.Take(t.Context(), s, take); err != nil || a.State[0].Used != 3 {
			t.Errorf("merged entry %d: %+v, %v; want 3 units used", id+1, a.State[0], err)
		}
	}
}

func mustTake(t *testing.T, s core.Store, take store.Take) {
	t.Helper()
	if a, err := coretest.Take(t.Context(), s, take); err != nil || !a.Allowed {
		t.Fatalf("%+v, %v", a, err)
	}
}

// A log knows how many of its oldest weights have left, or how many entries are before all weights, also where entries
// before these go, and where the clock steps back.
func TestWeightsOfEntriesThatLeave(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	s := full(newStore(c))
	take := store.Take{
		Key: keysOf(t, 1, "leave")[0], Plan: planOf(core.Limits{{Quota: 1000, Window: time.Minute}}, store.Plan{}),
	}
	admit := func(n, cost int) {
		for range n {
			c.Advance(time.Second)
			take.ID, take.Cost = take.ID+1, cost
			mustTake(t, s, take)
		}
	}
	known := func(gone, units int) {
		t.Helper()
		key := string(take.Key.AppendTo([]byte("sash:")))
		weightsOf(t, rdb, key)
		if got := int(int8(rdb.ZRange(t.Context(), key, 0, 0).Val()[0][27])); got != gone {
			t.Errorf("the weights begin at %d, want %d", got, gone)
		}
		peek := take
		peek.Mode = store.ModePeek
		if a, err := coretest.Take(t.Context(), s, peek); err != nil || a.State[0].Used != units {
			t.Errorf("%+v, %v; want %d units used", a.State[0], err, units)
		}
	}
	settle := func(id uint64, cost int) {
		t.Helper()
		if err := s.Settle(t.Context(), store.Settlement{Key: take.Key, ID: id, Cost: cost}); err != nil {
			t.Fatal(err)
		}
	}
	admit(10, 1)
	admit(40, 3)
	known(-128, 10+40*3)
	c.Advance(12 * time.Second) // three entries have left
	admit(1, 3)
	known(-7, 7+41*3)
	settle(9, 0)
	known(-128, 6+41*3)
	admit(1, 3)
	known(-5, 5+42*3)
	admit(12, 3) // six entries with weights have left
	known(6, (42+12-6)*3)
	denied := take
	denied.ID, denied.Cost = take.ID+1, 1000-(42+12-6)*3+3+3+1 // three entries have to leave
	a, err := coretest.Take(t.Context(), s, denied)
	if want := a.State[0].Reset + 2*time.Second; err != nil || a.Allowed || a.Retry != want {
		t.Errorf("%+v, %v; want a denial for %v", a, err, want)
	}
	c.Advance(-70 * time.Second)
	admit(1, 3)
	known(-128, (42+12-6+1)*3)
	c.Advance(time.Minute)
	admit(1, 3)
	known(0, 3)

	take.Key = keysOf(t, 1, "settled")[0]
	admit(1, 3)
	settle(take.ID, 1)
	admit(10, 1)
	known(-128, 11)
	admit(1, 3)
	known(-128, 14)
}

// bookings are of one log with its own clock.
type bookings struct {
	clock clock
	store store.Full
	next  store.Booking
	book  func(units int) // makes the next one, of which so many units are to be booked
}

func newBookings(t *testing.T, quota int) *bookings {
	rdb := start(t)
	c := newClock(rdb)
	b := &bookings{clock: c, store: full(newStore(c)), next: store.Booking{
		Take: store.Take{
			Key:  keysOf(t, 1, "booked")[0],
			Plan: planOf(core.Limits{{Quota: quota, Window: time.Minute}}, store.Plan{}),
			Cost: 1, ID: 1,
		},
		ID: 2, Most: 10, Share: 4, Lease: time.Second,
	}}
	b.book = func(units int) {
		t.Helper()
		booked, err := b.store.(store.Leaser).Book(t.Context(), b.next)
		if err != nil || !booked.Answer.Allowed || booked.Units != units {
			t.Errorf("%+v, %v; want %d units", booked, err, units)
		}
		weightsOf(t, rdb, "sash:"+string(b.next.Take.Key.AppendTo(nil)))
	}
	return b
}

// A booking that was settled to one unit before is settled once more, when older entries have left.
func TestSettledBookingAmongEntriesThatLeave(t *testing.T) {
	b := newBookings(t, 1000)
	b.book(10)
	b.clock.Advance(time.Second / 2)
	if err := b.store.Settle(t.Context(), store.Settlement{Key: b.next.Take.Key, ID: 2, Cost: 1}); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(time.Minute - time.Second/4) // the take has left, and the booking has not
	b.next.Take.ID, b.next.ID, b.next.Settled, b.next.Used = 3, 4, 2, 1
	b.book(10)
}

// A booking that is sent again, after one that found too little room, counts its take once.
func TestBookingSentAgainWhereThereIsRoomByNow(t *testing.T) {
	b := newBookings(t, 100)
	most := b.next.Take
	most.ID, most.Cost = 3, 95
	if err := b.store.Take(t.Context(), []store.Take{most}, make([]store.Answer, 1)); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(time.Minute / 2)
	b.book(0)
	b.clock.Advance(time.Minute/2 + time.Second)
	b.book(10)
}
