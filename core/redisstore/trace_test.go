package redisstore_test

import (
	"cmp"
	"context"
	"fmt"
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

// batches has requests decided together, in one script if single, or in one pipeline. It counts the logs that entries
// had left and that came after another such log in a script.
type batches struct {
	single  bool
	now     time.Duration
	entries map[string][]time.Duration // the instants of what was admitted
	left    int
}

func (b *batches) take(ctx context.Context, s core.Store, requests [][]store.Take) (
	answers [][]store.Answer, groups [][]int, err error,
) {
	groups = groupsOf(requests)
	number(requests, groups)
	if len(requests[0]) > 1 {
		answers, err = redisstore.TakeAllTogether(ctx, s, requests)
		return answers, groups, err
	}
	takes := slices.Concat(requests...)
	all, err := redisstore.TakeTogether(ctx, s, b.single, takes)
	for i := range all {
		answers = append(answers, all[i:i+1])
	}
	if err == nil {
		b.count(takes, all)
	}
	return answers, groups, err
}

// number gives requests their IDs in the order in which they are decided. Takes of one instant are in a log in the
// order of their IDs, and in that of the definition as they were decided; it matters where the oldest units are
// trimmed.
func number(requests [][]store.Take, groups [][]int) {
	ids := make([]uint64, len(requests))
	for i := range requests {
		ids[i] = requests[i][0].ID
	}
	for n, i := range slices.Concat(groups...) {
		for j := range requests[i] {
			requests[i][j].ID = ids[n]
		}
	}
}

// groupsOf returns requests in the order in which a batch decides them. Those of equal logs and costs are decided as
// one.
func groupsOf(requests [][]store.Take) (groups [][]int) {
	joins := requests[0][0].Mode == store.ModeCharge &&
		!slices.ContainsFunc(requests[0], func(t store.Take) bool { return t.Plan.Shadow > 0 })
	latest := map[string]int{}
	for i, takes := range requests {
		logs := ""
		for _, t := range takes {
			logs += t.Key.String() + " "
		}
		n, ok := latest[logs]
		if !ok || !joins || !slices.Equal(costs(requests[groups[n][0]]), costs(takes)) {
			n = len(groups)
			latest[logs] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], i)
	}
	return groups
}

// costs returns what a request costs in each log, 1 for slots.
func costs(takes []store.Take) []int {
	all := make([]int, len(takes))
	for i, t := range takes {
		all[i], _ = t.Plan.Counted(t.Cost, t.Mode)
	}
	return all
}

// count counts logs that entries have left.
func (b *batches) count(takes []store.Take, answers []store.Answer) {
	p, before, seen := takes[0].Plan, 0, map[string]bool{}
	short := b.single && takes[0].Mode == store.ModeCharge && len(p.Limits) == 1 && !p.Varies
	for i, t := range takes {
		key := t.Key.String()
		left := func(at time.Duration) bool { return at <= b.now-p.Keep }
		held := slices.DeleteFunc(slices.Clone(b.entries[key]), left)
		switch before++; {
		case !short, !seen[key] && len(held) == len(b.entries[key]):
			before = 0
		case seen[key]:
			before--
		case before > 1:
			b.left++
		}
		if seen[key] = true; answers[i].Allowed && t.Mode == store.ModeCharge {
			held = append(held, b.now)
		}
		b.entries[key] = held
	}
}

// run compares the batches of a case with the definition, and goes on while few reports that a path has
// answered too rarely.
func (b *batches) run(t *testing.T, config coretest.StoreConfig, name string, newStore func() (core.Store, clock),
	few func() bool,
) {
	b.entries = map[string][]time.Duration{}
	config.Batch = b.take
	config.New = func(*testing.T) (core.Store, func(time.Duration)) {
		s, c := newStore()
		return s, func(d time.Duration) {
			c.Advance(d)
			b.now += d
		}
	}
	config.Run = func(t *testing.T, other string, f func(*testing.T)) {
		for n := 0; other == name && (n == 0 || few() && n < 20); n++ {
			f(t)
		}
	}
	coretest.Store(t, config)
}

// eachWay runs a test of commands that are sent once, or twice, with one choice of its own.
func eachWay(t *testing.T, choice string, f func(t *testing.T, chosen, repeats bool)) {
	t.Parallel()
	for _, chosen := range []bool{true, false} {
		for _, repeats := range []bool{false, true} {
			name := fmt.Sprintf("%s %v, sent twice %v", choice, chosen, repeats)
			t.Run(name, func(t *testing.T) { f(t, chosen, repeats) })
		}
	}
}

