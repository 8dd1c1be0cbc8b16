package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/counter"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// shorts counts the short replies to takes, and all.
type shorts struct {
	processor

	short, all int
}

func (s *shorts) Process(ctx context.Context, cmd redis.Cmder) error {
	err := s.processor.Process(ctx, cmd)
	if s.all++; len(cmd.(*redis.IntSliceCmd).Val()) == 1 {
		s.short++
	}
	return err
}

// The scripts compute what package counter does, with windows and quotas of any size and in batches of one key, also
// when the clock is set back.
func TestCountersLikeThoseInMemory(t *testing.T) {
	t.Parallel()
	const clockBegins = 1_763_700_000_000_007 // of redistest.NewClock
	longest := 36 * 24 * time.Hour
	const second = clockBegins - 7
	calendar := store.Calendar{second - 50e6, second + 10e6, second + 600e6, second + 1190e6}
	for i, l := range []store.Limit{
		{Quota: 5, Window: time.Second, Algorithm: store.FixedWindow},
		{Quota: 10_000_000, Window: 24 * time.Hour, Algorithm: store.FixedWindow},
		{Quota: 9, Window: time.Millisecond, Algorithm: store.FixedWindow},
		{Quota: 20, Window: 10 * time.Minute, Algorithm: store.FixedWindow, Calendar: &calendar},
		{Quota: 7, Window: time.Second, Algorithm: store.SlidingCounter},
		{Quota: 7, Window: 1234567 * time.Microsecond, Algorithm: store.SlidingCounter},
		{Quota: 9_000_000, Window: longest, Algorithm: store.SlidingCounter},
		{Quota: 5, Window: time.Second, Refill: 3, Algorithm: store.TokenBucket},
		{Quota: 5, Window: time.Second, Refill: 4, Algorithm: store.TokenBucket},
		{Quota: 2, Window: 3 * time.Hour, Refill: 1, Algorithm: store.TokenBucket},
		{Quota: 1, Window: longest, Refill: 1, Algorithm: store.TokenBucket},
		{Quota: 9_999_991, Window: time.Second, Refill: 9_999_991, Algorithm: store.TokenBucket},
	} {
		t.Run(fmt.Sprint(l.Algorithm, " ", l), func(t *testing.T) {
			paths := &shorts{processor: newHashed(start(t))}
			c := newClock(paths)
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			plan, key := store.NewPlan(store.Plan{Limits: []store.Limit{l}}), keysOf(t, 1, fmt.Sprint("counter", i))[0]
			span := l.Window
			if l.Algorithm == store.TokenBucket {
				span = time.Duration(int64(l.Quota) * l.Interval()).Truncate(time.Microsecond)
			}
			s, now := newStore(c), int64(clockBegins)
			var state counter.State
			takes := testlen.Of(200, 2000)
			for id := range uint64(takes) {
				step := time.Duration(r.Int64N(int64(span/3/time.Microsecond)+1)) * time.Microsecond
				switch r.IntN(40) {
				case 0:
					step = span
				case 1:
					far := time.Duration(r.IntN(2)*r.IntN(15)) * span // more than any bucket is from full
					step = -min(step+far, time.Duration(now-clockBegins)*time.Microsecond)
				case 2, 3, 4, 5, 6, 7, 8, 9:
					step = 0
				}
				c.Advance(step)
				now += step.Microseconds()
				take := store.Take{
					Key: key, Plan: plan, Cost: 1 + r.IntN(2+l.Quota/3), ID: id + 1,
					Mode: []store.Mode{store.ModeCharge, store.ModeCharge, store.ModePeek, store.ModeUpTo}[r.IntN(4)],
				}
				if l.Calendar != nil && r.IntN(8) == 0 { // it changes
					changed := l
					changed.Calendar = new(store.Calendar)
					for i, begin := range calendar {
						changed.Calendar[i] = begin + int64(r.IntN(5)-2)*2e6
					}
					plan, l = store.NewPlan(store.Plan{Limits: []store.Limit{changed}}), changed
					take.Plan = plan
				}
				got, err := coretest.Take(t.Context(), s, take)
				if err != nil {
					t.Fatal(err)
				}
				if want := countInMemory(&state, &l, plan, &take, now); got != want {
					t.Fatalf("seed %#x, take %d, cost %d, %v: %+v, want %+v", seed, id, take.Cost, take.Mode, got, want)
				}
			}
			hasShort := l.Quota < 100 && (l.Algorithm == store.FixedWindow && l.Calendar == nil ||
				l.Algorithm == store.TokenBucket && l.Interval()%1000 == 0)
			// In 200 takes of random costs and modes, 10 to 40 have a short reply, if any has.
			if (paths.short > takes/50) != hasShort || paths.all-paths.short < takes/4 {
				t.Errorf("seed %#x: %d of %d replies are short", seed, paths.short, paths.all)
			}
			t.Logf("%d of %d replies are short", paths.short, paths.all)
		})
	}
}

