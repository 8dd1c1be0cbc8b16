package definition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// run is a store under test beside the definition, which does the same steps.
type run struct {
	*Config
	Clocked

	t     *testing.T
	began time.Time
	want  *Store
	keys  []store.Key
	made  []made // the latest takes
	sent  []sent // the latest requests
	hint  time.Duration
	n     *counts
}

// sent is a request that was answered.
type sent struct {
	*request

	admitted bool
	recorded []entry // in each log; the zero entry in those that have not recorded it
}

// made is a take that was answered, of one log.
type made struct {
	ask

	id       uint64
	units    int // that it has now
	at       time.Time
	period   int64
	admitted bool
	settled  int // how often
}

// ask is a take before its key is known.
type ask struct {
	key   int
	limit *store.Limit
	cost  int
}

// counts is what was compared.
type counts struct {
	operations, answers int
	lists, counters     int // requests over several logs, answers of algorithms that count
	admitted, denied    [store.ModeAtMost + 1]int
}

// step is an operation, and the pause before it.
type step struct {
	pause time.Duration
	text  func() string
	do    func(*run) error
}

func (x *run) step(s *step) error {
	if s.pause > 0 {
		x.Advance(s.pause)
	}
	x.want.now = x.Now().UnixMicro()
	x.n.operations++
	return s.do(x)
}

// request is a list of takes before their keys are known.
type request struct {
	id    uint64
	mode  store.Mode
	share int
	asks  []ask
}

func (q *request) takes(x *run) []store.Take {
	takes := make([]store.Take, len(q.asks))
	for i, a := range q.asks {
		takes[i] = store.Take{
			Key: x.keys[a.key], Limit: a.limit, Cost: a.cost, ID: q.id, Mode: q.mode, Share: q.share,
		}
	}
	return takes
}

func (q *request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "take %d, %v", uint32(q.id), q.mode)
	if q.share > 0 {
		fmt.Fprintf(&b, " a %dth", q.share)
	}
	for _, a := range q.asks {
		fmt.Fprintf(&b, "; %d of k%d %v", a.cost, a.key, describe(a.limit))
	}
	return b.String()
}

func describe(l *store.Limit) string {
	text := l.String() + " " + l.Log
	switch {
	case l.Calendar != nil:
		text += fmt.Sprint(" calendar ", *l.Calendar)
	case l.Algorithm != store.SlidingLog:
		text += " " + l.Algorithm.String()
	case l.Permits:
		text += " permits"
	}
	if l.Unlimited {
		text += " unlimited"
	}
	return text
}

// taking sends requests at the same time. Their answers must be those of some order.
func taking(requests ...*request) *step {
	text := func() string {
		texts := make([]string, len(requests))
		for i, q := range requests {
			texts[i] = q.String()
		}
		return strings.Join(texts, "\n      and at the same time ")
	}
	return &step{text: text, do: func(x *run) error {
		got := make([][]store.Answer, len(requests))
		errs := make([]error, len(requests))
		send := func(i int) { got[i], errs[i] = send(x.t.Context(), x.Store, requests[i].takes(x)) }
		if len(requests) == 1 {
			send(0)
		} else {
			var all sync.WaitGroup
			for i := range requests {
				all.Go(func() { send(i) })
			}
			all.Wait()
		}
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return x.order(requests, got)
	}}
}

// quiet reports whether a request with these answers has recorded nothing.
func (q *request) quiet(got []store.Answer) bool {
	denied := slices.ContainsFunc(got, func(a store.Answer) bool { return !a.Allowed })
	return q.mode == store.ModePeek || denied && (q.mode == store.ModeCharge || q.mode == store.ModeAtMost)
}

// send asks a store. When it has returned, it overwrites the arguments, to find stores that still use them.
func send(ctx context.Context, s store.Store, takes []store.Take) ([]store.Answer, error) {
	answers := make([]store.Answer, len(takes))
	err := s.Take(ctx, takes, answers)
	got := slices.Clone(answers)
	for i := range takes {
		takes[i] = store.Take{Key: spoiled, Limit: takes[i].Limit, Cost: math.MaxInt32, ID: 1}
		answers[i] = store.Answer{Used: math.MinInt32}
	}
	return got, err
}

var spoiled = store.NewKey("spoiled", "spoiled")

