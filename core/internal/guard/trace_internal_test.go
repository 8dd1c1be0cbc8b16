package guard

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// modelLog is a log written down plainly: what was admitted, and when.
type modelLog struct {
	key     store.Key
	limit   *store.Limit
	entries []modelEntry
}

type modelEntry struct {
	at   time.Time
	id   uint64
	cost int
}

func newModelLog(name string, quota int, window time.Duration) *modelLog {
	l := &store.Limit{Log: window.String(), Quota: quota, Window: window}
	return &modelLog{key: store.NewKey("p", name), limit: l}
}

func (l *modelLog) used(from, to time.Time) (units int) {
	for _, e := range l.entries {
		if e.at.After(from) && !e.at.After(to) {
			units += e.cost
		}
	}
	return units
}

func (l *modelLog) fits(cost int) bool {
	now := time.Now()
	return l.used(now.Add(-l.limit.Window), now)+cost <= l.limit.Quota
}

func (l *modelLog) add(t *store.Take, a *store.Answer) {
	cost := t.Cost
	if t.Mode == store.ModeAtMost {
		cost = a.Granted
	}
	l.entries = append(l.entries, modelEntry{time.Now(), t.ID, cost})
}

func (l *modelLog) settle(id uint64, cost int) {
	for i := range l.entries {
		if l.entries[i].id == id && l.entries[i].cost > 0 {
			l.entries[i].cost = cost
		}
	}
}

// cost returns what an ID counts in the window, or 0.
func (l *modelLog) cost(id uint64) int {
	for _, e := range l.entries {
		if e.id == id && time.Since(e.at) < l.limit.Window {
			return e.cost
		}
	}
	return 0
}

