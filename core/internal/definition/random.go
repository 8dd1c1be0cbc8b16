package definition

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Clocked is an empty store, and its clock, which stands still but for Advance.
type Clocked struct {
	Store   store.Store
	Now     func() time.Time
	Advance func(time.Duration)
}

// Config says how to make the store under test, and what it does that the definition does not.
type Config struct {
	New func(t *testing.T) Clocked

	// Run calls f, such as in a bubble of testing/synctest; nil calls it with t.
	Run func(t *testing.T, f func(t *testing.T))

	// Operations is how many random operations are compared; a few more may be.
	Operations int

	// Callers is how many requests are sent at the same time, at most. 0 is 1.
	Callers int

	// Twice says that each command is executed twice, and the second reply is used. A take may then have counted
	// itself in Used, and others that were sent at the same time. Neither ModeAtMost nor algorithms that count are
	// tested.
	Twice bool

	// Again says that the store knows takes by their ID. They are also executed again later.
	Again bool

	// InTurn says that logs of different keys are asked one after the other, and those behind a denial not at all.
	InTurn bool

	// ByID says that entries of one instant are in the order of their IDs: the first of them leaves first where a log
	// is trimmed. Otherwise they are in the order in which they were recorded.
	ByID bool

	// Units says that each take costs one unit.
	Units bool
}

// Random compares the answers of a store to random operations with those of the definition. The operations are those
// that the store can do: several logs in a request and algorithms if its Validate accepts them, and the optional
// methods that it has.
//
// A failing trace of operations is made shorter before it is printed, with the seed: SASH_SEED=<seed> runs that trace
// alone.
func Random(t *testing.T, c Config) {
	t.Helper()
	first := rand.Uint64() >> 16
	if text := os.Getenv("SASH_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, c.Operations = n, 1
	}
	n, failure := c.random(t, first)
	if failure != "" {
		t.Error(failure)
	}
	t.Logf("%d operations, %d answers compared; admitted %v, denied %v by mode", n.operations, n.answers, n.admitted,
		n.denied)
	if n.lists == 0 || n.counters == 0 {
		t.Logf("lists of takes %d, algorithms %d: the store refuses them", n.lists, n.counters)
	}
	if mode, ok := n.unproven(&c); !ok && !t.Failed() {
		t.Errorf("%d admitted and %d denied in mode %v: the test proves nothing", n.admitted[mode], n.denied[mode],
			mode)
	}
}

// unproven returns a mode in which no take was admitted, or none denied. It is ok if there is none, or if so few
// operations are compared that this says nothing.
func (n *counts) unproven(c *Config) (mode store.Mode, ok bool) {
	for mode := store.ModeCharge; c.Operations >= 1000 && mode <= store.ModeAtMost; mode++ {
		never := mode == store.ModeAtMost && c.Twice
		if !never && (n.admitted[mode] == 0 || mode != store.ModeRecord && n.denied[mode] == 0) {
			return mode, false
		}
	}
	return 0, true
}

// random runs traces, the first of them of that seed, until there were enough operations or one fails. There are more
// where few traces happened to be about a mode.
func (c Config) random(t *testing.T, seed uint64) (n counts, failure string) {
	if c.Run == nil {
		c.Run = func(t *testing.T, f func(t *testing.T)) { f(t) }
	}
	enough := func() bool {
		_, ok := n.unproven(&c)
		return n.operations >= c.Operations && ok || n.operations >= 10*c.Operations
	}
	for ; !enough() && !t.Failed(); seed++ {
		var tr *trace
		var err error
		c.Run(t, func(t *testing.T) {
			tr = newTrace(t, &c, seed, &n)
			err = tr.play()
		})
		if err != nil {
			return n, tr.report(t, seed, err)
		}
	}
	return n, ""
}

// trace makes random steps, and runs them.
type trace struct {
	*run

	r         *rand.Rand
	logs      []*subject
	steps     []*step
	id        uint64
	abilities abilities
	kind      kind
	nextAt    int64 // the instant of the step that is made, in microseconds since the Unix epoch
}

// subject is one log of a key. Takes ask it under any of the limits.
type subject struct {
	key    int
	limits []*store.Limit
}

func (s *subject) first() *store.Limit { return s.limits[0] }

// isLog reports whether the log is one of entries, and not of permits.
func (s *subject) isLog() bool { return s.first().Algorithm == store.SlidingLog && !s.first().Permits }

// abilities is what a store has.
type abilities struct {
	several    bool // logs in a request
	keys       bool // in a request
	algorithms []store.Algorithm
	permits    bool
}

// kind is what a trace is mostly about.
type kind struct {
	units  bool       // all takes are of one unit
	most   store.Mode // of most takes
	atOnce bool       // requests are sent at the same time
	calm   int        // of so many steps, 8 begin with a pause
	keys   int
	logs   int // of a key, at most
	length int // steps
}