// sentTwice is the processor of tests that send commands twice.
func sentTwice(t *testing.T, c processor, repeats bool) processor {
	if repeats {
		return twice{processor: c, t: t}
	}
	return c
}

// TestBatchesAgainstOracle compares batches with the oracle on every path: short and long paths, logs that have
// emptied next to each other, several takes of one log, windows that vary, shadows, costs and corrections.
func TestBatchesAgainstOracle(t *testing.T) {
	testlen.SkipRace(t)
	eachWay(t, "one script", func(t *testing.T, single, repeats bool) {
		p := newPaths(newHashed(start(t)))
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
		b, emptied := batches{single: single}, testlen.Of(10, 200)
		b.run(t, coretest.StoreConfig{Repeats: repeats, Checks: 25_000}, "BatchOracle", func() (core.Store, clock) {
			c := newClock(p)
			c.processor = sentTwice(t, p, repeats)
			return newStore(c), c
		}, func() bool { return p.few(least) || single && b.left < emptied })
		t.Logf("%6d logs that have emptied after another one", b.left)
		if p.want(t, least); single && b.left < emptied {
			t.Errorf("only %d logs had emptied after another one", b.left)
		}
	})
}

// Batches of requests over several logs. TestJointStoreInTurn has those of several servers.
func TestJointBatchesAgainstOracle(t *testing.T) {
	testlen.SkipRace(t)
	t.Parallel()
	for _, repeats := range []bool{false, true} {
		t.Run(fmt.Sprint("sent twice ", repeats), func(t *testing.T) {
			p := newJointPaths(newHashed(start(t)))
			b := batches{single: true}
			b.run(t, coretest.StoreConfig{Repeats: repeats, Checks: 25_000}, "JointOracle", func() (core.Store, clock) {
				c := newClock(p)
				c.processor = sentTwice(t, p, repeats)
				return redisstore.Single(newStore(c)), c
			}, func() bool { return len(p.few()) > 0 })
			if t.Log(p.count); len(p.few()) > 0 {
				t.Errorf("%q have decided too few requests", p.few())
			}
		})
	}
}

// Batches of takes give the answers of the definition, also when each command is sent twice: groups of takes of one
// log, denials that count, corrections, merged entries.
func TestBatchesOfStreamsAgainstOracle(t *testing.T) {
	testlen.SkipRace(t)
	eachWay(t, "one script", func(t *testing.T, single, repeats bool) {
		config := coretest.StoreConfig{OneLimit: true, Repeats: repeats, Checks: testlen.Of(1000, checksOfStreams/4)}
		b := batches{single: single}
		b.run(t, config, "BatchOracle", func() (core.Store, clock) {
			c := newClock(start(t))
			c.processor = sentTwice(t, c.processor, repeats)
			return newStreams(c), c
		}, func() bool { return false })
	})
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

// jointPaths counts by which path of joint.lua requests were decided.
type jointPaths struct {
	processor
	count map[string]int
}

func newJointPaths(c processor) *jointPaths { return &jointPaths{c, make(map[string]int)} }

func (p *jointPaths) Process(ctx context.Context, cmd redis.Cmder) error {
	err := p.processor.Process(ctx, cmd)
	if err != nil || !joins(cmd) {
		return err
	}
	args, reply := cmd.Args(), cmd.(*redis.IntSliceCmd).Val()
	n := args[2].(int)
	keys := n - 2 // but for the clock's
	logs := args[len(args)-1].(int)
	mode := args[3+n+keys/logs+1]
	if !isShortForm(mode) {
		p.count[fmt.Sprint("mode ", mode)]++
		return nil
	}
	kind := kindOf(mode)
	switch verdict := jointVerdict(args[3+n:], keys, reply); {
	case reply[0] == 0:
		p.count[kind+"plain, whole reply"]++
	case verdict > 0:
		p.count[kind+"short reply admits"]++
	default:
		p.count[kind+"short reply denies"]++
	}
	return nil
}

// few returns the paths that have decided too few requests.
func (p *jointPaths) few() (paths []string) {
	for _, path := range []string{
		"short reply admits", "short reply denies", "plain, whole reply",
		"peek, short reply admits", "peek, short reply denies", "peek, plain, whole reply",
		"mode c", "mode p", "mode r", "mode d", "mode vc",
	} {
		if p.count[path] < testlen.Of(2, 20) {
			paths = append(paths, path)
		}
	}
	return paths
}
