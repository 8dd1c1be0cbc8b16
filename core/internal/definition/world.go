package definition

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Explore runs small worlds against a store and the definition, and compares each answer, and in the end what is left
// of each quota and each log.
//
// A world is a sequence of one to length operations on one or two logs of small quotas, with pauses between them that
// end right before, at and right after the instants at which entries leave. Operations are takes in all modes;
// settlements, repetitions, merges and renewals of earlier takes; and resets. A store does each in one atomic step, so
// what several processes do is such a sequence too.
//
// All worlds are run, or about so many of each kind, chosen at random, if most is positive. Callers is how many are run
// at the same time. The number of worlds is logged.
func Explore(t *testing.T, c Config, length, most int) {
	t.Helper()
	if c.Run == nil {
		c.Run = func(t *testing.T, f func(t *testing.T)) { f(t) }
	}
	c.Again = c.Again || c.Twice
	for _, k := range worldKinds() {
		e := explorer{Config: &c, worldKind: k, most: most}
		if failure := e.explore(t, length); failure != "" {
			t.Errorf("%s: %s", k.name, failure)
		}
		t.Logf("%s: %d of %d worlds, %d answers compared", k.name, e.ran, e.total, e.n.answers)
	}
}

const (
	worldWindow  = 4 * time.Millisecond
	longerWindow = 6 * time.Millisecond
	sameTime     = 2000 // worlds that go through the same pauses, on one store
)

var pauses = []time.Duration{
	0, time.Microsecond, worldWindow - time.Microsecond, worldWindow, longerWindow - worldWindow,
}

// worldKind is what worlds have in common.
type worldKind struct {
	name  string
	logs  []ask // without costs
	takes []request
	to    []int // what takes are settled to
}

func worldKinds() []*worldKind {
	log := func(key, quota int, window time.Duration) ask {
		return ask{key: key, limit: &store.Limit{Log: window.String(), Quota: quota, Window: window}}
	}
	permits := log(0, 2, worldWindow)
	permits.limit.Permits, permits.limit.Log = true, "permits"
	const charge, peek, record = store.ModeCharge, store.ModePeek, store.ModeRecord
	const denied, most = store.ModeChargeDenied, store.ModeAtMost
	// take is a request of those costs of each log, but where it is 0.
	take := func(mode store.Mode, costs ...int) request {
		q := request{mode: mode}
		for n, cost := range costs {
			if cost > 0 {
				q.asks = append(q.asks, ask{key: n, cost: cost})
			}
		}
		return q
	}
	two := []request{
		take(charge, 1), take(charge, 0, 2), take(charge, 1, 1), take(charge, 2, 1), take(denied, 1, 1),
		take(record, 1, 1), take(most, 3, 3),
	}
	kinds := []*worldKind{
		{"units", []ask{log(0, 2, worldWindow)}, []request{
			take(charge, 1), take(peek, 1), take(denied, 1), take(record, 1), take(most, 1),
		}, []int{0}},
		{"costs", []ask{log(0, 3, worldWindow)}, []request{
			take(charge, 1), take(charge, 2), take(denied, 2), take(record, 2), take(most, 3),
		}, []int{0, 1, 3}},
		{"two logs", []ask{log(0, 2, worldWindow), log(0, 3, longerWindow)}, two, []int{0, 3}},
		{"two keys", []ask{log(0, 2, worldWindow), log(1, 3, longerWindow)}, two, []int{0}},
		{"permits", []ask{permits, log(0, 3, longerWindow)}, []request{
			take(charge, 1), take(charge, 1, 2), take(peek, 1), take(record, 1, 1), take(most, 2, 2),
		}, []int{0}},
	}
	for _, a := range store.Algorithms()[1:] {
		l := &store.Limit{Log: fmt.Sprint("4ms.", a), Quota: 3, Window: worldWindow, Algorithm: a}
		if a == store.TokenBucket {
			l.Refill = 2
		}
		takes := []request{take(charge, 1), take(charge, 2), take(peek, 3), take(most, 3)}
		kinds = append(kinds, &worldKind{a.String(), []ask{{limit: l}}, takes, []int{0, 1, 3}})
	}
	return kinds
}

