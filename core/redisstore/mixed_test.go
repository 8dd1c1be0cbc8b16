package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// scripts counts how often each script is run, by its name.
type scripts struct {
	processor

	mu    sync.Mutex
	runs  map[string]int
	again int // commands that told of a log with weights
}

func newScripts(c processor) *scripts { return &scripts{processor: c, runs: make(map[string]int)} }

func (s *scripts) Process(ctx context.Context, cmd redis.Cmder) error {
	for name, text := range map[string]string{
		"take": redisstore.TakeText, "take_weighted": redisstore.TakeWeightedText,
		"joint": redisstore.JointText, "joint_weighted": redisstore.JointWeightedText,
	} {
		if runs(cmd, text) {
			s.mu.Lock()
			s.runs[name]++
			s.mu.Unlock()
		}
	}
	err := s.processor.Process(ctx, cmd)
	if numbers, ok := cmd.(*redis.IntSliceCmd); ok && runs(cmd, redisstore.TakeText) &&
		slices.Contains(numbers.Val(), -1) {
		s.mu.Lock()
		s.again++
		s.mu.Unlock()
	}
	return err
}

// Of a batch in which some logs have weights, the takes on these are sent again, in their order: each is decided as the
// definition says, also if every command is executed twice. Then their keys go to the other script at once.
func TestBatchOfLogsWithAndWithoutWeights(t *testing.T) {
	eachWay(t, "one script", func(t *testing.T, single, repeats bool) {
		rdb := start(t)
		counted := newScripts(newHashed(rdb))
		c := newClock(counted)
		c.processor = sentTwice(t, c.processor, repeats)
		keys := keysOf(t, 6, fmt.Sprintf("mixed.%v.%v", single, repeats))
		limits := core.Limits{{Quota: 12, Window: time.Minute}}
		r, id, oracle := rand.New(rand.NewPCG(31, 0)), uint64(0), new(coretest.FakeStore)
		for round := range testlen.Of(10, 60) {
			// Another process has costs: it has a plan of its own.
			costly := newStore(c)
			for _, key := range keys[:3] {
				id++
				plan := store.NewPlan(*planOf(limits, store.Plan{}))
				compareTake(t, costly, oracle, store.Take{Key: key, Plan: plan, Cost: 2 + r.IntN(2), ID: id})
			}
			s := newStore(c) // a process that does not know of these
			plan := store.NewPlan(*planOf(limits, store.Plan{}))
			for batch := range 2 {
				before, others := counted.runs["take"], false
				counted.again = 0
				var takes []store.Take
				for range 1 + len(keys) + r.IntN(20) {
					id++
					takes = append(takes, store.Take{Key: keys[r.IntN(len(keys))], Plan: plan, Cost: 1, ID: id})
				}
				for i := range 3 {
					takes[i].Key = keys[i]
				}
				for i := range takes {
					others = others || takes[i].Key.Text >= keys[3].Text
				}
				answers, err := redisstore.TakeTogether(t.Context(), s, single, takes)
				if err != nil {
					t.Fatal(err)
				}
				for _, group := range groupsOf(each(takes)) { // decided as one, in the order of their first takes
					for _, i := range group {
						want, err := coretest.Take(t.Context(), oracle, takes[i])
						if err != nil || answers[i].Allowed != want.Allowed || answers[i].Retry != want.Retry {
							t.Fatalf("round %d, batch %d, take %d of %s: %+v, want %+v, %v",
								round, batch, i, takes[i].Key.Text, answers[i], want, err)
						}
					}
				}
				if (counted.again > 0) != (batch == 0) {
					t.Errorf("round %d, batch %d: %d commands told of weights", round, batch, counted.again)
				}
				if asked := counted.runs["take"] - before; batch == 1 && (asked > 0) != others {
					t.Errorf("round %d: %d commands run take; are there logs without weights: %v", round, asked, others)
				}
			}
			step := time.Duration(r.IntN(30)) * time.Second
			c.Advance(step)
			oracle.Advance(step)
		}
		if counted.runs["take_weighted"] == 0 {
			t.Error("no take was sent to take_weighted")
		}
	})
}

// each returns a request for each take.
func each(takes []store.Take) (requests [][]store.Take) {
	for i := range takes {
		requests = append(requests, takes[i:i+1])
	}
	return requests
}

// compareTake sends a take to a store and to the definition.
func compareTake(t *testing.T, s, oracle core.Store, take store.Take) {
	t.Helper()
	got, err := coretest.Take(t.Context(), s, take)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := coretest.Take(t.Context(), oracle, take); err != nil || got != want {
		t.Fatalf("cost %d: %+v, want %+v, %v", take.Cost, got, want, err)
	}
}

