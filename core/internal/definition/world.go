package definition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
// All worlds are run, or about so many of each kind, chosen at random, if most is positive. The number of worlds is
// logged.
func Explore(t *testing.T, c Config, length, most int) {
	t.Helper()
	if c.Run == nil {
		c.Run = func(t *testing.T, f func(t *testing.T)) { f(t) }
	}
	c.Again = c.Again || c.Twice
	for _, k := range worldKinds() {
		c.Run(t, func(t *testing.T) {
			e := &explorer{Config: &c, Clocked: c.New(t), worldKind: k}
			switch {
			case e.possible():
				e.explore(t, length, most)
			case k.name == "units":
				t.Error("the store refuses the limit")
			}
		})
	}
}

const (
	worldWindow  = 4 * time.Millisecond
	longerWindow = 6 * time.Millisecond
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

// explorer runs worlds of one kind on one store.
type explorer struct {
	*Config
	Clocked
	*worldKind

	ran int
	n   counts
}

// possible reports whether the store can do what the worlds do.
func (e *explorer) possible() bool {
	var limits []*store.Limit
	for _, a := range e.logs {
		if limits = append(limits, a.limit); a.limit.Permits {
			if _, ok := e.Store.(store.Renewer); !ok {
				return false
			}
		}
	}
	counts := limits[0].Algorithm != store.SlidingLog
	return e.Store.Validate(limits...) == nil && (!e.Units || e.name == "units") && (!e.Twice || !counts)
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

// sequences yields all that continue a sequence to a length.
func (e *explorer) sequences(before []operation, length int, yield func([]operation) bool) bool {
	if len(before) == length {
		return yield(before)
	}
	for _, o := range e.next(before) {
		if !e.sequences(append(slices.Clip(before), o), length, yield) {
			return false
		}
	}
	return true
}

// worlds yields all sequences of one operation, then those of two, and so on, so that the first that fails is among the
// shortest. With each it yields all pauses between its operations.
func (e *explorer) worlds(length int, yield func(all []operation, paused [][]time.Duration) bool) {
	paused := [][]time.Duration{nil}
	for n := 1; n <= length; n++ {
		if !e.sequences(nil, n, func(all []operation) bool { return yield(all, paused) }) {
			return
		}
		shorter := paused
		paused = nil
		for _, before := range shorter {
			for _, p := range pauses {
				paused = append(paused, append(slices.Clip(before), p))
			}
		}
	}
}

func (e *explorer) explore(t *testing.T, length, most int) {
	t.Helper()
	total := 0
	e.worlds(length, func(_ []operation, paused [][]time.Duration) bool { total += len(paused); return true })
	e.worlds(length, func(all []operation, paused [][]time.Duration) bool {
		for _, pauses := range paused {
			if most > 0 && rand.IntN(total) >= most {
				continue
			}
			w := e.world(t, all, pauses)
			if err := w.play(); err != nil {
				t.Errorf("%s: %v%v", e.name, w, err)
				return false
			}
		}
		return true
	})
	t.Logf("%s: %d of %d worlds, %d answers compared", e.name, e.ran, total, e.n.answers)
}

// world is a sequence of operations on logs of its own.
type world struct {
	*run
	*explorer

	number     int
	operations []operation
	steps      []*step
}

func (e *explorer) world(t *testing.T, all []operation, pauses []time.Duration) *world {
	w := &world{explorer: e, number: e.ran, operations: all}
	w.run = &run{Config: e.Config, Clocked: e.Clocked, t: t, want: &Store{byID: e.ByID}, n: &e.n}
	for key := range 2 {
		w.keys = append(w.keys, store.NewKey("worlds", fmt.Sprintf("%d.%d", e.ran, key)))
	}
	for n, o := range all {
		s := o.make(w, o)
		if n > 0 {
			s.pause = pauses[n-1]
		}
		w.steps = append(w.steps, s)
	}
	e.ran++
	return w
}

func (w *world) String() string {
	var b strings.Builder
	for _, s := range w.steps {
		fmt.Fprintf(&b, "after %v %s\n", s.pause, s.text())
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

// play runs the steps, and compares what is left.
func (w *world) play() error {
	steps := slices.Clone(w.steps)
	for n, a := range w.logs {
		q := &request{id: w.id(len(w.steps) + n), mode: store.ModePeek, asks: []ask{{a.key, a.limit, 1}}}
		if steps = append(steps, taking(q)); a.limit.Algorithm == store.SlidingLog {
			steps = append(steps, listing(a.key, a.limit))
		}
	}
	return w.replay(steps)
}
