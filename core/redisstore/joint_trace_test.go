package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// jointTrace is the life of some logs that are asked in requests over several of them, beside an exact store.
type jointTrace struct {
	t       *testing.T
	r       *rand.Rand
	c       clock
	store   store.Full
	oracle  *coretest.FakeStore
	inTurn  bool // each log is asked by itself, one request after the other
	repeats bool
	desc    string

	unitsOnly bool // all entries cost one unit, so that logs without weights answer

	levels  []jointLevel // a request has a log of each
	made    []store.Settlement
	now     time.Duration
	id      uint64
	last    time.Duration // the wait of the last denial
	answers int
}

// jointLevel is the logs of one position in a request, such as those of users.
type jointLevel struct {
	keys  []store.Key
	plans []*store.Plan // more than one if windows vary
}

func TestJointBatchesAgainstOracle(t *testing.T) {
	t.Parallel()
	for _, inTurn := range []bool{false, true} {
		for _, repeats := range []bool{false, true} {
			t.Run(fmt.Sprintf("in turn %v, sent twice %v", inTurn, repeats), func(t *testing.T) {
				p := newJointPaths(newHashed(start(t)))
				c := newClock(p)
				if repeats {
					c.processor = twice{processor: p, t: t}
				}
				traceJoint(t, c, inTurn, repeats)
				if !inTurn {
					p.want(t)
				}
			})
		}
	}
}

func traceJoint(t *testing.T, c clock, inTurn, repeats bool) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 5))
	logs := newStore(c)
	if !inTurn {
		logs = redisstore.Single(logs)
	}
	most := testlen.Of(5000, 25_000)
	if inTurn { // which takes several times as long
		most /= 3
	}
	for n, answers := 0, 0; answers < most; n++ {
		tr := &jointTrace{
			t: t, r: r, c: c, store: full(logs), oracle: new(coretest.FakeStore), inTurn: inTurn, repeats: repeats,
			desc: fmt.Sprintf("seed %#x, trace %d", seed, n), id: rand.Uint64(),
			unitsOnly: n/4%2 == 0,
		}
		tr.begin(fmt.Sprintf("joint-%x-%d", seed, n), n%4)
		for range testlen.Of(30, 150) {
			tr.wait()
			tr.step()
		}
		answers += tr.answers
	}
}

// begin makes the logs of a trace: with plain limits, or some whose windows vary, or with shadows.
func (tr *jointTrace) begin(name string, kind int) {
	limits := 0
	for level, n := range tr.r.Perm(len(batchPolicies))[:2+tr.r.IntN(3)] {
		l := jointLevel{keys: keysOf(tr.t, 1+tr.r.IntN(3), fmt.Sprint(name, ".", level))}
		p, deciding := store.Plan{Bound: 40}, batchPolicies[n]
		if kind == 2 && (level == 0 || tr.r.IntN(2) == 0) {
			p.Varies, p.Keep = true, 9*time.Second
		}
		if kind == 3 && tr.r.IntN(2) == 0 {
			deciding, p.Shadow = slices.Concat(deciding, core.Limits{{Quota: 4, Window: 700 * time.Millisecond}}), 1
		}
		if limits += len(deciding); limits > store.MaxLimits {
			return
		}
		l.plans = []*store.Plan{planOf(deciding, p)}
		for i := 0; p.Varies && i < 3; i++ {
			other := slices.Clone(deciding)
			for j := range other {
				other[j].Quota = 1 + tr.r.IntN(2*other[j].Quota)
				other[j].Window = time.Duration(1+tr.r.Int64N(3000)) * time.Millisecond
			}
			l.plans = append(l.plans, planOf(other, p))
		}
		tr.levels = append(tr.levels, l)
	}
}

func (tr *jointTrace) wait() {
	d := time.Duration(0)
	switch tr.r.IntN(20) {
	case 0:
		d = time.Duration(tr.r.IntN(3_000_000)) * time.Microsecond
	case 1:
		d = time.Duration(tr.r.IntN(20_000)) * time.Microsecond
	case 2:
		d = time.Microsecond
	case 3, 4:
		d = tr.last - time.Duration(tr.r.IntN(2))*time.Microsecond
	case 5:
		d = 9 * time.Second
	}
	if d > 0 {
		tr.c.Advance(d)
		tr.oracle.Advance(d)
		tr.now += d
	}
}