func newRun(t *testing.T, c *Config, keys int, n *counts) *run {
	x := &run{Config: c, Clocked: c.New(t), t: t, want: &Store{byID: c.ByID}, n: n}
	x.began = x.Now()
	for i := range keys {
		x.keys = append(x.keys, store.NewKey("random", fmt.Sprint("k", i)))
	}
	return x
}

func newTrace(t *testing.T, c *Config, seed uint64, n *counts) *trace {
	r := rand.New(rand.NewPCG(seed, 0))
	k := kind{
		units: c.Units || r.IntN(2) == 0, atOnce: c.Callers > 1 && r.IntN(2) == 0, calm: anyOf(r, 12, 20, 40),
		keys: 1 + r.IntN(4), logs: 1, length: 20 + r.IntN(200),
	}
	if r.IntN(3) == 0 {
		k.logs += r.IntN(4)
	}
	switch r.IntN(8) {
	case 0:
		k.most = store.ModeChargeDenied
	case 1:
		if k.most = store.ModeAtMost; c.Twice {
			k.most = store.ModeCharge
		}
	case 2:
		k.keys, k.length = 50, 3000
	}
	tr := &trace{run: newRun(t, c, k.keys, n), r: r, kind: k, id: uint64(r.Uint32()>>2) << 32}
	tr.findAbilities()
	// Clocks of real stores are somewhere.
	_ = tr.do(&step{
		pause: tr.part(400 * 24 * time.Hour), text: func() string { return "begin" },
		do: func(*run) error { return nil },
	})
	for key := range k.keys {
		tr.addLogs(key)
	}
	return tr
}

func (tr *trace) findAbilities() {
	_, tr.abilities.permits = tr.Store.(store.Renewer)
	limits := []*store.Limit{tr.limit(store.SlidingLog, 0), tr.limit(store.SlidingLog, 1)}
	if err := tr.Store.Validate(limits[0]); err != nil {
		tr.t.Fatal(err)
	}
	tr.abilities.several = tr.Store.Validate(limits...) == nil
	tr.abilities.keys = tr.abilities.several
	for _, a := range store.Algorithms()[1:] {
		if !tr.Twice && tr.Store.Validate(tr.limit(a, 0)) == nil {
			tr.abilities.algorithms = append(tr.abilities.algorithms, a)
		}
	}
}