// operation is one of a world: a take, or something about an earlier one.
type operation struct {
	take *request
	make func(w *world, o operation) *step
	of   int // the number of the earlier take
	to   int
}

// explorer runs worlds of one kind.
type explorer struct {
	*Config
	*worldKind

	most, total, ran int
	n                counts
}

// possible reports whether a store can do what the worlds of a kind do.
func (e *explorer) possible(s store.Store) bool {
	var limits []*store.Limit
	for _, a := range e.logs {
		if limits = append(limits, a.limit); a.limit.Permits {
			if _, ok := s.(store.Renewer); !ok {
				return false
			}
		}
	}
	counts := limits[0].Algorithm != store.SlidingLog
	return s.Validate(limits...) == nil && (!e.Units || e.name == "units") && (!e.Twice || !counts)
}

// next returns the operations that may follow others.
func (e *explorer) next(before []operation) (all []operation) {
	for i, q := range e.takes {
		if q.mode != store.ModeAtMost || !e.Twice {
			all = append(all, operation{take: &e.takes[i], make: (*world).take, of: len(before)})
		}
	}
	if len(before) == 0 {
		return all
	}
	all = append(all, operation{make: (*world).reset}, operation{make: (*world).reset, to: 1})
	for n, o := range before {
		if o.take == nil {
			continue
		}
		for _, cost := range e.to {
			all = append(all, operation{make: (*world).settle, of: n, to: cost})
		}
		l := e.logs[o.take.asks[0].key].limit
		if e.Again && l.Algorithm == store.SlidingLog {
			all = append(all, operation{make: (*world).again, of: n})
		}
		switch {
		case l.Permits:
			all = append(all, operation{make: (*world).renew, of: n})
		case l.Algorithm == store.SlidingLog && o.take.mode != store.ModePeek:
			all = append(all, operation{make: (*world).merge, of: n})
		}
	}
	return all
}

// sequences returns all that continue a sequence to a length.
func (e *explorer) sequences(before []operation, length int) (all [][]operation) {
	if len(before) == length {
		return [][]operation{before}
	}
	for _, o := range e.next(before) {
		all = append(all, e.sequences(append(slices.Clip(before), o), length)...)
	}
	return all
}

// allPauses returns all sequences of so many pauses.
func allPauses(length int) [][]time.Duration {
	if length == 0 {
		return [][]time.Duration{nil}
	}
	var all [][]time.Duration
	for _, before := range allPauses(length - 1) {
		for _, p := range pauses {
			all = append(all, append(slices.Clip(before), p))
		}
	}
	return all
}

// explore runs worlds of one operation, of two, and so on, so that the first that fails is among the shortest. It
// returns how it fails.
func (e *explorer) explore(t *testing.T, length int) (failure string) {
	possible := false
	e.Run(t, func(t *testing.T) { possible = e.possible(e.New(t).Store) })
	if !possible && e.name == "units" {
		return "the store refuses the limit"
	}
	if !possible {
		return ""
	}
	sequences := make([][][]operation, length+1)
	for n := 1; n <= length; n++ {
		sequences[n] = e.sequences(nil, n)
		e.total += len(sequences[n]) * len(allPauses(n-1))
	}
	for n := 1; n <= length; n++ {
		for _, pauses := range allPauses(n - 1) {
			e.Run(t, func(t *testing.T) {
				c := e.New(t)
				for part := range slices.Chunk(sequences[n], sameTime) {
					part = slices.DeleteFunc(slices.Clone(part), func([]operation) bool {
						return e.most > 0 && rand.IntN(e.total) >= e.most
					})
					if failure = e.runAll(t, c, part, pauses); failure != "" {
						return
					}
				}
			})
			if failure != "" || t.Failed() {
				return failure
			}
		}
	}
	return ""
}

// world is a sequence of operations on logs of its own.
type world struct {
	*run
	*explorer

	number     int
	operations []operation
	steps      []*step
	pauses     []time.Duration
	n          counts
}