func (tr *jointTrace) step() {
	switch k := tr.r.IntN(24); {
	case k < 17:
		tr.batch(store.ModeCharge)
	case k < 18:
		tr.batch(store.ModePeek)
	case k < 20:
		tr.batch([]store.Mode{store.ModeRecord, store.ModeChargeDenied}[k-18])
	case k < 21 && len(tr.made) > 0:
		s := tr.made[len(tr.made)-1-tr.r.IntN(min(len(tr.made), 20))]
		if s.Cost = []int{0, 0, tr.r.IntN(12)}[tr.r.IntN(3)]; tr.unitsOnly {
			s.Cost = min(s.Cost, 1)
		}
		tr.must(tr.store.Settle(tr.t.Context(), s))
		tr.must(tr.oracle.Settle(tr.t.Context(), s))
	case k < 22:
		key := tr.level().anyKey(tr.r)
		tr.must(tr.store.Reset(tr.t.Context(), key))
		tr.must(tr.oracle.Reset(tr.t.Context(), key))
	case k < 23:
		l := tr.level()
		tr.id++
		take := store.Take{Key: l.anyKey(tr.r), Plan: l.plans[0], Cost: 1, ID: tr.id}
		got, err := tr.store.Take(tr.t.Context(), take)
		tr.must(err)
		want, _ := tr.oracle.Take(tr.t.Context(), take)
		if got != want {
			tr.t.Fatalf("%s: a single take\ngot  %+v\nwant %+v", tr.desc, got, want)
		}
	default:
		l := tr.level()
		p := l.plans[tr.r.IntN(len(l.plans))]
		m := store.MergeRequest{Key: l.anyKey(tr.r), Keep: p.Keep, Varies: p.Varies}
		for range 1 + tr.r.IntN(3) {
			tr.id++
			age := time.Duration(tr.r.Int64N(int64(p.Keep/time.Microsecond))) * time.Microsecond
			entry := store.Entry{ID: tr.id, Age: age, Cost: 1}
			if !tr.unitsOnly {
				entry.Cost += tr.r.IntN(2)
			}
			m.Entries = append(m.Entries, entry)
		}
		tr.must(tr.store.Merge(tr.t.Context(), m))
		tr.must(tr.oracle.Merge(tr.t.Context(), m))
	}
}

func (tr *jointTrace) level() *jointLevel { return &tr.levels[tr.r.IntN(len(tr.levels))] }

func (l *jointLevel) anyKey(r *rand.Rand) store.Key { return l.keys[r.IntN(len(l.keys))] }

// batch asks some requests at once, and the oracle in the order in which the script decides.
func (tr *jointTrace) batch(mode store.Mode) {
	levels := tr.levels
	if len(levels) == 1 {
		return
	}
	var plans []*store.Plan
	for _, l := range levels {
		plans = append(plans, l.plans[tr.r.IntN(len(l.plans))])
	}
	var requests [][]store.Take
	var names []string
	for range 1 + tr.r.IntN(2)*tr.r.IntN(7) {
		tr.id++
		cost, name := 1, ""
		if !tr.unitsOnly && tr.r.IntN(6) == 0 {
			cost = 1 + tr.r.IntN(plans[0].Limits[0].Quota+1)
		}
		var takes []store.Take
		for i := range levels {
			key := levels[i].anyKey(tr.r)
			name += key.String() + " "
			takes = append(takes, store.Take{Key: key, Plan: plans[i], Cost: cost, ID: tr.id, Mode: mode})
		}
		requests, names = append(requests, takes), append(names, fmt.Sprint(name, cost))
		if mode == store.ModeChargeDenied {
			break // sent again, a denial that counts has the others in its numbers
		}
	}
	groups := groupsOf(requests, names)
	got := tr.ask(requests)
	for _, group := range groups {
		for _, i := range group {
			want := make([]store.Answer, len(levels))
			tr.must(tr.oracle.TakeAll(tr.t.Context(), requests[i], want))
			tr.compare(requests[i], got[i], want, len(requests), len(group))
		}
	}
}

// groupsOf returns the requests of equal logs and cost, if these are sent as one.
func groupsOf(requests [][]store.Take, names []string) (groups [][]int) {
	grouped := requests[0][0].Mode == store.ModeCharge
	for _, t := range requests[0] {
		grouped = grouped && t.Plan.Shadow == 0
	}
	latest := map[string]int{} // by the keys, without the cost
	for i, name := range names {
		keys := name[:strings.LastIndexByte(name, ' ')]
		n, ok := latest[keys]
		if !ok || !grouped || names[groups[n][0]] != name {
			n = len(groups)
			latest[keys] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], i)
	}
	return groups
}