// check compares the log with the store's. If takes were lost, the store may have recorded them earlier or later than
// they were decided, by less than inexact.
func (l *modelLog) check(t *testing.T, desc string, logs *sharedLogs, inexact time.Duration) {
	t.Helper()
	at := make(map[uint64]time.Time)
	want, got := make(map[uint64]int), make(map[uint64]int)
	for _, e := range l.entries {
		at[e.id] = e.at
		if e.cost > 0 && time.Since(e.at) < l.limit.Window {
			want[e.id] = e.cost
		}
	}
	for _, e := range logs.logs.Log(&l.key, l.limit) {
		got[e.ID] = e.Cost
		if off := e.At.Sub(at[e.ID]).Abs(); off > inexact+time.Microsecond {
			t.Fatalf("%s: the log of %s has %d units off by %v", desc, l.key.Text, e.Cost, off)
		}
	}
	for id := range at {
		if left := (l.limit.Window - time.Since(at[id])).Abs(); left < inexact {
			delete(want, id)
			delete(got, id)
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%s: the log of %s has %v, want %v", desc, l.key.Text, got, want)
	}
}

// asked is a request.
type asked struct {
	takes   []store.Take
	answers []store.Answer
	from    event.Source
	err     error
	sent    time.Time
	process int
}

func (q *asked) allowed() bool { return isAdmitted(q.takes, q.answers) }

func newAsked(logs []*modelLog, cost int, mode store.Mode) *asked {
	q := &asked{answers: make([]store.Answer, len(logs))}
	for _, l := range logs {
		q.takes = append(q.takes, store.Take{Key: l.key, Limit: l.limit, Cost: cost, Mode: mode})
	}
	return q
}

// trace asks a guard at random, and a model.
type trace struct {
	t     *testing.T
	r     *rand.Rand
	desc  string
	guard *Guard
	logs  []*modelLog
	made  []*asked
	count map[string]int
}

// choose returns takes of some of the logs.
func (tr *trace) choose() (q *asked, logs []*modelLog) {
	mode, cost := store.ModeCharge, 1
	if tr.r.IntN(8) == 0 {
		mode = store.ModePeek
	}
	if tr.r.IntN(4) == 0 {
		cost = 2
	}
	if mode == store.ModeCharge && tr.r.IntN(4) == 0 {
		mode, cost = store.ModeAtMost, 1+tr.r.IntN(5)
	}
	for _, i := range tr.r.Perm(len(tr.logs))[:1+tr.r.IntN(3)] {
		logs = append(logs, tr.logs[i])
	}
	return newAsked(logs, cost, mode), logs
}

func (tr *trace) ask() {
	q, logs := tr.choose()
	q.from, q.err = tr.guard.Take(tr.t.Context(), q.takes, q.answers)
	if q.err != nil && q.from != event.Local {
		tr.t.Fatal(q.err)
	}
	want, granted, mode := true, 0, q.takes[0].Mode
	if mode == store.ModeAtMost {
		full := func(l *modelLog) bool { return !l.fits(granted + 1) }
		for granted < q.takes[0].Cost && !slices.ContainsFunc(logs, full) {
			granted++
		}
	}
	for i, l := range logs {
		units := q.takes[i].Cost
		if mode == store.ModeAtMost {
			units = 1
		}
		fits, a := l.fits(units), q.answers[i]
		if want = want && fits; a.Known && (a.Allowed != fits || a.Granted != granted) {
			tr.t.Fatalf("%s: take %d %+v from %d: %+v, want %t, %d: %+v", tr.desc, i, q.takes, q.from, a, fits,
				granted, l)
		}
		now := time.Now()
		before := l.used(now.Add(-l.limit.Window), now)
		if a.Known && a.Used != before {
			tr.t.Fatalf("%s: take %d from %d: %d used, want %d", tr.desc, i, q.from, a.Used, before)
		}
	}
	if q.allowed() != want {
		tr.t.Fatalf("%s: answered from %d: %v, want %v", tr.desc, q.from, q.answers, want)
	}
	tr.count[fmt.Sprintf("from %d, several %t, admitted %t", q.from, len(logs) > 1, want)]++
	if want && mode != store.ModePeek {
		for i, l := range logs {
			l.add(&q.takes[i], &q.answers[i])
		}
		tr.made = append(tr.made, q)
	}
}

func (tr *trace) settle() {
	if len(tr.made) == 0 {
		return
	}
	q, cost := tr.made[tr.r.IntN(len(tr.made))], tr.r.IntN(3)
	for _, take := range q.takes {
		l := tr.logs[slices.IndexFunc(tr.logs, func(l *modelLog) bool { return l.key.Text == take.Key.Text })]
		was, age := l.cost(take.ID), time.Duration(0)
		if was == 0 {
			continue
		}
		for _, e := range l.entries {
			if e.id == take.ID {
				age = time.Since(e.at)
			}
		}
		s := store.Settlement{Key: take.Key, Limit: take.Limit, ID: take.ID, Was: was, Cost: cost, Age: age}
		if err := tr.guard.Settle(tr.t.Context(), s, q.from == event.Local); err != nil {
			tr.t.Fatal(tr.desc, err)
		}
		l.settle(take.ID, cost)
	}
}

func (tr *trace) steps(n int) {
	for range n {
		switch tr.r.IntN(10) {
		case 0:
			time.Sleep(time.Duration(tr.r.Int64N(int64(8 * time.Second))))
		case 1, 2:
			time.Sleep(time.Duration(tr.r.Int64N(int64(400 * time.Millisecond))))
		case 3:
			tr.settle()
		default:
			tr.ask()
		}
	}
}

// An outage that begins while the logs are empty changes no decision, whether the calls that fail are executed or not,
// or in part. Afterwards each log of the store has what was admitted, at the instants at which it was.
func TestOutagesAgainstModel(t *testing.T) {
	count := make(map[string]int)
	seed := seedOf(t)
	for i := range testlen.Of(20, 200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			logs := newSharedLogs()
			s := logs.connect()
			faults := rand.New(rand.NewPCG(seed, uint64(i)+1<<32)) // used by calls, one at a time
			config := Config{
				Store: s, Policy: "p", Failure: Local, Timeout: 100 * time.Millisecond, LocalKeys: 1000,
				Freed: func(*store.Key) {},
			}
			if i%2 == 0 {
				config.DenyCache = time.Second
			}
			g := New(config)
			defer g.Close()
			for phase := range 10 {
				tr := &trace{
					t: t, r: r, desc: fmt.Sprintf("seed %#x, trace %d, phase %d", seed, i, phase),
					guard: g, count: count,
				}
				for n, l := range []store.Limit{
					{Quota: 3, Window: 10 * time.Second}, {Quota: 2, Window: time.Second},
					{Quota: 8, Window: 20 * time.Second}, {Quota: 20, Window: time.Hour},
				} {
					tr.logs = append(tr.logs, newModelLog(fmt.Sprintf("k%d of %d", n, phase), l.Quota, l.Window))
				}
				s.faults(func() fault { return []fault{refuses, loses, partial}[faults.IntN(3)] })
				tr.steps(r.IntN(50))
				s.up(0)
				if r.IntN(2) == 0 {
					tr.steps(50) // while it is replayed
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				for _, l := range tr.logs {
					l.check(t, tr.desc, logs, 0)
				}
				tr.steps(30)
				for _, l := range tr.logs {
					l.check(t, tr.desc, logs, 0)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	for _, from := range []event.Source{event.Store, event.Local} {
		for _, admitted := range []bool{false, true} {
			if what := fmt.Sprintf("from %d, several true, admitted %t", from, admitted); count[what] < 200 {
				t.Errorf("%s: %d", what, count[what])
			}
		}
	}
}

// outages are processes whose connections to the same logs are cut at random.
type outages struct {
	t      *testing.T
	r      *rand.Rand
	guards []*Guard
	links  []*faultyStore
	cut    []bool
	logs   []*modelLog

	mu      sync.Mutex // guards the logs and what follows
	made    []*asked
	unclear []*asked // undone without an answer
}

func (o *outages) ask(process int, logs []*modelLog, cost int, mode store.Mode) {
	q := newAsked(logs, cost, mode)
	q.process = process
	q.from, q.err = o.guards[process].Take(o.t.Context(), q.takes, q.answers)
	o.mu.Lock()
	defer o.mu.Unlock()
	if q.from != event.Local && q.err != nil {
		o.t.Error(q.err)
	}
	if q.allowed() {
		for i, l := range logs {
			l.add(&q.takes[i], &q.answers[i])
			n := q.answers[i].Granted
			if mode == store.ModeAtMost && (n < 1 || n > cost || n != q.answers[0].Granted) {
				o.t.Errorf("answers %+v of %d units", q.answers, cost)
			}
		}
		o.made = append(o.made, q)
	}
}

// undo removes a request from all of its logs, as far as the store answers.
func (o *outages) undo(q *asked) (all bool) {
	all = true
	for _, take := range q.takes {
		l := o.logs[slices.IndexFunc(o.logs, func(l *modelLog) bool { return l.key.Equal(&take.Key) })]
		was, age := take.Cost, time.Duration(0)
		for _, e := range l.entries {
			if e.id == take.ID {
				was, age = max(was, e.cost), time.Since(e.at)
			}
		}
		s := store.Settlement{Key: take.Key, Limit: take.Limit, ID: take.ID, Was: was, Age: age}
		if o.guards[q.process].Settle(o.t.Context(), s, q.from == event.Local) != nil {
			all = false
			continue
		}
		o.mu.Lock()
		l.settle(take.ID, 0)
		o.mu.Unlock()
	}
	return all
}

func (o *outages) step() {
	i := o.r.IntN(len(o.guards))
	switch n := o.r.IntN(20); {
	case n < 3:
		f := []fault{refuses, loses, leaves, drops, partial}[o.r.IntN(5)]
		if o.cut[i] = !o.cut[i]; !o.cut[i] {
			f = answers
		}
		o.links[i].down(f)
	case n < 8:
		time.Sleep(time.Duration(o.r.Int64N(int64(2500 * time.Millisecond))))
	case n < 10 && len(o.made) > 0:
		if q := o.made[o.r.IntN(len(o.made))]; !o.undo(q) {
			o.unclear = append(o.unclear, q)
		}
	default: // several at the same time
		var all sync.WaitGroup
		for range 1 + o.r.IntN(3) {
			process, cost, mode := o.r.IntN(len(o.guards)), 1+o.r.IntN(2), store.ModeCharge
			if o.r.IntN(3) == 0 {
				cost, mode = 1+o.r.IntN(4), store.ModeAtMost
			}
			some := []*modelLog{o.logs[o.r.IntN(3)], o.logs[3], o.logs[4]}[:1+o.r.IntN(3)]
			o.r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			all.Go(func() { o.ask(process, some, cost, mode) })
		}
		all.Wait()
	}
}

// Three processes whose connections are cut at random admit and undo requests over several logs. No window of a log
// holds more than the quota that the store has admitted and one more for each process, and afterwards each log has what
// was admitted from it, once, and nothing of a request that was denied.
func TestRandomOutages(t *testing.T) {
	const processes = 3
	seed := seedOf(t)
	byProcess, byStore := 0, 0
	for history := range testlen.Of(60, 2000) {
		synctest.Test(t, func(t *testing.T) {
			o := &outages{t: t, r: rand.New(rand.NewPCG(seed, uint64(history))), cut: make([]bool, processes)}
			window := time.Hour
			if history%2 == 0 {
				window = 10 * time.Second
			}
			for i, name := range []string{"u0", "u1", "u2", "org", "all"} {
				o.logs = append(o.logs, newModelLog(name, []int{3, 4, 5, 6, 8}[i], window))
			}
			logs := newSharedLogs()
			for range processes {
				link := logs.connect()
				link.up(time.Duration(o.r.Int64N(int64(60 * time.Millisecond))))
				o.links = append(o.links, link)
				o.guards = append(o.guards, New(Config{
					Store: link, Policy: "p", Failure: Local,
					Timeout: 100 * time.Millisecond, DenyCache: time.Second, LocalKeys: 100,
					Freed: func(*store.Key) {},
				}))
			}
			for range 80 {
				o.step()
			}
			for _, link := range o.links {
				link.up(0)
			}
			time.Sleep(5 * time.Second)
			for _, q := range o.unclear {
				if !o.undo(q) {
					t.Fatal("a request cannot be undone")
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			for _, q := range o.made {
				if q.from == event.Local {
					byProcess++
				} else {
					byStore++
				}
			}
			for _, l := range o.logs {
				l.check(t, fmt.Sprintf("seed %#x, history %d", seed, history), logs, 300*time.Millisecond)
				for _, e := range l.entries {
					if n := l.used(e.at.Add(-window), e.at); n > (1+processes)*l.limit.Quota {
						t.Errorf("seed %#x, history %d: %d of %d units of %s in a window",
							seed, history, n, l.limit.Quota, l.key.Text)
					}
				}
			}
			for _, g := range o.guards {
				noError(t, g.Close())
			}
		})
		if t.Failed() {
			return
		}
	}
	if byProcess < 300 || byStore < 300 {
		t.Errorf("only %d requests were admitted by a process and %d by the store", byProcess, byStore)
	}
}

// seedOf returns the seed of a random test, which the environment may set.
func seedOf(t *testing.T) uint64 {
	seed := rand.Uint64()
	if s := os.Getenv("SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 0, 64)
	}
	t.Logf("seed %#x", seed)
	return seed
}
