package coretest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// ExploreConfig says how to make the store under test, and how much of it to explore.
type ExploreConfig struct {
	// New makes an empty store and the function that moves its time on, and Run runs one case, as in [StoreConfig].
	New func(*testing.T) (store core.Store, advance func(time.Duration))
	Run func(t *testing.T, name string, f func(*testing.T))

	// Repeats says that the store finds out by the ID whether it has executed a take before. Commands are then also
	// executed again, at once or after up to two other operations, as a client does that has lost the reply. They are
	// recorded once, and answered as before: what was admitted is admitted, and a recorded denial stays one. A world ends early where a repeated take was trimmed, has
	// left its windows or was removed from one of two logs, since it is not defined what a store then knows about it.
	Repeats bool

	// Worlds is about how many worlds of each kind are explored at most, chosen at random; zero means all of them, two
	// million without Repeats.
	Worlds int

	// Callers is how many goroutines ask the store at the same time, each about worlds of its own. Zero means 1.
	Callers int
}

// Explore runs every small world against a store and the definition, and compares each answer, and in the end what is
// left of each quota and each log, with its instants.
//
// A world is a sequence of one to four operations on two logs of small quotas, with steps of time between them that end
// right before, at and right after the instants at which entries leave their windows. An operation is a take of one or
// two units in one of the modes, of one log or of both ([store.Joint]); a [store.Settlement] of an earlier take, to
// undo it or to change its cost; a reset; or an earlier take once more. The operations of a store are atomic, so every
// interleaving of those of several processes is such a sequence, and each sequence is one of two processes: there is no
// need to tell processes apart. A request over both logs names the second one first in every other world.
//
// Of worlds that differ only in which log is called the first, one is explored where both have equal limits. The number
// of worlds is logged. What the store has no interface for is left out, as in [Store].
func Explore(t *testing.T, c ExploreConfig) {
	if c.Run == nil {
		c.Run = func(t *testing.T, name string, f func(*testing.T)) { t.Run(name, f) }
	}
	for _, kind := range worldKinds() {
		c.Run(t, kind.name, func(t *testing.T) {
			e := &explorer{
				t: t, worldKind: kind, callers: max(c.Callers, 1), repeats: c.Repeats,
				namespace: store.NewNamespace(fmt.Sprintf("worlds-%x", rand.Uint32()), nil),
			}
			e.store, e.advance = c.New(t)
			e.joint, _ = e.store.(store.Joint)
			e.settler, _ = e.store.(store.Settler)
			e.lister, _ = e.store.(store.Lister)
			_, e.granter = e.store.(store.Granter)
			e.explore(c.Worlds)
		})
	}
}

// worldKind is what the worlds of one kind are made of.
type worldKind struct {
	name    string
	plans   [2]*store.Plan
	takes   []operation // mode and cost
	logs    []logSet    // of takes and resets
	settles []int       // costs to which takes are settled
	steps   []time.Duration
	resets  bool
	alike   bool // both logs have equal limits
}

const worldWindow = 10 * time.Millisecond

