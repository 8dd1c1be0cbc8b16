package denycache

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// Whatever a process asks, settles and resets, a denial that it remembers is the one that the store would give, with
// the same numbers. In a list the other answers are not known.
func TestAgainstTheStore(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	remembered, lists := 0, 0
	for i := range testlen.Of(50, 2000) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			s, d := new(definition.Store), New(time.Duration(1+r.IntN(30))*time.Second, 0)
			s.Advance(time.Since(s.Now()))
			limits := []*store.Limit{
				{Log: "10s", Quota: 1 + r.IntN(6), Window: 10 * time.Second},
				{Log: "10s", Quota: 1 + r.IntN(6), Window: 10 * time.Second}, // another quota on the same log
				{Log: "1m", Quota: 1 + r.IntN(20), Window: time.Minute},
				{Log: "w", Quota: 1 + r.IntN(6), Window: 7 * time.Second, Algorithm: store.FixedWindow},
				{Log: "p", Quota: 1 + r.IntN(3), Window: time.Minute, Permits: true},
			}
			keys := []store.Key{store.NewKey("p", "a"), store.NewKey("p", "b")}
			ids := uint64(0)
			made := []store.Take{}
			for range 300 {
				if r.IntN(3) == 0 {
					step := time.Duration(r.Int64N(int64(time.Second))).Truncate(time.Microsecond)
					time.Sleep(step)
					s.Advance(step)
				}
				k := keys[r.IntN(2)]
				if len(made) > 0 && r.IntN(10) == 0 {
					m := made[r.IntN(len(made))]
					cost := r.IntN(m.Cost + 2)
					err := s.Settle(t.Context(), store.Settlement{
						Key: m.Key, Limit: m.Limit, ID: m.ID, Was: m.Cost, Cost: cost,
					})
					if err != nil {
						t.Fatal(err)
					}
					d.Forget(&m.Key, m.Limit)
					continue
				}
				if r.IntN(50) == 0 {
					if err := s.Reset(t.Context(), k, limits[:1], 0); err != nil {
						t.Fatal(err)
					}
					d.Forget(&k, limits[0])
					continue
				}
				ids++
				first := &store.Take{
					Key: k, Limit: limits[r.IntN(5)], Cost: 1 + r.IntN(3), ID: ids, Mode: store.Mode(r.IntN(5)),
				}
				if first.Limit.Algorithm != store.SlidingLog && first.Mode != store.ModeAtMost {
					first.Mode = store.ModeCharge
				}
				takes := []store.Take{*first}
				if second := *first; r.IntN(3) == 0 && second.Limit.Algorithm == store.SlidingLog {
					if second.Limit = limits[2]; first.Limit != limits[2] {
						takes = append(takes, second)
					}
				}
				answers := make([]store.Answer, len(takes))
				if d.Lookup(takes, answers) {
					remembered++
					if len(takes) > 1 {
						lists++
					}
					known := 0
					for i, a := range answers {
						if !a.Known {
							continue
						}
						known++
						peek, want := takes[i], make([]store.Answer, 1)
						if peek.Mode == store.ModeAtMost {
							peek.Cost = 1
						}
						peek.Mode = store.ModePeek
						if err := s.Take(t.Context(), []store.Take{peek}, want); err != nil {
							t.Fatal(err)
						}
						if a.Allowed || a != want[0] {
							t.Fatalf("seed %#x, %d: %+v of %v is remembered, the store has %+v",
								seed, i, a, &peek, want[0])
						}
					}
					if known == 0 {
						t.Fatal("a denial without an answer")
					}
					continue
				}
				asked := time.Now()
				if err := s.Take(t.Context(), takes, answers); err != nil {
					t.Fatal(err)
				}
				d.Note(takes, answers, asked)
				if answers[0].Allowed && first.Mode == store.ModeCharge && len(takes) == 1 && !first.Limit.Permits {
					made = append(made, takes[0])
				}
			}
		})
	}
	if remembered < 200 || lists < 20 {
		t.Errorf("%d denials were remembered, %d of lists", remembered, lists)
	}
}

// In an outage a log that was used up denies with the numbers that the store would give, until a unit leaves it.
func TestNumbersInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := new(definition.Store), New(time.Second, 100)
		s.Advance(time.Since(s.Now()))
		takes := []store.Take{{
			Key: store.NewKey("p", "k"), Limit: &store.Limit{Log: "1m", Quota: 3, Window: time.Minute},
		}}
		ask := func(cost int, mode store.Mode) []store.Answer {
			takes[0].Cost, takes[0].Mode = cost, mode
			takes[0].ID++
			answers := make([]store.Answer, len(takes))
			if err := s.Take(t.Context(), takes, answers); err != nil {
				t.Fatal(err)
			}
			return answers
		}
		for cost := 2; cost > 0; cost-- {
			d.Note(takes, ask(cost, store.ModeCharge), time.Now())
			time.Sleep(20 * time.Second)
			s.Advance(20 * time.Second)
		}
		want, got := ask(1, store.ModePeek), make([]store.Answer, len(takes))
		if takes[0].Mode = store.ModeCharge; !d.InOutage(takes, got) || got[0] != want[0] {
			t.Errorf("%+v, the store has %+v", got[0], want[0])
		}
	})
}

func denied(wait time.Duration) []store.Answer {
	return []store.Answer{{Known: true, Used: 5, Retry: wait, Reset: wait}}
}

