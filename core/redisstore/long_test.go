package redisstore_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// To longLogs a log of more than so many members is a long one.
const many = 5

func longLogs(c processor) variant {
	return newVariant(c, sizes(strconv.Itoa(many)))
}

// What a store must do it does with long logs as well.
func TestStoreOfLongLogs(t *testing.T) {
	testlen.SkipRace(t)
	t.Parallel()
	for name, repeats := range map[string]bool{"once": false, "twice": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			empty := startOnce(t)
			var running string
			coretest.Store(t, coretest.StoreConfig{
				Checks:  6_000,
				Repeats: repeats,
				New: func(t *testing.T) (core.Store, func(time.Duration)) {
					c := newClock(empty(t))
					if repeats {
						c.processor = twice{processor: c.processor, t: t}
					}
					s := newStore(longLogs(c))
					if isJointCase(running) { // in turn, a second execution may meet what others have given back
						s = redisstore.Single(s)
					}
					return s, c.Advance
				},
				Run: func(t *testing.T, name string, f func(*testing.T)) {
					running = name
					t.Run(name, f)
				},
			})
		})
	}
}

// longLog is one key under takes that know a short window only and under takes of a long one, with a list of what they
// recorded beside it. Once the first take of the long window has come, no entry may leave before that window ends.
type longLog struct {
	t      *testing.T
	r      *rand.Rand
	rdb    *redis.Client
	store  core.Store
	clock  clock
	keys   []store.Key // the first is the log; others make batches
	now    time.Duration
	id     uint64
	units  []unit
	varied bool
	kinds  map[string]int // how often the log had which mark
}

type unit struct {
	id   uint64
	at   time.Duration
	n    int
	part bool // some of it has been trimmed away, so that its cost does not change any more
}

const short, long = time.Second, 20 * time.Second

func (l *longLog) take(varies bool) store.Take {
	l.id++
	plan := planOf(core.Limits{{Quota: 40, Window: short}}, store.Plan{Keep: short})
	t := store.Take{Key: l.keys[0], Plan: plan, Cost: 1, ID: l.id}
	if varies {
		t.Plan = planOf(core.Limits{{Quota: 60, Window: long}}, store.Plan{Keep: long, Varies: true})
	}
	if l.r.IntN(3) == 0 {
		t.Cost = 1 + l.r.IntN(8)
	}
	return t
}

// used is what a window must hold.
func (l *longLog) used(window time.Duration) (n int) {
	for _, u := range l.units {
		if l.now-window < u.at {
			n += u.n
		}
	}
	return n
}

func (l *longLog) decide(varies bool) {
	l.vary(varies)
	t := l.take(varies)
	batch := []store.Take{t}
	if !varies { // in a batch behind a log that entries have left, a log is trimmed before it is looked at
		other := t
		other.Key, other.Cost = l.keys[1], 1
		other.ID += 1 << 32
		batch = []store.Take{other, t}
	}
	answers, err := redisstore.TakeTogether(l.t.Context(), l.store, true, batch)
	if err != nil {
		l.t.Fatal(err)
	}
	got := answers[len(answers)-1]
	used := l.used(t.Plan.Limits[0].Window)
	if allowed := used+t.Cost <= t.Plan.Limits[0].Quota; got.Allowed != allowed || got.State[0].Used != used {
		l.t.Fatalf("take %d, varies %v, cost %d: allowed %v, used %d; want %v, %d\n%v",
			l.id, varies, t.Cost, got.Allowed, got.State[0].Used, allowed, used, l.units)
	}
	if got.Allowed {
		l.units = append(l.units, unit{id: t.ID, at: l.now, n: t.Cost})
	} else if varies && !l.marked() {
		l.varied = false // a denial leaves no mark
	}
}

// settle changes the cost of one take, mostly to nothing.
func (l *longLog) settle() {
	if len(l.units) == 0 {
		return
	}
	i := l.r.IntN(len(l.units))
	cost := max(0, l.r.IntN(12)-8)
	settlement := store.Settlement{Key: l.keys[0], ID: l.units[i].id, Cost: cost}
	if err := full(l.store).Settle(l.t.Context(), settlement); err != nil {
		l.t.Fatal(err)
	}
	if l.units[i].part {
		return
	}
	if l.units[i].n = cost; cost == 0 {
		l.units = slices.Delete(l.units, i, i+1)
	}
}

func (l *longLog) merge(varies bool) {
	l.vary(varies)
	l.id++
	m := store.MergeRequest{Key: l.keys[0], Keep: short, Varies: varies}
	if varies {
		m.Keep = long
	}
	age := time.Duration(l.r.Int64N(int64(short/time.Microsecond))) * time.Microsecond
	e := store.Entry{ID: l.id, Age: age, Cost: 1 + l.r.IntN(9)}
	m.Entries = []store.Entry{e}
	for range 2 {
		if err := full(l.store).Merge(l.t.Context(), m); err != nil {
			l.t.Fatal(err)
		}
	}
	l.units = append(l.units, unit{id: e.ID, at: l.now - e.Age, n: e.Cost})
	slices.SortStableFunc(l.units, func(a, b unit) int { return cmp.Compare(a.at, b.at) })
}