// worldKinds returns all kinds. In the steps the windows of a kind have their edges: a sum of three of them is each
// window, and each window less a microsecond.
func worldKinds() []*worldKind {
	plan := func(shadow, bound int, limits ...store.Limit) *store.Plan {
		return store.NewPlan(store.Plan{Limits: limits, Shadow: shadow, Bound: bound})
	}
	two, three := store.Limit{Quota: 2, Window: worldWindow}, store.Limit{Quota: 3, Window: 2 * worldWindow}
	modes := []operation{
		{mode: store.ModeCharge, cost: 1}, {mode: store.ModeCharge, cost: 2},
		{mode: store.ModeChargeDenied, cost: 1}, {mode: store.ModeUpTo, cost: 2},
	}
	all := append(slices.Clip(modes), operation{mode: store.ModeChargeDenied, cost: 2},
		operation{mode: store.ModeUpTo, cost: 3}, operation{mode: store.ModeRecord, cost: 1})
	edges := []time.Duration{0, time.Microsecond, worldWindow - time.Microsecond, worldWindow}
	first := []logSet{1}
	return []*worldKind{
		{
			name: "one limit", plans: [2]*store.Plan{plan(0, 0, two)}, takes: all, logs: first,
			settles: []int{0, 1, 3}, steps: edges, resets: true,
		},
		{
			name: "two limits", plans: [2]*store.Plan{plan(0, 0, two, three)}, takes: modes, logs: first,
			settles: []int{0, 1}, steps: edges,
		},
		{
			name: "shadow and bound", plans: [2]*store.Plan{plan(1, 3, two, three)}, takes: modes, logs: first,
			settles: []int{0, 3}, steps: edges,
		},
		{
			name: "two logs alike", plans: [2]*store.Plan{plan(0, 0, two), plan(0, 0, two)}, takes: modes,
			logs: []logSet{1, 2, 3}, settles: []int{0}, steps: edges[:3], resets: true, alike: true,
		},
		{
			name: "two logs", plans: [2]*store.Plan{plan(0, 0, two), plan(0, 0, three)}, takes: modes[:4:4],
			logs: []logSet{1, 2, 3}, settles: []int{0}, steps: edges[2:],
		},
	}
}

// logSet is a set of logs: bit 0 is the first, bit 1 the second.
type logSet uint8

func (s logSet) has(log int) bool { return s>>log&1 == 1 }

func (s logSet) String() string { return [...]string{"none", "log 1", "log 2", "both logs"}[s] }

// operation is one step of a world.
type operation struct {
	what operationKind
	logs logSet // of a take and of a reset
	mode store.Mode
	cost int // of a take and of a settlement
	of   int // the number of the take that is settled or executed again
}

type operationKind uint8

const (
	taking operationKind = iota
	settling
	again
	resetting
)

func (o operation) String() string {
	switch o.what {
	case taking:
		return fmt.Sprintf("%v of %d from %v", o.mode, o.cost, o.logs)
	case settling:
		return fmt.Sprintf("settle operation %d to %d", o.of+1, o.cost)
	case again:
		return fmt.Sprintf("operation %d again", o.of+1)
	case resetting:
		return fmt.Sprintf("reset %v", o.logs)
	}
	return "unknown"
}

// sequences returns all sequences of n operations that begin with those given.
func (e *explorer) sequences(begin []operation, n int) (all [][]operation) {
	if n == 0 {
		return [][]operation{slices.Clone(begin)}
	}
	for _, o := range e.next(begin) {
		all = append(all, e.sequences(append(slices.Clip(begin), o), n-1)...)
	}
	return all
}

// next returns the operations that may follow others. A take that was settled is not executed again, since its caller
// has had the reply.
func (e *explorer) next(before []operation) (all []operation) {
	for _, logs := range e.logs {
		// Where the logs are alike, the first operation that is not about both is about the first log.
		both := func(o operation) bool { return o.what != taking && o.what != resetting || o.logs == 3 }
		if e.alike && logs == 2 && !slices.ContainsFunc(before, func(o operation) bool { return !both(o) }) {
			continue
		}
		if logs == 3 && e.joint == nil {
			continue
		}
		for _, take := range e.takes {
			if take.mode == store.ModeUpTo && !e.granter {
				continue
			}
			take.logs = logs
			all = append(all, take)
		}
		if e.resets && logs != 3 && len(before) > 0 {
			all = append(all, operation{what: resetting, logs: logs})
		}
	}
	for i, o := range before {
		if o.what != taking {
			continue
		}
		if e.settler != nil {
			for _, cost := range e.settles {
				all = append(all, operation{what: settling, of: i, cost: cost})
			}
		}
		settled := func(later operation) bool { return later.what == settling && later.of == i }
		if e.repeats && !slices.ContainsFunc(before, settled) {
			all = append(all, operation{what: again, of: i})
		}
	}
	return all
}

const (
	longestWorld = 4    // operations
	sameTime     = 4096 // worlds that are run at the same time
)

