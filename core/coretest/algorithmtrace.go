package coretest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// counting is a store under test that has other algorithms than the sliding log, at a known instant.
type counting struct {
	*direct

	algorithms []store.Algorithm
	advance    func(time.Duration)
	now        int64 // the store's clock, in microseconds since the Unix epoch
}

// newCounting makes a store, or skips the test if it has no other algorithms.
func newCounting(t *testing.T, c StoreConfig) *counting {
	t.Helper()
	if c.Repeats {
		t.Skip("what an algorithm without entries is told twice counts twice")
	}
	s, advance := c.New(t)
	d := newDirect(t, s)
	counter := optional[store.Counter](d, "store.Counter")
	k := &counting{direct: d, advance: advance}
	for a := store.FixedWindow; a <= store.TokenBucket; a++ {
		if counter.Counts(a) {
			k.algorithms = append(k.algorithms, a)
		}
	}
	if len(k.algorithms) == 0 {
		t.Skip("the store has the sliding log alone")
	}
	k.findNow()
	return k
}

// findNow finds out what the store's clock says. The distance to the end of the period tells the instant within the
// period, for periods of two lengths that have no common factor.
func (k *counting) findNow() {
	if k.algorithms[0] == store.TokenBucket { // whose numbers do not depend on the instant
		return
	}
	const long = int64(core.MaxWindow / time.Microsecond)
	within := func(length int64) int64 {
		k.key = store.NewKey("counting:now", fmt.Sprint(length))
		l := limitOf(k.algorithms[0], 1, time.Duration(length)*time.Microsecond)
		reset := k.take(store.NewPlan(store.Plan{Limits: []store.Limit{l}}), store.ModeCharge, 1).State[0].Reset
		if l.Algorithm == store.SlidingCounter { // the unit leaves at the end of the next period
			reset -= l.Window
		}
		return length - reset.Microseconds()
	}
	first, second := within(long), within(long-1)
	for periods := range int64(1000) {
		if now := periods*long + first; now%(long-1) == second {
			k.now = now
			return
		}
	}
	k.t.Fatalf("periods of %d and %d microseconds since the Unix epoch began %d and %d ago, which is no instant",
		long, long-1, first, second)
}

func (k *counting) step(d time.Duration) {
	if d > 0 {
		k.advance(d)
		k.now += d.Microseconds()
	}
}

// to advances to the next instant that is so far after the beginning of a period.
func (k *counting) to(period, after time.Duration) {
	within := time.Duration(k.now%period.Microseconds()) * time.Microsecond
	k.step((after - within + 2*period) % period)
}

// limitOf returns a limit of an algorithm that admits at most quota units at once, and the same again in a window.
func limitOf(a store.Algorithm, quota int, window time.Duration) store.Limit {
	l := store.Limit{Quota: quota, Window: window, Algorithm: a}
	if a == store.TokenBucket {
		l.Refill = quota
	}
	return l
}

// numbers is one key of an algorithmTrace.
type numbers struct {
	key   store.Key
	plans []*store.Plan // the quota may change from take to take
}

// algorithmTrace compares random calls with those of a FakeStore.
type algorithmTrace struct {
	*counting

	r       *rand.Rand
	oracle  *FakeStore
	granter bool
	joint   store.Joint // of the store, or nil
	keys    []numbers
	desc    string
	hint    time.Duration // what the last answer has told
	done    int
}

// algorithmsAgainstOracle compares random takes of single keys.
func algorithmsAgainstOracle(t *testing.T, c StoreConfig) {
	runAlgorithmTraces(t, c, nil)
}

// jointAlgorithmsAgainstOracle compares random requests over numbers, logs and slots together.
func jointAlgorithmsAgainstOracle(t *testing.T, c StoreConfig) {
	runAlgorithmTraces(t, c, func(d *direct) store.Joint { return optional[store.Joint](d, "store.Joint") })
}

func runAlgorithmTraces(t *testing.T, c StoreConfig, jointOf func(*direct) store.Joint) {
	k := newCounting(t, c)
	oracle := new(FakeStore)
	oracle.Advance(time.Duration(k.now) * time.Microsecond)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	_, granter := k.store.(store.Granter)
	perAlgorithm := make(map[store.Algorithm]int)
	for n, done := 0, 0; done < c.Checks/12; n++ {
		a := k.algorithms[n%len(k.algorithms)]
		tr := &algorithmTrace{
			counting: k, r: r, oracle: oracle, granter: granter, desc: fmt.Sprintf("seed %#x, trace %d", seed, n),
		}
		if jointOf != nil {
			tr.joint = jointOf(k.direct)
		}
		tr.makeKeys(fmt.Sprintf("numbers-%x-%d", seed, n), a)
		for range 60 {
			tr.step()
		}
		done += tr.done
		perAlgorithm[a] += tr.done
	}
	t.Log("decisions compared:", perAlgorithm)
}