// vary notes that takes of the long window begin. Until then units stay for longer than the short window, or not, as it
// happens; from now on all that are there stay.
func (l *longLog) vary(varies bool) {
	if l.varied || !varies {
		return
	}
	l.varied = true
	there := map[string]int{}
	for _, z := range l.rdb.ZRangeWithScores(l.t.Context(), l.key(), 0, -1).Val() {
		if member := z.Member.(string); z.Score >= 1 { // an entry
			there[member[:8]]++
			if len(member) == 8 {
				there[member+" whole"]++
			}
		}
	}
	for id, weight := range weightsOf(l.t, l.rdb, l.key()) {
		there[id[:8]] += weight
	}
	for i := range l.units {
		var id [8]byte
		binary.BigEndian.PutUint64(id[:], l.units[i].id)
		l.units[i].n, l.units[i].part = there[string(id[:])], there[string(id[:])+" whole"] == 0
	}
	l.units = slices.DeleteFunc(l.units, func(u unit) bool { return u.n == 0 })
}

func (l *longLog) marked() bool {
	first := l.rdb.ZRangeWithScores(l.t.Context(), l.key(), 0, 0).Val()
	return len(first) > 0 && first[0].Score <= 0
}

func (l *longLog) key() string { return "sash:" + string(l.keys[0].AppendTo(nil)) }

func (l *longLog) advance(d time.Duration) {
	l.clock.Advance(d)
	l.now += d
	l.units = slices.DeleteFunc(l.units, func(u unit) bool { return u.at <= l.now-long })
}

// invariant: scores are doubled where the mark says so, and where it says that they are not the log is long.
func (l *longLog) invariant() {
	all, err := l.rdb.ZRangeWithScores(l.t.Context(), l.key(), 0, -1).Result()
	if err != nil {
		l.t.Fatal(err)
	}
	kind := "none"
	if len(all) > 0 && all[0].Score == 0 {
		kind = all[0].Member.(string)[:5]
	} else if len(all) > 0 && all[0].Score < 0 {
		kind = [2]string{"keep:", "near:"}[all[0].Member.(string)[31]>>7]
	}
	weightsOf(l.t, l.rdb, l.key())
	all = slices.DeleteFunc(all, func(z redis.Z) bool { return z.Score < 1 }) // the mark, or the summary and blocks
	l.kinds[kind]++
	if kind == "near:" && len(all) < many {
		l.t.Fatalf("take %d: a log of %d units has its own scores", l.id, len(all))
	}
	for _, e := range all {
		if e.Score < 2.6e15 == (kind == "keep:") {
			l.t.Fatalf("take %d: mark %s, score %s", l.id, kind, strconv.FormatFloat(e.Score, 'f', 0, 64))
		}
	}
}

// The scores of a long log do not change when windows begin to vary. Takes that know a short window only remove
// nothing that is still needed, whatever else makes the log shorter or longer.
func TestLongLogsBecomeVaried(t *testing.T) {
	testlen.SkipRace(t)
	t.Parallel()
	for name, repeats := range map[string]bool{"once": false, "twice": true} {
		t.Run(name, func(t *testing.T) {
			rdb := start(t)
			const seed = 23
			r := rand.New(rand.NewPCG(seed, 1))
			kinds := map[string]int{}
			for trace := range testlen.Of(30, 60) {
				c := newClock(rdb)
				if repeats {
					c.processor = always{c.processor}
				}
				logs := newStore(longLogs(c))
				keys := keysOf(t, 2, fmt.Sprint(name, trace))
				l := &longLog{t: t, r: r, rdb: rdb, store: logs, clock: c, keys: keys, kinds: kinds}
				for range testlen.Of(40, 150) {
					switch k := r.IntN(40); {
					case k < 18:
						l.decide(false)
					case k < 24 && (l.varied || r.IntN(6) == 0):
						l.decide(true)
					case k < 29:
						l.settle()
					case k < 30 && l.varied:
						l.merge(r.IntN(2) == 0)
					case k < 39:
						few := int64(400 * time.Millisecond / time.Microsecond)
						l.advance(time.Duration(r.Int64N(few)) * time.Microsecond)
					default:
						l.advance(time.Duration(r.IntN(25)) * time.Second)
					}
					l.invariant()
				}
			}
			if kinds["none"] == 0 || kinds["keep:"] == 0 || kinds["near:"] == 0 {
				t.Errorf("logs of each kind: %v: the test proves little", kinds)
			}
			t.Log(kinds)
		})
	}
}

// always executes every command twice. Only verdicts are the same then, so the first reply is given.
type always struct{ processor }

func (c always) Process(ctx context.Context, cmd redis.Cmder) error {
	if err := c.processor.Process(ctx, cmd); err != nil {
		return err
	}
	first := cmd.(*redis.IntSliceCmd).Val()
	err := c.processor.Process(ctx, cmd)
	cmd.(*redis.IntSliceCmd).SetVal(first)
	return err
}