// explorer runs worlds of one kind on a store.
type explorer struct {
	*worldKind

	t         *testing.T
	store     core.Store
	joint     store.Joint // the store, or nil if it is none
	settler   store.Settler
	lister    store.Lister
	granter   bool
	repeats   bool
	advance   func(time.Duration)
	callers   int
	namespace *store.Namespace

	now     time.Duration // since the store was made
	base    time.Time     // when that was, on the store's clock
	keys    int           // that were made
	ids     atomic.Uint64
	worlds  int // that were run
	ended   atomic.Int64
	checked atomic.Int64 // answers and logs
}

// explore runs worlds of one operation, of two, and so on, so that the first that fails is among the shortest. If most
// is positive, it chooses so many of them at random.
func (e *explorer) explore(most int) {
	e.findBase()
	var sequences [longestWorld + 1][][]operation
	var steps [longestWorld + 1][][]time.Duration
	total := 0
	for n := 1; n <= longestWorld; n++ {
		sequences[n], steps[n] = e.sequences(nil, n), e.allSteps(n-1)
		total += len(sequences[n]) * len(steps[n])
	}
	for n := 1; n <= longestWorld; n++ {
		for _, steps := range steps[n] {
			for part := range slices.Chunk(sequences[n], sameTime) {
				if most > 0 && most < total {
					drop := func([]operation) bool { return rand.IntN(total) >= most }
					part = slices.DeleteFunc(slices.Clone(part), drop)
				}
				if e.runAll(part, steps); e.t.Failed() {
					return
				}
			}
		}
	}
	ended := e.ended.Load()
	e.t.Logf("%d of %d worlds, %d of them to the end; %d answers and logs compared",
		e.worlds, total, ended, e.checked.Load())
	if ended == 0 {
		e.t.Error("no world was run to the end")
	}
}

// allSteps returns all sequences of n steps.
func (e *explorer) allSteps(n int) [][]time.Duration {
	all := [][]time.Duration{nil}
	for range n {
		var longer [][]time.Duration
		for _, steps := range all {
			for _, step := range e.steps {
				longer = append(longer, append(slices.Clip(steps), step))
			}
		}
		all = longer
	}
	return all
}

func (e *explorer) step(d time.Duration) {
	if d > 0 {
		e.advance(d)
		e.now += d
	}
}

func (e *explorer) newKey() store.Key {
	e.keys++
	return store.Key{Namespace: e.namespace, Identity: store.Identity{Kind: "by", Text: fmt.Sprint(e.keys)}}
}

// findBase finds out when the explorer's time began on the store's clock.
func (e *explorer) findBase() {
	if e.lister == nil {
		return
	}
	key := e.newKey()
	_, err := e.store.Take(e.t.Context(), store.Take{Key: key, Plan: e.plans[0], Cost: 1, ID: e.ids.Add(1)})
	if err != nil {
		e.t.Fatal(err)
	}
	entries, err := e.lister.Log(e.t.Context(), key, worldWindow)
	if err != nil || len(entries) != 1 {
		e.t.Fatalf("the log of one take: %v, %v", entries, err)
	}
	e.base = entries[0].At.Add(-e.now)
}

// runAll runs a world of each sequence of operations. All of them go through the same steps of time.
func (e *explorer) runAll(sequences [][]operation, steps []time.Duration) {
	if len(sequences) == 0 {
		return
	}
	worlds := make([]*world, len(sequences))
	for i, operations := range sequences {
		worlds[i] = &world{explorer: e, operations: operations, steps: steps, reverse: (e.worlds+i)%2 == 1}
		for log := range worlds[i].logs {
			worlds[i].logs[log].key = e.newKey()
		}
	}
	e.worlds += len(worlds)
	for i := range steps {
		e.each(worlds, func(w *world) error { return w.execute(i) })
		e.step(steps[i])
	}
	e.each(worlds, func(w *world) error { return w.execute(len(steps)) })
	e.each(worlds, (*world).finish)
	e.step(2 * worldWindow) // the logs of these worlds expire
}