// play makes steps, and runs them, until one fails.
func (tr *trace) play() error {
	for range tr.kind.length {
		if err := tr.do(tr.next()); err != nil {
			return err
		}
	}
	tr.nextAt = tr.want.now
	for _, s := range tr.logs { // what is left
		for _, l := range s.limits {
			if err := tr.do(tr.peek(s, l)); err != nil {
				return err
			}
		}
		if s.isLog() {
			if err := tr.do(listing(s.key, s.first())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (tr *trace) do(s *step) error {
	tr.steps = append(tr.steps, s)
	return tr.step(s)
}

func (tr *trace) peek(s *subject, l *store.Limit) *step {
	tr.id++
	return taking(&request{id: tr.id, mode: store.ModePeek, asks: []ask{{s.key, tr.current(l), 1}}})
}

// next makes a random step.
func (tr *trace) next() *step {
	pause := tr.pause()
	tr.nextAt = tr.want.now + pause.Microseconds()
	s := anyOf(tr.r, tr.logs...)
	l := anyOf(tr.r, s.limits...)
	var next *step
	switch k := tr.r.IntN(48); {
	case k < 4 && len(tr.made) > 0:
		next = tr.settle()
	case k < 6 && tr.Again && len(tr.sent) > 0:
		next = repeating(anyOf(tr.r, tr.sent...).id)
	case k < 9 && l.Permits:
		next = tr.renew(s)
	case k < 7 && s.isLog():
		next = tr.merge(s, l)
	case k < 8 && s.isLog():
		next = listing(s.key, l)
	case k < 10 && tr.r.IntN(3) == 0:
		next = tr.reset(s)
	default:
		next = tr.take()
	}
	next.pause = pause
	return next
}

// pause is mostly until an instant at which an answer changes, or a microsecond before or after it.
func (tr *trace) pause() (by time.Duration) {
	s := anyOf(tr.r, tr.logs...)
	l, near := s.first(), time.Duration(tr.r.IntN(3)-1)*time.Microsecond
	switch tr.r.IntN(tr.kind.calm) {
	case 0:
		by = tr.part(4 * l.Window / time.Duration(min(l.Quota, 1000)))
	case 1:
		by = time.Microsecond
	case 2, 3:
		by = tr.hint + near
	case 4, 5:
		by = tr.edge(s, l) + near
	case 6:
		by = tr.part(l.Window)
	case 7:
		if by = tr.part(3 * l.Window); s.isLog() {
			by = time.Duration(tr.r.IntN(20)/19) * (l.Window + near)
		}
	}
	most := longestPause
	if tr.r.IntN(50) == 0 {
		most = longerPause
	}
	return max(by, 0) % most
}

// Pauses are so long at most, since a store may do something every few seconds.
const (
	longestPause = 5 * time.Minute
	longerPause  = 3 * time.Hour
)

// part is a random part of d.
func (tr *trace) part(d time.Duration) time.Duration {
	return time.Duration(tr.r.Int64N(int64(d) + 1)).Truncate(time.Microsecond)
}

// edge returns the time until one of the entries of a log leaves the window, or a period ends.
func (tr *trace) edge(s *subject, l *store.Limit) time.Duration {
	if l.Algorithm != store.SlidingLog {
		_, end := period(l, instant(l, tr.want.now))
		return time.Duration(end-tr.want.now) * time.Microsecond
	}
	entries := tr.want.log(&tr.keys[s.key], l).entries
	if len(entries) == 0 {
		return 0
	}
	oldest := entries[:min(len(entries), 4)]
	e := anyOf(tr.r, anyOf(tr.r, oldest, entries)...)
	return time.Duration(e.at-tr.want.now)*time.Microsecond + l.Window
}

func anyOf[E any](r *rand.Rand, all ...E) E { return all[r.IntN(len(all))] }

// mode is the mode of most takes, or another one that all logs of a request have. It is seldom another one where takes
// are of one unit: a log with more than its quota is kept off a store's short paths for a whole window.
func (tr *trace) mode(logs []*subject) store.Mode {
	counters := slices.ContainsFunc(logs, func(s *subject) bool { return s.first().Algorithm != store.SlidingLog })
	often := 20
	if tr.kind.units {
		often = 60
	}
	mode := tr.kind.most
	switch k := tr.r.IntN(often); {
	case k < 2:
		mode = store.ModePeek
	case k < 5 && !tr.Twice:
		mode = store.ModeAtMost
	case k < 6:
		mode = store.ModeRecord
	case k < 7:
		mode = store.ModeChargeDenied
	}
	if counters && mode == store.ModeRecord {
		return store.ModeCharge
	}
	return mode
}

// cost is mostly one unit, and at most one above the quota, but for a take that gets what is left.
func (tr *trace) cost(l *store.Limit, mode store.Mode) int {
	if tr.kind.units {
		return 1
	}
	cost, most := 1, l.Quota+1
	switch tr.r.IntN(6) {
	case 0:
		cost += tr.r.IntN(min(most, 40))
	case 1:
		cost += (most - 2) / (1 + tr.r.IntN(4))
	case 2:
		if tr.r.IntN(4) == 0 {
			cost = most
		}
	}
	switch {
	case mode == store.ModeAtMost:
		cost += tr.r.IntN(2) * tr.r.IntN(400) // above most quotas
	case mode == store.ModeRecord && tr.r.IntN(4) == 0:
		cost += tr.r.IntN(store.MaxRecorded / 2)
	}
	return max(cost, 1)
}

// take sends a request, or several at the same time.
func (tr *trace) take() *step {
	logs := tr.choose()
	mode, several := tr.mode(logs), 1
	// What is trimmed depends on the order of entries of one instant, and several servers have no common order.
	// Takes that become one group are trimmed once. Logs of small quotas never have so many units.
	trims := func(s *subject) bool {
		large := func(l *store.Limit) bool { return l.Quota > 1000 }
		return (tr.Twice || slices.ContainsFunc(s.limits, large)) &&
			slices.ContainsFunc(s.limits, func(l *store.Limit) bool { return l.Unlimited })
	}
	ordered := func(logs []*subject) bool {
		return mode != store.ModeChargeDenied && mode != store.ModeRecord && !slices.ContainsFunc(logs, trims) &&
			(!tr.InTurn || logs[0].key == logs[len(logs)-1].key)
	}
	if tr.kind.atOnce && ordered(logs) {
		several += tr.r.IntN(anyOf(tr.r, 1, 4, tr.Callers))
	}
	requests := make([]*request, 0, several)
	for n := range several {
		if n > 0 && tr.r.IntN(2) == 0 {
			if other := tr.choose(); tr.mode(other) == mode && ordered(other) {
				logs = other
			}
		}
		requests = append(requests, tr.request(logs, mode))
	}
	return taking(requests...)
}

func (tr *trace) request(logs []*subject, mode store.Mode) *request {
	tr.id++
	q := &request{id: tr.id, mode: mode}
	if mode == store.ModeAtMost {
		q.share = tr.r.IntN(2) * tr.r.IntN(5)
	}
	cost, each := tr.cost(anyOf(tr.r, logs...).first(), mode), tr.r.IntN(2) == 0
	for _, s := range logs {
		l := anyOf(tr.r, s.limits...)
		if tr.InTurn && logs[0].key != logs[len(logs)-1].key && l.Unlimited {
			l = s.first() // what was trimmed is not restored when another server denies
		}
		if each && mode != store.ModeAtMost {
			cost = tr.cost(l, mode)
		}
		q.asks = append(q.asks, ask{s.key, tr.current(l), cost})
	}
	return q
}

// choose returns the logs of a request, those of one key together.
func (tr *trace) choose() []*subject {
	one := anyOf(tr.r, tr.logs...)
	if !tr.abilities.several || tr.kind.logs == 1 || tr.r.IntN(3) == 0 {
		return []*subject{one}
	}
	var logs []*subject
	keys := []int{one.key}
	for tr.abilities.keys && tr.r.IntN(3) == 0 {
		if another := tr.r.IntN(len(tr.keys)); !slices.Contains(keys, another) {
			keys = append(keys, another)
		}
	}
	for _, key := range keys {
		var of []*subject
		for _, s := range tr.logs {
			if s.key == key {
				of = append(of, s)
			}
		}
		for _, i := range tr.r.Perm(len(of))[:1+tr.r.IntN(len(of))] {
			logs = append(logs, of[i])
		}
	}
	return logs
}

// settle changes the cost of a take, whether it was recorded or not.
func (tr *trace) settle() *step {
	m := anyOf(tr.r, tr.made...)
	cost := anyOf(tr.r, 0, 0, tr.r.IntN(12), tr.r.IntN(400))
	if tr.kind.units {
		cost = tr.r.IntN(2)
	}
	wrong, younger := 0, time.Duration(0)
	switch tr.r.IntN(3) {
	case 0:
		wrong, younger = 1+tr.r.IntN(12), tr.part(time.Second)
	case 1:
		younger = tr.part(2*time.Second) - time.Second
	}
	return settling(m.id, m.key, m.limit, cost, wrong, younger)
}

// merge adds entries of another log, some of which the log may have.
func (tr *trace) merge(s *subject, l *store.Limit) *step {
	var entries []store.Entry
	add := func(e store.Entry) {
		same := func(other store.Entry) bool { return other.ID == e.ID || other.Age == e.Age && other.Cost != e.Cost }
		if !slices.ContainsFunc(entries, same) {
			entries = append(entries, e)
		}
	}
	few, cost := tr.r.IntN(4), func() int {
		if tr.kind.units {
			return 1
		}
		return 1 + tr.r.IntN(3)
	}
	if tr.r.IntN(100) == 0 { // more than a store removes at a time
		few = 1000 + tr.r.IntN(3000)
	}
	longest := anyOf(tr.r, l.Window-time.Microsecond, tr.part(l.Window-time.Microsecond))
	if tr.r.IntN(4) == 0 {
		longest = l.Window + time.Millisecond // those may be left out
	}
	for range few {
		tr.id++
		e := store.Entry{ID: tr.id, Age: tr.part(longest), Cost: cost()}
		if few > 1000 {
			entries = append(entries, e)
			continue
		}
		add(e)
	}
	for _, m := range tr.made {
		if m.key == s.key && m.limit.Log == l.Log && tr.r.IntN(8) == 0 {
			add(store.Entry{ID: m.id, Age: tr.Now().Sub(m.at), Cost: anyOf(tr.r, max(m.units, 1), cost())})
		}
	}
	tr.r.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	return merging(s.key, l, entries, tr.r.IntN(2) == 0)
}

// renew renews some of the latest takes, whether they have a permit or not.
func (tr *trace) renew(s *subject) *step {
	var ids []uint64
	for id, most := tr.id, tr.r.Uint64N(16); most > 0; id, most = id-1, most-1 {
		if tr.r.IntN(3) > 0 {
			ids = append(ids, id)
		}
	}
	tr.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return renewing(s.key, s.first(), ids)
}

// reset resets some of the logs of a key.
func (tr *trace) reset(s *subject) *step {
	var limits []*store.Limit
	for _, other := range tr.logs {
		if other == s || other.key == s.key && tr.r.IntN(2) == 0 {
			limits = append(limits, anyOf(tr.r, other.limits...))
		}
	}
	young := time.Duration(0)
	if tr.r.IntN(2) == 0 {
		if young = tr.part(time.Second); s.isLog() {
			young = s.first().Window - tr.edge(s, s.first()) + time.Duration(tr.r.IntN(3)-1)*time.Microsecond
		}
	}
	return resetting(s.key, limits, max(young, 0))
}