// order finds an order of requests in which the definition gives these answers, and takes it over.
func (x *run) order(requests []*request, got [][]store.Answer) error {
	if len(requests) == 1 {
		if err := x.compare(requests[0], got[0], false); err != nil {
			return err
		}
		x.note(requests[0], got[0])
		return nil
	}
	first, tries := error(nil), 0
	var search func(left []int) bool
	search = func(left []int) bool {
		for _, i := range left {
			if tries++; tries > 5000 {
				return false
			}
			restore := x.want.save(requests[i].takes(x))
			if err := x.compare(requests[i], got[i], true); err != nil {
				first = cmp.Or(first, err)
				restore()
				continue
			}
			if search(slices.DeleteFunc(slices.Clone(left), func(other int) bool { return other == i })) {
				return true
			}
			restore()
			if requests[i].quiet(got[i]) {
				return false // it changes nothing, so it may as well come first
			}
		}
		return len(left) == 0
	}
	all := make([]int, len(requests))
	for i := range all {
		all[i] = i
	}
	if x.Twice { // then an answer may tell more units than there were, and only a good guess ends soon
		slices.SortFunc(all, func(i, j int) int { return cmp.Compare(got[i][0].Used, got[j][0].Used) })
	}
	if !search(all) {
		var b strings.Builder
		fmt.Fprintf(&b, "no order of %d requests has these answers, such as\n%v", len(requests), first)
		for i := range requests {
			fmt.Fprintf(&b, "\n%v\n  got %+v", requests[i], got[i])
		}
		return errors.New(b.String())
	}
	for i := range requests {
		x.note(requests[i], got[i])
	}
	return nil
}

// save returns a function that restores the logs of takes.
func (s *Store) save(takes []store.Take) (restore func()) {
	saved := make(map[*log]log, len(takes))
	for _, t := range takes {
		g := s.log(&t.Key, t.Limit)
		saved[g] = *g
	}
	return func() {
		for g, old := range saved {
			*g = old
		}
	}
}

// compare compares the answers to a request, which the definition executes. Others may have been sent at the same time.
func (x *run) compare(q *request, got []store.Answer, others bool) error {
	want := x.want
	takes := q.takes(x)
	if x.InTurn { // what was not asked
		asked := takes[:0]
		known := []store.Answer(nil)
		for i, a := range got {
			if a.Known {
				asked, known = append(asked, takes[i]), append(known, a)
			}
		}
		if takes, got = asked, known; len(takes) == 0 {
			return errors.New("no answer is known")
		}
	}
	wanted := make([]store.Answer, len(takes))
	if err := want.Take(x.t.Context(), takes, wanted); err != nil {
		return fmt.Errorf("the definition: %w", err)
	}
	denied := slices.ContainsFunc(wanted, func(a store.Answer) bool { return !a.Allowed })
	for i, g := range got {
		w := wanted[i]
		g.Period, w.Period = 0, 0
		counts := takes[i].Limit.Algorithm != store.SlidingLog
		// Units were given back, or others have been recorded at the same instant.
		later := x.InTurn && (denied || counts && q.mode == store.ModeAtMost) || others && counts
		if later && w.Allowed {
			g.Reset = w.Reset
		}
		used := want.log(&takes[i].Key, takes[i].Limit).used(takes[i].Limit, want.now)
		if x.Twice && (g.Used == used || others && g.Used > w.Used) { // it may have counted itself, and the others
			w.Used = g.Used
		}
		if g != w {
			return fmt.Errorf("take %d of %d\ngot  %+v\nwant %+v", i+1, len(takes), g, w)
		}
	}
	if len(takes) < len(q.asks) && !denied {
		return fmt.Errorf("%d of %d logs were not asked, although the others have room", len(q.asks)-len(takes),
			len(q.asks))
	}
	return nil
}