// each calls f for all worlds, and reports those that fail.
func (e *explorer) each(worlds []*world, f func(*world) error) {
	var all sync.WaitGroup
	var next, failed atomic.Int64
	for range e.callers {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(worlds) || failed.Load() > 2 || e.t.Failed() && failed.Load() == 0 {
					return
				}
				if err := f(worlds[i]); err != nil {
					failed.Add(1)
					e.t.Errorf("%v:\n%v", worlds[i], err)
				}
			}
		})
	}
	all.Wait()
}

// world is one sequence of operations.
type world struct {
	*explorer

	operations []operation
	steps      []time.Duration
	reverse    bool // the order of logs in requests
	logs       [2]worldLog
	made       [longestWorld]madeTake // by the number of the operation
	vague      bool                   // what the store has to do is not defined
}

type worldLog struct {
	oracle

	key store.Key
}

// madeTake is an executed take.
type madeTake struct {
	id      uint64
	allowed bool
	granted int
	in      logSet // the logs that recorded it
	at      time.Duration
}

func (w *world) String() string {
	var b strings.Builder
	for i, o := range w.operations {
		if i > 0 {
			fmt.Fprintf(&b, "then after %v ", w.steps[i-1])
		}
		fmt.Fprintf(&b, "%d: %v\n", i+1, o)
	}
	fmt.Fprintf(&b, "limits %v", w.plans[0].Limits)
	if w.plans[1] != nil {
		fmt.Fprintf(&b, " and %v", w.plans[1].Limits)
	}
	return b.String()
}

// execute executes an operation, and compares its answers.
func (w *world) execute(i int) error {
	for log := range w.logs {
		if w.plans[log] != nil {
			w.logs[log].now = w.now
			w.logs[log].forget(w.plans[log].Keep)
		}
	}
	if w.vague {
		return nil
	}
	switch o := w.operations[i]; o.what {
	case taking:
		return w.take(i)
	case again:
		return w.takeAgain(o.of)
	case settling:
		return w.settle(o)
	case resetting:
		return w.reset(o)
	}
	return nil
}

// request returns the takes of the operation with number i, and their logs.
func (w *world) request(i int) (takes []store.Take, logs []*oracle) {
	o := w.operations[i]
	for n := range w.logs {
		if w.reverse {
			n = len(w.logs) - 1 - n
		}
		if o.logs.has(n) {
			l, t := &w.logs[n], store.Take{Plan: w.plans[n], Cost: o.cost, ID: w.made[i].id, Mode: o.mode}
			t.Key = l.key
			takes, logs = append(takes, t), append(logs, &l.oracle)
		}
	}
	return takes, logs
}

// ask executes takes.
func (w *world) ask(takes []store.Take) (answers []store.Answer, err error) {
	w.checked.Add(int64(len(takes)))
	answers = make([]store.Answer, len(takes))
	if len(takes) == 1 {
		answers[0], err = w.store.Take(w.t.Context(), takes[0])
		return answers, err
	}
	return answers, w.joint.TakeAll(w.t.Context(), slices.Clone(takes), answers) // which may change them
}

// take executes a take, or does so once more if no log holds it any longer.
func (w *world) take(i int) error {
	made := &w.made[i]
	if made.id == 0 {
		made.id = w.ids.Add(1)
	}
	takes, logs := w.request(i)
	answers, err := w.ask(takes)
	if err != nil {
		return err
	}
	want := takeAll(takes, logs)
	made.allowed, made.granted = true, want[0].Granted
	for n := range want {
		if made.allowed = made.allowed && want[n].Allowed; answers[n] != want[n] {
			return fmt.Errorf("operation %d, log %v\ngot  %+v\nwant %+v", i+1, takes[n].Key.Text, answers[n], want[n])
		}
	}
	made.in, made.at = 0, w.now
	for n, l := range logs {
		if l.holds(made.id) {
			made.in |= 1 << n
		}
	}
	return nil
}