// makeKeys makes one key of an algorithm, and for requests over several keys some of others, of logs and of slots.
func (tr *algorithmTrace) makeKeys(name string, a store.Algorithm) {
	add := func(p ...store.Plan) {
		n := numbers{key: store.NewKey(name, fmt.Sprint(len(tr.keys)))}
		for _, p := range p {
			n.plans = append(n.plans, store.NewPlan(p))
		}
		tr.keys = append(tr.keys, n)
	}
	numbersOf := func(a store.Algorithm) {
		l := tr.limit(a)
		more := l
		// A bucket whose size changes is not defined here by what was admitted.
		if a != store.TokenBucket && tr.r.IntN(4) == 0 {
			more.Quota = 1 + tr.r.IntN(2*l.Quota)
		}
		add(store.Plan{Limits: []store.Limit{l}}, store.Plan{Limits: []store.Limit{more}})
	}
	numbersOf(a)
	if tr.joint == nil {
		return
	}
	numbersOf(tr.algorithms[tr.r.IntN(len(tr.algorithms))])
	limits := []store.Limit{{Quota: 1 + tr.r.IntN(8), Window: tr.window()}, {Quota: 12, Window: time.Minute}}
	add(store.Plan{Limits: limits, Shadow: tr.r.IntN(2), Keep: time.Hour})
	if _, ok := tr.store.(store.Renewer); ok {
		add(store.Plan{Limits: []store.Limit{{Quota: 1 + tr.r.IntN(5), Window: 5 * time.Second}}, Slots: true})
	}
}

func (tr *algorithmTrace) window() time.Duration {
	windows := []time.Duration{
		core.MinWindow, 7 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour,
	}
	const longest = int64(core.MaxWindow / time.Microsecond)
	switch n := tr.r.IntN(2 * len(windows)); {
	case n < len(windows):
		return windows[n]
	case n == len(windows) && tr.now > 2*longest: // a long one of which a period ends soon
		soon := tr.now + tr.r.Int64N(2e6)
		return time.Duration(soon/(soon/longest+1+tr.r.Int64N(99))) * time.Microsecond
	}
	return time.Duration(1000+tr.r.IntN(20_000_000)) * time.Microsecond
}

func (tr *algorithmTrace) limit(a store.Algorithm) store.Limit {
	l := store.Limit{Quota: 1 + tr.r.IntN(9), Window: tr.window(), Algorithm: a}
	switch tr.r.IntN(5) {
	case 0:
		l.Quota = 1 + tr.r.IntN(200)
	case 1:
		l.Quota = core.MaxQuota - tr.r.IntN(9)
	}
	switch {
	case a == store.TokenBucket:
		l.Refill = 1 + tr.r.IntN(12)
		if tr.r.IntN(3) == 0 {
			l.Refill = 1 + tr.r.IntN(core.MaxQuota)
		}
		l.Quota = int(min(int64(l.Quota), max(1, int64(core.MaxWindow)/l.Interval())))
	case a == store.FixedWindow && tr.r.IntN(2) == 0:
		l.Window = max(l.Window, time.Minute)
		l.Calendar = tr.calendar(l.Window)
	}
	return l
}

// calendar returns one of which the present instant is in the first or the second period.
func (tr *algorithmTrace) calendar(longest time.Duration) *store.Calendar {
	const minute = int64(time.Minute / time.Microsecond)
	length := func() int64 { return minute * (1 + tr.r.Int64N(longest.Microseconds()/minute)) }
	first := length()
	begin := tr.now - tr.r.Int64N(2*first)
	begin -= begin % minute
	c := store.Calendar{begin}
	for i := range c[1:] {
		c[i+1] = c[i] + length()
	}
	if tr.now >= c[2] { // a short second period has passed
		c[2] = tr.now - tr.now%minute + minute
		c[3] = c[2] + length()
	}
	return &c
}

