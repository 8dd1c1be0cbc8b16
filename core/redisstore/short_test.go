package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// Peeks, and takes whose windows vary, have short paths: these answer as the definition says, for one limit and for
// several, and it is they that answer.
func TestShortPathsAgainstOracle(t *testing.T) {
	t.Parallel()
	for _, limits := range []core.Limits{
		{{Quota: 3, Window: time.Second}},
		{{Quota: 3, Window: time.Second}, {Quota: 7, Window: 10 * time.Second}},
		{{Quota: 7, Window: 10 * time.Second}, {Quota: 3, Window: time.Second}},
	} {
		for _, varies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, varies %v", limits, varies), func(t *testing.T) {
				t.Parallel()
				asked := newPaths(newHashed(start(t)))
				c, oracle, seed := newClock(asked), new(coretest.FakeStore), rand.Uint64()
				t.Logf("seed %#x", seed)
				s, key, r := newStore(c), keysOf(t, 1, "short")[0], rand.New(rand.NewPCG(seed, 0))
				plan := store.NewPlan(*planOf(limits, store.Plan{Varies: varies}))
				for id := range uint64(testlen.Of(400, 4000)) {
					step := anyStep(r)
					c.Advance(step)
					oracle.Advance(step)
					mode := []store.Mode{store.ModeCharge, store.ModePeek}[r.IntN(2)]
					compareTake(t, s, oracle, store.Take{Key: key, Plan: plan, Cost: 1, ID: id + 1, Mode: mode})
				}
				number, least := "one limit", map[string]int{}
				if len(limits) > 1 {
					number = "several limits"
				}
				for _, kind := range []string{"", "peek, "} {
					if varies {
						kind = "varied, " + kind
					}
					n := testlen.Of(20, 200)
					least[kind+number+" admits"], least[kind+number+" denies"] = n, n
				}
				asked.want(t, least)
			})
		}
	}
}

// So do peeks at several logs.
func TestShortPeeksAtSeveralLogs(t *testing.T) {
	t.Parallel()
	one := core.Limits{{Quota: 3, Window: time.Second}}
	several := core.Limits{{Quota: 3, Window: time.Second}, {Quota: 7, Window: 10 * time.Second}}
	for _, second := range []core.Limits{one, several} {
		t.Run(fmt.Sprint(second), func(t *testing.T) {
			t.Parallel()
			asked := newJointPaths(newHashed(start(t)))
			c, oracle, seed := newClock(asked), new(coretest.FakeStore), rand.Uint64()
			t.Logf("seed %#x", seed)
			s, keys, r := redisstore.Single(newStore(c)), keysOf(t, 2, "peeks"), rand.New(rand.NewPCG(seed, 0))
			plans := []*store.Plan{
				store.NewPlan(*planOf(core.Limits{{Quota: 4, Window: 2 * time.Second}}, store.Plan{})),
				store.NewPlan(*planOf(second, store.Plan{})),
			}
			for id := range uint64(testlen.Of(400, 4000)) {
				step := anyStep(r)
				c.Advance(step)
				oracle.Advance(step)
				takes := make([]store.Take, 2)
				mode := []store.Mode{store.ModeCharge, store.ModePeek}[r.IntN(2)]
				for i := range takes {
					takes[i] = store.Take{Key: keys[i], Plan: plans[i], Cost: 1, ID: id + 1, Mode: mode}
				}
				got, want := make([]store.Answer, 2), make([]store.Answer, 2)
				if err := coretest.TakeAll(t.Context(), s, takes, got); err != nil {
					t.Fatal(err)
				}
				if err := coretest.TakeAll(t.Context(), oracle, takes, want); err != nil || got[0] != want[0] ||
					got[1] != want[1] {
					t.Fatalf("take %d, %v:\ngot  %+v\nwant %+v, %v", id, mode, got, want, err)
				}
			}
			for _, path := range []string{"peek, short reply admits", "peek, short reply denies"} {
				if n := asked.count[path]; n < testlen.Of(20, 200) {
					t.Errorf("%d answers by %s", n, path)
				}
			}
		})
	}
}

// countDenials counts in Redis how often the short path of costs denies.
const countDenials = `
if told == -1 then
  call('INCR', 'short-denials')
  call('PEXPIRE', 'short-denials', 600000)
end
`