// Two processes share a key, and only one of them has costs: neither admits too much, for one log and for two.
func TestTwoProcessesOfWhichOneHasCosts(t *testing.T) {
	for _, repeats := range []bool{false, true} {
		t.Run(fmt.Sprint("sent twice ", repeats), func(t *testing.T) {
			rdb := start(t)
			counted := newScripts(newHashed(rdb))
			c := newClock(counted)
			if repeats {
				c.processor = twice{processor: c.processor, t: t}
			}
			units, costs := redisstore.Single(newStore(c)), redisstore.Single(newStore(c))
			oracle, r := new(coretest.FakeStore), rand.New(rand.NewPCG(31, 1))
			plans := [2]*store.Plan{
				planOf(core.Limits{{Quota: 9, Window: time.Second}}, store.Plan{}),
				planOf(core.Limits{{Quota: 14, Window: 2 * time.Second}}, store.Plan{}),
			}
			keys := keysOf(t, 2, fmt.Sprint("processes.", repeats))
			for id := range uint64(testlen.Of(600, 6000)) {
				s, cost := full(units), 1
				if r.IntN(2) == 0 {
					s, cost = full(costs), 1+r.IntN(4)
				}
				var takes []store.Take
				for i := range keys {
					takes = append(takes, store.Take{Key: keys[i], Plan: plans[i], Cost: cost, ID: id + 1})
				}
				if r.IntN(2) == 0 {
					compareTake(t, s, oracle, takes[0])
				} else {
					got, want := make([]store.Answer, 2), make([]store.Answer, 2)
					if err := coretest.TakeAll(t.Context(), s, takes, got); err != nil {
						t.Fatal(err)
					}
					err := coretest.TakeAll(t.Context(), oracle, takes, want)
					if err != nil || got[0] != want[0] || got[1] != want[1] {
						t.Fatalf("take %d: %+v, want %+v, %v", id, got, want, err)
					}
				}
				step := time.Duration(r.IntN(300)) * time.Millisecond
				c.Advance(step)
				oracle.Advance(step)
			}
			for _, name := range []string{"take", "take_weighted", "joint", "joint_weighted"} {
				if counted.runs[name] == 0 {
					t.Errorf("%s was not run", name)
				}
			}
		})
	}
}

// Of a batch of requests over several logs, those after one with a weighted log may have logs in common with it, so
// they are sent again as well: a request does not overtake an earlier one.
func TestRequestsKeepTheirOrderBesideAWeightedLog(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	keys := keysOf(t, 3, "order")
	limits := core.Limits{{Quota: 5, Window: time.Minute}}
	weighted := store.Take{Key: keys[0], Plan: planOf(limits, store.Plan{}), Cost: 2, ID: 1}
	single := redisstore.New(c, redisstore.WithOneServer())
	if a, err := coretest.Take(t.Context(), single, weighted); err != nil || !a.Allowed {
		t.Fatal(a, err)
	}
	for _, several := range []bool{false, true} {
		common := core.Limits{{Quota: 1, Window: time.Minute}}
		if several { // decided by joint_several
			common = append(common, core.Limit{Quota: 1, Window: time.Hour, Name: "b"})
		}
		key := keys[1]
		if several {
			key = keys[2]
		}
		first, second := planOf(limits, store.Plan{}), planOf(common, store.Plan{})
		request := func(id uint64, other store.Key) []store.Take {
			return []store.Take{
				{Key: other, Plan: first, Cost: 1, ID: id}, {Key: key, Plan: second, Cost: 1, ID: id},
			}
		}
		other := store.NewKey("order", fmt.Sprint("without weights ", several))
		requests := [][]store.Take{request(2, keys[0]), request(3, other)}
		s := redisstore.New(c, redisstore.WithOneServer())
		answers, err := redisstore.TakeAllTogether(t.Context(), s, requests)
		if err != nil {
			t.Fatal(err)
		}
		if !answers[0][1].Allowed || answers[1][1].Allowed {
			t.Errorf("several limits %v: the first request %+v, the second %+v", several, answers[0][1], answers[1][1])
		}
	}
}

// Where windows vary, a take of one unit that goes together with one of several gives its log a mark as well, so that a
// shorter window removes nothing which the longer one still needs.
func TestUnitsBesideCostsMarkTheirLogs(t *testing.T) {
	c := newClock(start(t))
	s, keys := newStore(c), keysOf(t, 2, "beside")
	hour := planOf(core.Limits{core.PerHour(100)}, store.Plan{Keep: time.Hour, Varies: true})
	second := planOf(core.Limits{core.PerSecond(10)}, store.Plan{Keep: time.Second, Varies: true})
	batch := []store.Take{{Key: keys[0], Plan: hour, Cost: 2, ID: 1}, {Key: keys[1], Plan: hour, Cost: 1, ID: 2}}
	if _, err := redisstore.TakeTogether(t.Context(), s, true, batch); err != nil {
		t.Fatal(err)
	}
	c.Advance(2 * time.Second)
	for i, used := range []int{3, 2} {
		take := store.Take{Key: keys[i], Plan: second, Cost: 1, ID: 3}
		if a, err := coretest.Take(t.Context(), s, take); err != nil || !a.Allowed {
			t.Fatalf("log %d: %+v, %v", i, a, err)
		}
		peek := store.Take{Key: keys[i], Plan: hour, Cost: 1, ID: 4, Mode: store.ModePeek}
		if a, err := coretest.Take(t.Context(), s, peek); err != nil || a.State[0].Used != used {
			t.Errorf("log %d: %+v, %v; want %d used", i, a.State[0], err, used)
		}
	}
}

// A request whose logs cost different numbers of units goes to the script for weights at once, and so do those that
// come after it.
func TestCostsOfEachLogNeedOneScript(t *testing.T) {
	counted := newScripts(newHashed(start(t)))
	s := redisstore.Single(newStore(newClock(counted)))
	plan := planOf(core.Limits{{Quota: 5000, Window: time.Minute}}, store.Plan{})
	for id, costs := range [][]int{{1, 500}, {1, 1}, {1, 500}} {
		var takes []store.Take
		for i, key := range keysOf(t, 2, fmt.Sprint("units", id)) {
			takes = append(takes, store.Take{Key: key, Plan: plan, Cost: costs[i], ID: uint64(id + 1)})
		}
		answers := make([]store.Answer, len(takes))
		if err := coretest.TakeAll(t.Context(), s, takes, answers); err != nil || !answers[0].Allowed {
			t.Fatal(answers, err)
		}
	}
	if n := counted.runs; n["joint"] != 0 || n["joint_weighted"] != 3 {
		t.Errorf("scripts were run %v times, want joint_weighted alone", n)
	}
}