// next is a copy of a plan with the calendar of another limiter at the same instant, which may be a period behind.
func (n *numbers) next(tr *algorithmTrace) *store.Plan {
	p := n.plans[tr.r.IntN(len(n.plans))]
	c := p.Limits[0].Calendar
	if c == nil || tr.now < c[2] {
		return p
	}
	later := *c
	for tr.now >= later[2] {
		length := 1 + tr.r.Int64N(p.Limits[0].Window.Microseconds()/60e6)
		later = store.Calendar{later[1], later[2], later[3], later[3] + length*60e6}
	}
	for i, p := range n.plans {
		limit := p.Limits[0]
		limit.Calendar = &later
		n.plans[i] = store.NewPlan(store.Plan{Limits: []store.Limit{limit}})
	}
	return n.plans[tr.r.IntN(len(n.plans))]
}

// longestPause bounds the pauses of a trace, since a store may do something every few seconds.
const longestPause = 5 * time.Minute

// pause advances, mostly to an instant at which an answer changes, or to a microsecond before or after it.
func (tr *algorithmTrace) pause() {
	l := &tr.keys[tr.r.IntN(len(tr.keys))].plans[0].Limits[0]
	var by time.Duration
	switch tr.r.IntN(10) {
	case 0, 1:
		by = tr.hint
	case 2:
		by = tr.hint - time.Microsecond
	case 3:
		if begin, end := periodOf(l, tr.now); l.Algorithm != store.TokenBucket && begin <= tr.now {
			by = time.Duration(end-tr.now+int64(tr.r.IntN(3)-1)) * time.Microsecond
		}
	case 4:
		by = time.Duration(tr.r.Int64N(3 * int64(l.Window))).Truncate(time.Microsecond)
	case 5:
		by = time.Duration(tr.r.Int64N(int64(l.Window))).Truncate(time.Microsecond)
	}
	by = max(by, 0) % longestPause
	tr.counting.step(by)
	tr.oracle.Advance(by)
}

func (tr *algorithmTrace) step() {
	tr.pause()
	tr.id++
	first := &tr.keys[0]
	if tr.r.IntN(40) == 0 {
		tr.noError(tr.store.Reset(tr.t.Context(), first.key))
		tr.noError(tr.oracle.Reset(tr.t.Context(), first.key))
	}
	chosen := []int{0}
	if tr.joint != nil {
		chosen = tr.r.Perm(len(tr.keys))[:1+tr.r.IntN(len(tr.keys))]
	}
	mode := store.ModeCharge
	switch tr.r.IntN(8) {
	case 0:
		mode = store.ModePeek
	case 1, 2:
		if tr.granter {
			mode = store.ModeUpTo
		}
	}
	quota := tr.keys[chosen[0]].plans[0].Limits[0].Quota
	cost := 1
	switch tr.r.IntN(6) {
	case 0:
		cost = 1 + tr.r.IntN(quota+1) // one above the quota at most
	case 1:
		cost = 1 + (quota-1)/(1+tr.r.IntN(4))
	}
	var takes []store.Take
	for _, i := range chosen {
		n := &tr.keys[i]
		takes = append(takes, store.Take{Key: n.key, Plan: n.next(tr), Cost: cost, ID: tr.id, Mode: mode})
	}
	tr.compare(takes)
}

// compare asks both stores, in one step where there are several takes.
func (tr *algorithmTrace) compare(takes []store.Take) {
	got, want := make([]store.Answer, len(takes)), make([]store.Answer, len(takes))
	var err, failed error
	if tr.joint == nil {
		got[0], err = tr.store.Take(tr.t.Context(), takes[0])
		want[0], failed = tr.oracle.Take(tr.t.Context(), takes[0])
	} else {
		err = tr.joint.TakeAll(tr.t.Context(), append([]store.Take(nil), takes...), got)
		failed = tr.oracle.TakeAll(tr.t.Context(), takes, want)
	}
	tr.noError(err)
	tr.noError(failed)
	for i, t := range takes {
		if got[i] != want[i] {
			limit := t.Plan.Limits[0]
			tr.t.Fatalf("%s, step %d, instant %d, %v %+v (calendar %v), cost %d, mode %v, take %d of %d:\n"+
				"got  %+v\nwant %+v", tr.desc, tr.done, tr.now, limit.Algorithm, limit, limit.Calendar, t.Cost, t.Mode,
				i+1, len(takes), got[i], want[i])
		}
		if hint := want[i].State[0].Reset; hint > 0 && tr.r.IntN(2) == 0 {
			tr.hint = hint
		}
		if want[i].Retry > 0 {
			tr.hint = want[i].Retry
		}
	}
	tr.done++
}