// So do takes of any cost, also those that are denied.
func TestShortPathOfCostsAgainstOracle(t *testing.T) {
	t.Parallel()
	for _, varies := range []bool{false, true} {
		t.Run(fmt.Sprint("varies ", varies), func(t *testing.T) {
			t.Parallel()
			rdb := start(t)
			asked := newPaths(newHashed(rdb))
			c, oracle, seed := newClock(asked), new(coretest.FakeStore), rand.Uint64()
			t.Logf("seed %#x", seed)
			counted := newVariant(c, map[string]string{"cost_asked": redisstore.PartOf("cost_asked") + countDenials})
			s, key, r := newStore(counted), keysOf(t, 1, "costs")[0], rand.New(rand.NewPCG(seed, 0))
			limits := core.Limits{{Quota: 50, Window: 10 * time.Second}}
			plan := store.NewPlan(*planOf(limits, store.Plan{Varies: varies}))
			for id := range uint64(testlen.Of(400, 4000)) {
				step := time.Duration(r.IntN(3)) * 400 * time.Millisecond
				c.Advance(step)
				oracle.Advance(step)
				compareTake(t, s, oracle, store.Take{Key: key, Plan: plan, Cost: 2 + r.IntN(8), ID: (id + 1) * 7})
			}
			kind := ""
			if varies {
				kind = "varied, "
			}
			asked.want(t, map[string]int{kind + "a cost admits": testlen.Of(20, 200)})
			if n, _ := rdb.Get(t.Context(), "short-denials").Int(); n < testlen.Of(20, 200) {
				t.Errorf("%d denials by the short path", n)
			}
		})
	}
}

// countBookings counts in Redis how often the short path books.
const countBookings = `
  call('INCR', 'short-bookings')
  call('PEXPIRE', 'short-bookings', 600000)
  return true
`

// So do bookings which settle the one before, also if each command is sent twice.
func TestShortPathOfBookingsAgainstOracle(t *testing.T) {
	testlen.SkipRace(t)
	t.Parallel()
	for _, repeats := range []bool{false, true} {
		t.Run(fmt.Sprint("sent twice ", repeats), func(t *testing.T) {
			t.Parallel()
			rdb := start(t)
			seed := rand.Uint64()
			t.Logf("seed %#x", seed)
			part := strings.Replace(redisstore.PartOf("book_short"), "  return true\n", countBookings, 1)
			c, oracle := newClock(newHashed(rdb)), new(coretest.FakeStore)
			c.processor = sentTwice(t, c.processor, repeats)
			counted := newVariant(c, map[string]string{"book_short": part})
			s, key, r := newStore(counted).(store.Leaser), keysOf(t, 1, "bookings")[0], rand.New(rand.NewPCG(seed, 0))
			plan := store.NewPlan(*planOf(core.Limits{{Quota: 2000, Window: 10 * time.Second}}, store.Plan{}))
			b := store.Booking{Take: store.Take{Key: key, Plan: plan}}
			n := testlen.Of(2000, 8000)
			for id := range uint64(n) {
				step := time.Duration(max(r.IntN(5)-2, 0)) * 100 * time.Millisecond
				if r.IntN(20) == 0 {
					step = time.Duration(r.IntN(12_000)) * time.Millisecond
				}
				c.Advance(step)
				oracle.Advance(step)
				if b.Settled > 0 && r.IntN(4) == 0 {
					settled := store.Settlement{Key: key, ID: b.Settled}
					err := errors.Join(s.Settle(t.Context(), settled), oracle.Settle(t.Context(), settled))
					if err != nil {
						t.Fatal(err)
					}
					b.Settled = 0
				}
				b.Take.ID, b.ID, b.Take.Cost = r.Uint64(), 2*id+1, 1+r.IntN(2)*r.IntN(5)
				b.Most, b.Share, b.Lease = 2+r.IntN(40), 1+r.IntN(9), time.Duration(1+r.IntN(4))*100*time.Millisecond
				var got store.Booked
				for sent := range 1 + r.IntN(10)/9 {
					if sent > 0 { // once more, when the lease has ended
						c.Advance(400 * time.Millisecond)
						oracle.Advance(400 * time.Millisecond)
					}
					var err error
					got, err = s.Book(t.Context(), b)
					want, wrong := oracle.Book(t.Context(), b)
					if repeats { // the second answer is with the units that were booked
						got.Answer.State = want.Answer.State
					}
					if sent > 0 { // and may be without room
						got.Answer, want.Answer = store.Answer{
							Allowed: got.Answer.Allowed,
						}, store.Answer{
							Allowed: want.Answer.Allowed,
						}
					}
					if err != nil || wrong != nil || got != want {
						t.Fatalf("booking %d, %+v:\ngot  %+v, %v\nwant %+v, %v", id, b, got, err, want, wrong)
					}
				}
				if b.Settled = 0; got.Units > 0 {
					b.Settled, b.Used = b.ID, r.IntN(2)*r.IntN(got.Units+1)
				}
			}
			if short, _ := rdb.Get(t.Context(), "short-bookings").Int(); short < n/5 {
				t.Errorf("%d of %d bookings by the short path", short, n)
			}
		})
	}
}

// anyStep is how long a log is left alone.
func anyStep(r *rand.Rand) time.Duration {
	part := time.Duration(r.Int64N(int64(1500 * time.Millisecond))).Truncate(time.Microsecond)
	steps := []time.Duration{0, time.Microsecond, 250 * time.Millisecond, part}
	return steps[r.IntN(4)]
}
