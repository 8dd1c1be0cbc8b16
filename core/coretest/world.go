package coretest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

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
	definition

	key store.Key
}

// madeTake is an executed take.
type madeTake struct {
	id      uint64
	allowed bool
	booked  uint64 // the id of the booking
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
	case booking:
		return w.book(i)
	case again:
		if w.operations[o.of].what == booking {
			return w.book(o.of)
		}
		return w.takeAgain(o.of)
	case settling:
		return w.settle(o)
	case resetting:
		return w.reset(o)
	}
	return nil
}

// request returns the takes of the operation with number i, and their logs.
func (w *world) request(i int) (takes []store.Take, logs []*definition) {
	o := w.operations[i]
	for n := range w.logs {
		if w.reverse {
			n = len(w.logs) - 1 - n
		}
		if o.logs.has(n) {
			l, t := &w.logs[n], store.Take{Plan: w.plans[n], Cost: o.costIn(n), ID: w.made[i].id, Mode: o.mode}
			if t.Key = l.key; n == 0 && o.over != nil {
				t.Plan = o.over
			}
			takes, logs = append(takes, t), append(logs, &l.definition)
		}
	}
	return takes, logs
}

// ask executes takes.
func (w *world) ask(takes []store.Take) (answers []store.Answer, err error) {
	w.checked.Add(int64(len(takes)))
	answers = make([]store.Answer, len(takes))
	return answers, TakeAll(w.t.Context(), w.store, takes, answers)
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
	want := decide(takes, logs)
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
		part := slices.ContainsFunc(l.entries, func(e recorded) bool { return e.id == made.id && e.part })
		newer := slices.ContainsFunc(l.entries, func(e recorded) bool { return e.at == w.now && e.id > made.id })
		expired := made.in.has(n) && made.at <= w.now-takes[n].Plan.Keep
		w.vague = w.vague || expired || part || newer
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

// book books two units, or executes the command once more. The world ends if the take has left its windows, as in
// takeAgain.
func (w *world) book(i int) error {
	o, made := w.operations[i], &w.made[i]
	l := &w.logs[o.logs>>1]
	again := made.id != 0
	if !again {
		made.id, made.booked, made.at = w.ids.Add(1), w.ids.Add(1), w.now
	}
	b := store.Booking{
		Take: store.Take{Key: l.key, Plan: w.plans[o.logs>>1], Cost: 1, ID: made.id, Mode: store.ModePeek},
		ID:   made.booked, Most: 2, Share: 1, Lease: w.lease,
	}
	if o.cost > 0 {
		b.Take.Mode = store.ModeCharge
	}
	if o.of >= 0 {
		b.Settled, b.Used = w.made[o.of].booked, o.used
	}
	if again && made.at <= w.now-b.Take.Plan.Keep {
		w.vague = true
		return nil
	}
	w.checked.Add(1)
	got, err := w.leaser.Book(w.t.Context(), b)
	if err != nil {
		return err
	}
	want := l.book(&b)
	if made.allowed = want.Answer.Allowed; again && got.Answer.Allowed == want.Answer.Allowed {
		got.Answer = want.Answer // otherwise it is as the log is by now
	}
	if got != want {
		return fmt.Errorf("operation %d\ngot  %+v\nwant %+v", i+1, got, want)
	}
	return nil
}

// settle changes the cost of a take. In a log that an admitted take was not about, it is recorded then, at the instant
// of the take.
func (w *world) settle(o operation) error {
	made := w.made[o.of]
	for n := range w.logs {
		l := &w.logs[n]
		late := !w.operations[o.of].logs.has(n)
		if !o.logs.has(n) || late && !made.allowed {
			continue
		}
		if late {
			entry := store.Entry{ID: made.id, Age: w.now - made.at, Cost: o.cost}
			m := store.MergeRequest{Key: l.key, Keep: w.plans[n].Keep, Entries: []store.Entry{entry}}
			if err := w.merger.Merge(w.t.Context(), m); err != nil {
				return err
			}
			l.merge(m.Entries)
			l.forget(m.Keep)
		}
		s := store.Settlement{Key: l.key, ID: cmp.Or(made.booked, made.id), Cost: o.cost}
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
		w.logs[n].empty()
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
		if want := decide([]store.Take{take}, []*definition{&l.definition}); answers[0] != want[0] {
			return fmt.Errorf("in the end, log %d\ngot  %+v\nwant %+v", n+1, answers[0], want[0])
		}
		if w.lister == nil {
			continue
		}
		got, err := w.lister.Log(w.t.Context(), l.key, plan.Keep)
		if err != nil {
			return err
		}
		if err := sameLog(got, l.entries, w.base, w.now); err != nil {
			return fmt.Errorf("in the end, log %d: %w", n+1, err)
		}
		w.checked.Add(1)
	}
	w.ended.Add(1)
	return nil
}

// sameLog compares what a store lists with the entries of a definition, whose time began at base.
func sameLog(got []core.Entry, want []recorded, base time.Time, now time.Duration) error {
	want = slices.Clone(want) // entries of one instant are in any order
	slices.SortFunc(want, func(a, b recorded) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.cost, b.cost))
	})
	slices.SortFunc(got, func(a, b core.Entry) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Cost, b.Cost))
	})
	same := len(got) == len(want)
	for i := 0; same && i < len(got); i++ {
		same = got[i].Cost == want[i].cost && got[i].At.Sub(base) == want[i].at && got[i].Booked == (want[i].at > now)
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