// note keeps what later steps need to know of a request.
func (x *run) note(q *request, got []store.Answer) {
	admitted := !slices.ContainsFunc(got, func(a store.Answer) bool { return !a.Known || !a.Allowed })
	x.n.answers += len(got)
	if len(got) > 1 {
		x.n.lists++
	}
	for _, a := range q.asks {
		if a.limit.Algorithm != store.SlidingLog {
			x.n.counters++
		}
	}
	if admitted {
		x.n.admitted[q.mode]++
	} else {
		x.n.denied[q.mode]++
	}
	x.hint = 0
	// A take that is executed again when it has left its window is recorded anew.
	x.made = slices.DeleteFunc(x.made, func(m made) bool { return m.id == q.id })
	for i, a := range got {
		m := made{ask: q.asks[i], id: q.id, at: x.Now(), period: a.Period, admitted: admitted}
		if m.units, _ = m.limit.Counted(m.cost, q.mode); q.mode == store.ModeAtMost && !m.limit.Permits {
			m.units = a.Granted
		}
		if q.mode != store.ModePeek {
			// A take that was denied may be repeated later; its instant is that of the repetition.
			x.made = slices.DeleteFunc(x.made, func(o made) bool {
				return !o.admitted && o.id == m.id && o.key == m.key && o.limit.Log == m.limit.Log
			})
			x.made = append(x.made, m)
		}
		if x.hint = max(x.hint, a.Retry); admitted {
			x.hint = max(x.hint, a.Reset)
		}
	}
	x.made = x.made[max(0, len(x.made)-60):]
	x.sent = append(x.sent, sent{q, admitted, x.recorded(q)})
	x.sent = x.sent[max(0, len(x.sent)-10):]
}

// forget has a request not repeated any more: a take is settled after its call.
func (x *run) forget(id uint64) {
	x.sent = slices.DeleteFunc(x.sent, func(q sent) bool { return q.id == id })
}

// recorded returns what the logs of a request have recorded of it.
func (x *run) recorded(q *request) []entry {
	entries := make([]entry, len(q.asks))
	for i, t := range q.takes(x) {
		g := x.want.log(&t.Key, t.Limit)
		if n := g.find(t.ID); n >= 0 {
			entries[i] = g.entries[n]
		}
	}
	return entries
}

// repeating executes a request once more, as a client does that has lost the reply. What was admitted is recorded once
// and admitted again, and a denial that was recorded stays one. It is left out where a log does not hold any more what
// it has recorded, and for algorithms and ModeAtMost, which may count twice.
func repeating(id uint64) *step {
	return &step{text: func() string { return fmt.Sprintf("take %d again", uint32(id)) }, do: func(x *run) error {
		n := slices.IndexFunc(x.sent, func(q sent) bool { return q.id == id })
		if n < 0 || x.sent[n].mode == store.ModeAtMost {
			return nil
		}
		q := x.sent[n]
		vague := func(a ask) bool {
			key := x.keys[a.key]
			trims := (q.mode == store.ModeRecord || a.limit.Unlimited) && // once more what a larger quota has added
				x.want.log(&key, a.limit).used(a.limit, x.want.now) > a.limit.Keeps(q.mode)
			return a.limit.Algorithm != store.SlidingLog || a.limit.Permits && q.mode == store.ModeRecord || trims
		}
		if slices.ContainsFunc(q.asks, vague) || !slices.Equal(q.recorded, x.recorded(q.request)) ||
			q.mode == store.ModeChargeDenied && !q.admitted && len(q.asks) > 1 { // others may record a denial now
			return nil
		}
		if !slices.ContainsFunc(q.recorded, func(e entry) bool { return e.units > 0 }) {
			return taking(q.request).do(x) // as if it had never been executed
		}
		got, err := send(x.t.Context(), x.Store, q.takes(x))
		if err != nil {
			return err
		}
		x.n.answers += len(got)
		admitted := true
		for i, a := range got {
			l, key := q.asks[i].limit, x.keys[q.asks[i].key]
			g := x.want.log(&key, l)
			used := g.used(l, x.want.now)
			admitted = admitted && a.Allowed && a.Known
			want := store.Answer{Known: true, Allowed: true, Used: used, Reset: g.wait(l, x.want.now, used-1)}
			if a.Used == used-q.recorded[i].units { // it may have counted itself
				want.Used = a.Used
			}
			if a.Period = 0; q.admitted && a != want {
				return fmt.Errorf("take %d of %d, again\ngot  %+v\nwant %+v, or less by itself", i+1, len(got),
					a, want)
			}
		}
		if admitted != q.admitted {
			return fmt.Errorf("again admitted %v, want %v: %+v", admitted, q.admitted, got)
		}
		return nil
	}}
}