func (e *explorer) runAll(t *testing.T, c Clocked, sequences [][]operation, pauses []time.Duration) string {
	worlds := make([]*world, 0, len(sequences))
	for _, operations := range sequences {
		w := &world{explorer: e, number: e.ran, operations: operations, pauses: pauses}
		w.run = &run{Config: e.Config, Clocked: c, t: t, want: &Store{byID: e.ByID}, n: &w.n}
		for key := range 2 {
			w.keys = append(w.keys, store.NewKey("worlds", fmt.Sprintf("%d.%d", e.ran, key)))
		}
		for _, o := range operations {
			w.steps = append(w.steps, o.make(w, o))
		}
		worlds = append(worlds, w)
		e.ran++
	}
	for n := range pauses {
		if failure := e.each(worlds, func(w *world) error { return w.step(w.steps[n]) }); failure != "" {
			return failure
		}
		c.Advance(pauses[n])
	}
	failure := e.each(worlds, func(w *world) error { return w.step(w.steps[len(pauses)]) })
	failure = cmp.Or(failure, e.each(worlds, (*world).finish))
	c.Advance(2 * longerWindow)
	for _, w := range worlds {
		e.n.answers += w.n.answers
	}
	return failure
}

// each calls f for all worlds, and returns how the first fails.
func (e *explorer) each(worlds []*world, f func(w *world) error) string {
	var all sync.WaitGroup
	var next atomic.Int64
	failures := make([]error, len(worlds))
	for range max(e.Callers, 1) {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(worlds) {
					return
				}
				failures[i] = f(worlds[i])
			}
		})
	}
	all.Wait()
	for i, err := range failures {
		if err != nil {
			return fmt.Sprintf("%v%v\n", worlds[i], err)
		}
	}
	return ""
}

func (w *world) String() string {
	var b strings.Builder
	for n, s := range w.steps {
		if n > 0 {
			fmt.Fprintf(&b, "after %v ", w.pauses[n-1])
		}
		fmt.Fprintf(&b, "%s\n", s.text())
	}
	return b.String()
}

// id is that of the take with number n.
func (w *world) id(n int) uint64 { return uint64(w.number+1)<<8 + uint64(n) }

func (w *world) take(o operation) *step {
	q := &request{id: w.id(o.of), mode: o.take.mode}
	for _, a := range o.take.asks {
		log := w.logs[a.key]
		q.asks = append(q.asks, ask{log.key, log.limit, a.cost})
	}
	return taking(q)
}

func (w *world) again(o operation) *step { return repeating(w.id(o.of)) }

// logsOf returns the logs of an earlier take.
func (w *world) logsOf(o operation) (all []ask) {
	for _, a := range w.operations[o.of].take.asks {
		all = append(all, w.logs[a.key])
	}
	return all
}

// settle settles a take in all its logs.
func (w *world) settle(o operation) *step {
	logs := w.logsOf(o)
	all := make([]*step, len(logs))
	for i, a := range logs {
		all[i] = settling(w.id(o.of), a.key, a.limit, o.to, 0, 0)
	}
	return &step{text: all[0].text, do: func(x *run) (err error) {
		for _, s := range all {
			err = errors.Join(err, s.do(x))
		}
		return err
	}}
}

// merge adds what another log may know of a take, to one log.
func (w *world) merge(o operation) *step {
	a, most := w.logsOf(o)[0], w.to[len(w.to)-1]
	return merging(a.key, a.limit, []store.Entry{{ID: w.id(o.of), Cost: most + 1}}, true)
}

func (w *world) renew(o operation) *step {
	a := w.logsOf(o)[0]
	return renewing(a.key, a.limit, []uint64{w.id(o.of)})
}

// reset resets all logs of the first key, or what is not younger than half a window.
func (w *world) reset(o operation) *step {
	var limits []*store.Limit
	for _, a := range w.logs {
		if a.key == 0 {
			limits = append(limits, a.limit)
		}
	}
	return resetting(0, limits, time.Duration(o.to)*worldWindow/2)
}

// finish compares what is left.
func (w *world) finish() (err error) {
	for n, a := range w.logs {
		q := &request{id: w.id(len(w.steps) + n), mode: store.ModePeek, asks: []ask{{a.key, a.limit, 1}}}
		if err == nil {
			err = w.step(taking(q))
		}
		if err == nil && a.limit.Algorithm == store.SlidingLog {
			err = w.step(listing(a.key, a.limit))
		}
	}
	if err != nil {
		return fmt.Errorf("in the end: %w", err)
	}
	return nil
}