func (tr *jointTrace) ask(requests [][]store.Take) [][]store.Answer {
	if !tr.inTurn && tr.r.IntN(4) > 0 {
		got, err := redisstore.TakeAllTogether(tr.t.Context(), tr.store, requests)
		tr.must(err)
		return got
	}
	// One after the other, in the order in which a batch decides them.
	var names []string
	for _, takes := range requests {
		name := ""
		for _, t := range takes {
			name += t.Key.String() + " "
		}
		names = append(names, fmt.Sprint(name, takes[0].Cost))
	}
	got := make([][]store.Answer, len(requests))
	for _, i := range slices.Concat(groupsOf(requests, names)...) {
		got[i] = make([]store.Answer, len(requests[i]))
		tr.must(tr.store.TakeAll(tr.t.Context(), requests[i], got[i]))
	}
	return got
}

// compare compares what a batch of so many requests can know of one, in a group of so many.
func (tr *jointTrace) compare(takes []store.Take, got, want []store.Answer, batch, group int) {
	allowed := true
	for _, w := range want {
		allowed = allowed && w.Allowed
	}
	for i, t := range takes {
		g, w := got[i], want[i]
		if tr.repeats && t.Mode == store.ModeChargeDenied && !w.Allowed {
			w.State, w.Denied, w.Shadow = g.State, g.Denied, g.Shadow // the second time, older units were trimmed
		}
		same := g == w
		switch {
		case tr.repeats && batch > 1: // sent again, a log that had room may be full of requests that came later
			same = g.Allowed == w.Allowed || w.Allowed && !allowed
		case group > 1:
			same = sameVerdict(&g, &w, &t, true)
		}
		if !same {
			tr.fail(takes, got, want, i)
		}
		tr.made = append(tr.made, store.Settlement{Key: t.Key, ID: t.ID})
		if !w.Allowed {
			tr.last = w.Retry
		}
		tr.answers++
	}
}

func (tr *jointTrace) fail(takes []store.Take, got, want []store.Answer, i int) {
	tr.t.Fatalf("%s, after %d answers: log %d of %d, limits %v, varies %v, cost %d, mode %v:\ngot  %+v\nwant %+v",
		tr.desc, tr.answers, i, len(takes), takes[i].Plan.Limits, takes[i].Plan.Varies, takes[i].Cost, takes[i].Mode,
		got[i], want[i])
}

func (tr *jointTrace) must(err error) {
	tr.t.Helper()
	if err != nil {
		tr.t.Fatalf("%s: %v", tr.desc, err)
	}
}

// jointPaths counts by which path of joint.lua requests were decided.
type jointPaths struct {
	processor
	count map[string]int
}

func newJointPaths(c processor) *jointPaths { return &jointPaths{c, make(map[string]int)} }

func (p *jointPaths) Process(ctx context.Context, cmd redis.Cmder) error {
	err := p.processor.Process(ctx, cmd)
	if err != nil || !runs(cmd, redisstore.JointText) {
		return err
	}
	args, reply := cmd.Args(), cmd.(*redis.IntSliceCmd).Val()
	n := args[2].(int)
	keys := n - 2 // but for the clock's
	logs := args[len(args)-1].(int)
	mode := args[3+n+keys/logs+1]
	if _, plain := mode.(int64); !plain {
		p.count[fmt.Sprint("mode ", mode)]++
		return nil
	}
	switch verdict := jointVerdict(args[3+n:], keys, reply); {
	case reply[0] == 0:
		p.count["plain, whole reply"]++
	case verdict > 0:
		p.count["short reply admits"]++
	default:
		p.count["short reply denies"]++
	}
	return nil
}

func (p *jointPaths) want(t *testing.T) {
	t.Helper()
	t.Log(p.count)
	for _, path := range []string{
		"short reply admits", "short reply denies", "plain, whole reply", "mode c", "mode p", "mode r", "mode d",
		"mode vc",
	} {
		if least := testlen.Of(2, 20); p.count[path] < least {
			t.Errorf("%d scripts by the path %q, want at least %d", p.count[path], path, least)
		}
	}
}