func countInMemory(s *counter.State, l *store.Limit, p *store.Plan, t *store.Take, now int64) (a store.Answer) {
	v := s.At(l, now)
	a.State[0].Used = v.Used()
	p.Judge(&a, t.Cost, t.Mode)
	units, cost := t.Cost, t.Cost
	if t.Mode == store.ModeUpTo {
		p.Grant(&a, cost)
		units, cost = a.Granted, 1
	}
	if a.Allowed && t.Mode != store.ModePeek {
		v.Add(units)
	}
	if (a.Allowed || v.Moved) && t.Mode != store.ModePeek {
		*s = v.State
	}
	if !a.Allowed && cost <= l.Quota {
		a.Retry = v.Until(l.Quota - cost)
	}
	if used := v.Used(); used > 0 {
		a.State[0].Reset = v.Until(used - 1)
	}
	return a
}

// Requests of one group over a log and a window that are executed again, when the window has room and the log has none.
func TestCounterBesideLogWhenSentTwice(t *testing.T) {
	c := newClock(start(t))
	c.processor = twice{processor: c.processor, t: t}
	s := redisstore.Single(newStore(c))
	keys := keysOf(t, 2, "beside")
	plans := []*store.Plan{
		store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 1, Window: time.Minute}}}),
		store.NewPlan(store.Plan{Limits: []store.Limit{
			{Quota: 2, Window: time.Minute, Algorithm: store.FixedWindow},
		}}),
	}
	var requests [][]store.Take
	for id := range uint64(2) {
		var takes []store.Take
		for i := range keys {
			takes = append(takes, store.Take{Key: keys[i], Plan: plans[i], Cost: 1, ID: id + 1})
		}
		requests = append(requests, takes)
	}
	answers, err := redisstore.TakeAllTogether(t.Context(), s, requests)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if a[0].Allowed != (i == 0) || !a[1].Allowed {
			t.Errorf("request %d: %+v", i, a)
		}
	}
}

// A request over a log and a window, in either order, counts once also if it is executed again and both have room.
func TestCounterBesideLogCountsOnce(t *testing.T) {
	c := newClock(start(t))
	c.processor = twice{processor: c.processor, t: t}
	s, keys := redisstore.Single(newStore(c)), keysOf(t, 4, "once")
	for first := range 2 {
		takes := make([]store.Take, 2)
		for i := range takes {
			limit := store.Limit{Quota: 9, Window: time.Minute}
			if i == first {
				limit.Algorithm = store.FixedWindow
			}
			plan := store.NewPlan(store.Plan{Limits: []store.Limit{limit}})
			takes[i] = store.Take{Key: keys[2*first+i], Plan: plan, Cost: 1, ID: 1}
		}
		answers := make([]store.Answer, 2)
		if err := coretest.TakeAll(t.Context(), s, takes, answers); err != nil {
			t.Fatal(err)
		}
		for i, take := range takes {
			take.Mode = store.ModePeek
			peek, err := coretest.Take(t.Context(), s, take)
			if err != nil || peek.State[0].Used != 1 || !answers[i].Allowed || answers[i].State[0].Used != 0 {
				t.Errorf("limit %d, the window is %d: %+v, then %+v, %v", i, first, answers[i], peek, err)
			}
		}
	}
}