// takeAgain executes the command of a take once more. The world ends if it is not defined what the store has to do: if
// the take was trimmed in part, has left its windows, or is in one of its logs only, and if a log may order it before
// other entries of the same instant, since its ID is older.
func (w *world) takeAgain(i int) error {
	made := w.made[i]
	takes, logs := w.request(i)
	var held logSet
	for n, l := range logs {
		if l.holds(made.id) {
			held |= 1 << n
		}
		expired := made.in.has(n) && made.at <= w.now-takes[n].Plan.Keep
		w.vague = w.vague || expired || l.holdsPart(made.id) || l.newerAt(w.now, made.id)
	}
	switch {
	case held == 0 && !w.vague: // as if it had never been executed
		return w.take(i)
	case held != made.in || w.vague:
		w.vague = true
		return nil
	}
	answers, err := w.ask(takes)
	if err != nil {
		return err
	}
	allowed := true
	for n := range answers {
		if allowed = allowed && answers[n].Allowed; answers[n].Granted != made.granted {
			return fmt.Errorf("operation %d, again: %d granted, want %d", i+1, answers[n].Granted, made.granted)
		}
	}
	if allowed != made.allowed { // a denial that was recorded stays one, also where there is room by now
		return fmt.Errorf("operation %d, again: allowed %v, want %v", i+1, allowed, made.allowed)
	}
	return nil
}

// settle changes the cost of a take in all of its logs.
func (w *world) settle(o operation) error {
	takes, logs := w.request(o.of)
	for n, l := range logs {
		s := store.Settlement{Key: takes[n].Key, ID: takes[n].ID, Cost: o.cost}
		if err := w.settler.Settle(w.t.Context(), s); err != nil {
			return err
		}
		l.settle(s.ID, s.Cost)
	}
	return nil
}

func (w *world) reset(o operation) error {
	for n := range w.logs {
		if !o.logs.has(n) {
			continue
		}
		if err := w.store.Reset(w.t.Context(), w.logs[n].key); err != nil {
			return err
		}
		w.logs[n].entries = nil
	}
	return nil
}

// finish compares what is left of the quotas, and the logs.
func (w *world) finish() error {
	if w.vague {
		return nil
	}
	for n := range w.logs {
		plan, l := w.plans[n], &w.logs[n]
		if plan == nil {
			continue
		}
		take := store.Take{Key: l.key, Plan: plan, Cost: 1, ID: w.ids.Add(1), Mode: store.ModePeek}
		answers, err := w.ask([]store.Take{take})
		if err != nil {
			return err
		}
		if want := l.take(take); answers[0] != want {
			return fmt.Errorf("in the end, log %d\ngot  %+v\nwant %+v", n+1, answers[0], want)
		}
		if w.lister == nil {
			continue
		}
		got, err := w.lister.Log(w.t.Context(), l.key, plan.Keep)
		if err != nil {
			return err
		}
		if err := sameLog(got, l.entries, w.base); err != nil {
			return fmt.Errorf("in the end, log %d: %w", n+1, err)
		}
		w.checked.Add(1)
	}
	w.ended.Add(1)
	return nil
}

// sameLog compares what a store lists with the entries of an oracle, whose time began at base.
func sameLog(got []core.Entry, want []oracleEntry, base time.Time) error {
	want = slices.Clone(want) // entries of one instant are in any order
	slices.SortFunc(want, func(a, b oracleEntry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.cost, b.cost))
	})
	slices.SortFunc(got, func(a, b core.Entry) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Cost, b.Cost))
	})
	same := len(got) == len(want)
	for i := 0; same && i < len(got); i++ {
		same = got[i].Cost == want[i].cost && got[i].At.Sub(base) == want[i].at
	}
	if same {
		return nil
	}
	var listed []string
	for _, e := range got {
		listed = append(listed, fmt.Sprintf("%d at %v", e.Cost, e.At.Sub(base)))
	}
	return fmt.Errorf("listed %v, want %+v", listed, want)
}