func TestLookup(t *testing.T) {
	limit := &store.Limit{Log: "1h", Quota: 5, Window: time.Hour}
	take := store.Take{Key: store.NewKey("p", "k"), Limit: limit, Cost: 2}
	with := func(f func(*store.Take)) store.Take {
		other := take
		f(&other)
		return other
	}
	same := *limit
	larger := *limit
	larger.Quota = 6
	for _, c := range []struct {
		name string
		take store.Take
		want bool
	}{
		{"the same", take, true},
		{"an equal limit", with(func(t *store.Take) { t.Limit = &same }), true},
		{"a larger quota", with(func(t *store.Take) { t.Limit = &larger }), false},
		{"a larger cost", with(func(t *store.Take) { t.Cost = 3 }), false},
		{"a smaller cost", with(func(t *store.Take) { t.Cost = 1 }), false},
		{"another key", with(func(t *store.Take) { t.Key = store.NewKey("p", "other") }), false},
		{"a peek", with(func(t *store.Take) { t.Mode = store.ModePeek }), true},
		{"a record", with(func(t *store.Take) { t.Mode = store.ModeRecord }), false},
		{"a denial that is recorded", with(func(t *store.Take) { t.Mode = store.ModeChargeDenied }), false},
		{"at most", with(func(t *store.Take) { t.Mode = store.ModeAtMost }), false}, // which asks for one unit
	} {
		d := New(time.Second, 0)
		d.Note([]store.Take{take}, denied(time.Hour), time.Now())
		if got := d.Lookup([]store.Take{c.take}, make([]store.Answer, 1)); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// A denial ends with its greatest age, and is not remembered if the log was changed while it was on its way.
func TestDenialsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := []store.Take{{
			Key: store.NewKey("p", "k"), Limit: &store.Limit{Log: "1h", Quota: 5, Window: time.Hour}, Cost: 2,
		}}
		found := func(d *Cache) bool { return d.Lookup(takes, make([]store.Answer, 1)) }
		for age, wait := range map[time.Duration]time.Duration{time.Second: time.Hour, time.Hour: time.Second} {
			d := New(age, 0)
			asked := time.Now()
			time.Sleep(100 * time.Millisecond)
			d.Note(takes, denied(wait), asked)
			if time.Sleep(900*time.Millisecond - 1); !found(d) || d.Len() != 1 {
				t.Errorf("age %v, wait %v: forgotten too early", age, wait)
			}
			if time.Sleep(time.Nanosecond); found(d) || d.Len() != 0 {
				t.Errorf("age %v, wait %v: remembered for too long", age, wait)
			}
			asked = time.Now()
			d.Forget(&takes[0].Key, takes[0].Limit)
			if d.Note(takes, denied(time.Hour), asked); found(d) {
				t.Error("remembered although the log was changed")
			}
		}
		d := New(0, 0)
		if d.Note(takes, denied(time.Hour), time.Now()); found(d) {
			t.Error("remembered by a cache that is off")
		}
	})
}

// A flood of keys that are denied does not fill the memory.
func TestBounded(t *testing.T) {
	d := New(time.Minute, 0)
	for i := range 3 * shardCount * mostInAShard {
		takes := []store.Take{{
			Key: store.NewKey("p", fmt.Sprint(i)), Limit: &store.Limit{Log: "1h", Quota: 5, Window: time.Hour}, Cost: 1,
		}}
		d.Note(takes, denied(time.Hour), time.Now())
	}
	if n := d.Len(); n > shardCount*mostInAShard || n < shardCount*mostInAShard/4 {
		t.Errorf("%d denials", n)
	}
}

// Where denials that have ended make room, the others stay.
func TestRoomOfWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(time.Hour, 0)
		takes := []store.Take{{Limit: &store.Limit{Log: "1h", Quota: 5, Window: time.Hour}, Cost: 1}}
		note := func(n int, name string, wait time.Duration) {
			for i := range n {
				takes[0].Key = store.NewKey("p", name+fmt.Sprint(i))
				d.Note(takes, denied(wait), time.Now())
			}
		}
		const lasting, half = 200, shardCount * mostInAShard / 2 // so in many shards these do not fit twice
		note(lasting, "lasts", time.Hour)
		note(half, "ends", time.Second)
		time.Sleep(time.Second)
		note(half, "later", time.Second)
		for i := range lasting {
			if takes[0].Key = store.NewKey("p", "lasts"+fmt.Sprint(i)); !d.Lookup(takes, make([]store.Answer, 1)) {
				t.Fatalf("denial %d is not there any more", i)
			}
		}
	})
}

// A denial of more units does not replace one of fewer.
func TestLeastCost(t *testing.T) {
	d, takes := one()
	more := []store.Take{takes[0]}
	more[0].Cost = 2
	if d.Note(more, denied(time.Hour), time.Now()); !d.Lookup(takes, make([]store.Answer, 1)) {
		t.Error("the denial of one unit is not there any more")
	}
}

func TestLookupAllocatesNothing(t *testing.T) {
	d, takes := one()
	if n := testing.AllocsPerRun(100, func() { d.Lookup(takes, make([]store.Answer, 1)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func one() (*Cache, []store.Take) {
	d := New(time.Hour, 0)
	takes := []store.Take{{
		Key: store.NewKey("p", "client 7"), Limit: &store.Limit{Log: "1h", Quota: 5, Window: time.Hour}, Cost: 1,
	}}
	d.Note(takes, denied(time.Hour), time.Now())
	return d, takes
}

func BenchmarkLookup(b *testing.B) {
	d, takes := one()
	b.RunParallel(func(pb *testing.PB) {
		for answers := make([]store.Answer, 1); pb.Next(); {
			if !d.Lookup(takes, answers) {
				b.Fatal("no denial")
			}
		}
	})
}