// A fixed window of a clock that was ten years ahead counts as any window from the future, also where the number of its
// period has begun again from 0 in the value.
func TestFixedWindowFromYearsAhead(t *testing.T) {
	t.Parallel()
	c := newClock(newHashed(start(t)))
	s, key := redisstore.Single(newStore(c)), keysOf(t, 1, "years")[0]
	limit := store.Limit{Quota: 3, Window: 8 * time.Second, Algorithm: store.FixedWindow}
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{limit}})
	take := func(id uint64, allowed bool) {
		t.Helper()
		a, err := coretest.Take(t.Context(), s, store.Take{Key: key, Plan: plan, Cost: 1, ID: id})
		if err != nil || a.Allowed != allowed {
			t.Fatalf("take %d: %+v, %v", id, a, err)
		}
	}
	const years = 10 * 365 * 24 * time.Hour
	c.Advance(years)
	for id := range uint64(3) {
		take(id+1, true)
	}
	c.Advance(-years)
	take(4, false)
	c.Advance(2 * limit.Window)
	take(5, true)
}

// The units of a sliding counter's period count in the next one as well, so its value stays for both.
func TestSlidingCounterOutlivesItsPeriod(t *testing.T) {
	t.Parallel()
	rdb := start(t)
	c := newClock(newHashed(rdb))
	s, key := redisstore.Single(newStore(c)), keysOf(t, 1, "outlives")[0]
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{
		{Quota: 9, Window: 10 * time.Second, Algorithm: store.SlidingCounter},
	}})
	for id, left := range []time.Duration{20 * time.Second, 13 * time.Second} { // a period begins with the clock
		take := store.Take{Key: key, Plan: plan, Cost: 1, ID: uint64(id + 1)}
		if _, err := coretest.Take(t.Context(), s, take); err != nil {
			t.Fatal(err)
		}
		const most = time.Second // what the value stays longer than it must
		got := rdb.PTTL(t.Context(), stored(key)).Val() - clockMore
		if got < left-most/2 || got > left+most {
			t.Errorf("take %d: the value stays for %v, want %v or somewhat more", id, got, left)
		}
		c.Advance(7 * time.Second)
	}
}

// Where a limit's calendar changes, units of the period before count if they are in the present one by the other.
func TestCalendarThatChanges(t *testing.T) {
	const second = 1_763_700_000_000_000 // redistest.NewClock begins in it
	before := store.Calendar{second - 50e6, second + 10e6, second + 600e6, second + 1190e6}
	after := store.Calendar{second - 5e6, second + 605e6, second + 1195e6, second + 1785e6}
	c := newClock(start(t))
	s, key, id := newStore(c), keysOf(t, 1, "changes")[0], uint64(0)
	take := func(calendar *store.Calendar, cost, used int) {
		t.Helper()
		id++
		limit := store.Limit{
			Quota: 20, Window: 10 * time.Minute, Algorithm: store.FixedWindow, Calendar: calendar,
		}
		plan := store.NewPlan(store.Plan{Limits: []store.Limit{limit}})
		a, err := coretest.Take(t.Context(), s, store.Take{Key: key, Plan: plan, Cost: cost, ID: id})
		if err != nil || !a.Allowed || a.State[0].Used != used {
			t.Errorf("%+v, %v; want %d units used before", a, err, used)
		}
	}
	take(&before, 4, 0)
	c.Advance(15 * time.Second)
	take(&before, 1, 0)
	take(&after, 1, 5)
}
