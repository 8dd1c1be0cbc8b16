package guard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/denycache"
	"github.com/sashlimit/sash/core/store"
)

// modelLog is a log written down plainly: what was admitted, and when.
type modelLog struct {
	key     store.Key
	plan    *store.Plan
	entries []modelEntry
}

type modelEntry struct {
	at   time.Time
	id   uint64
	cost int
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
	return !slices.ContainsFunc(l.plan.Limits, func(limit store.Limit) bool {
		return l.used(now.Add(-limit.Window), now)+cost > limit.Quota
	})
}

func (l *modelLog) add(t *store.Take, a *store.Answer) {
	cost := t.Cost
	if t.Mode == store.ModeUpTo {
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

// holds reports whether an entry with that ID counts in any window.
func (l *modelLog) holds(id uint64) bool {
	return slices.ContainsFunc(l.entries, func(e modelEntry) bool {
		return e.id == id && e.cost > 0 && time.Since(e.at) < l.plan.Keep
	})
}

// check compares the log with the store's.
func (l *modelLog) check(t *testing.T, desc string, logs *sharedLogs) {
	t.Helper()
	var want, got []string
	for _, e := range l.entries {
		if e.cost > 0 && time.Since(e.at) < l.plan.Keep {
			want = append(want, fmt.Sprint(e.cost, " at ", e.at.UnixMicro()))
		}
	}
	for _, e := range logs.logs.Log(&l.key, l.plan.Keep) {
		got = append(got, fmt.Sprint(e.Cost, " at ", e.At.UnixMicro()))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%s: the log of %s has %v, want %v", desc, l.key.Text, got, want)
	}
}

// jointTrace asks a guard at random, and a model.
type jointTrace struct {
	t     *testing.T
	r     *rand.Rand
	desc  string
	guard *Guard
	logs  []*modelLog
	made  []*asked
	count map[string]int
}

var traceLimits = [][]store.Limit{
	{{Quota: 3, Window: 10 * time.Second}},
	{{Quota: 2, Window: time.Second}, {Quota: 6, Window: time.Minute}},
	{{Quota: 8, Window: 20 * time.Second}},
	{{Quota: 20, Window: time.Hour}},
}

// choose returns takes of some of the logs.
func (tr *jointTrace) choose() (q *asked, logs []*modelLog) {
	q = new(asked)
	mode, cost := store.ModeCharge, 1
	if tr.r.IntN(8) == 0 {
		mode = store.ModePeek
	}
	if tr.r.IntN(4) == 0 {
		cost = 2
	}
	if mode == store.ModeCharge && tr.r.IntN(4) == 0 {
		mode, cost = store.ModeUpTo, 1+tr.r.IntN(5)
	}
	for _, i := range tr.r.Perm(len(tr.logs))[:1+tr.r.IntN(3)] {
		l := tr.logs[i]
		logs = append(logs, l)
		q.takes = append(q.takes, store.Take{Key: l.key, Plan: l.plan, Cost: cost, Mode: mode})
	}
	q.answers = make([]store.Answer, len(q.takes))
	return q, logs
}

func (tr *jointTrace) ask() {
	q, logs := tr.choose()
	q.from, q.err = tr.guard.Take(tr.t.Context(), q.takes, q.answers)
	if q.err != nil && q.from != event.Local {
		tr.t.Fatal(q.err)
	}
	want, granted := true, 0
	if cost := q.takes[0].Cost; q.takes[0].Mode == store.ModeUpTo {
		full := func(l *modelLog) bool { return !l.fits(granted + 1) }
		for granted < cost && !slices.ContainsFunc(logs, full) {
			granted++
		}
	}
	for i, l := range logs {
		fits := l.fits(denycache.Fitting(&q.takes[i]))
		if got := q.answers[i].Granted; got != granted {
			tr.t.Fatalf("%s: take %d is granted %d from %d, want %d", tr.desc, i, got, q.from, granted)
		}
		if want = want && fits; q.from != event.Cache && q.answers[i].Allowed != fits && !tr.denied(q) {
			tr.t.Fatalf("%s: take %d is answered from %d: %+v, want %v: %+v", tr.desc, i, q.from, q.answers[i], fits, l)
		}
	}
	if q.allowed() != want {
		tr.t.Fatalf("%s: answered from %d: %v, want %v", tr.desc, q.from, q.answers, want)
	}
	tr.count[fmt.Sprintf("from %d, several %t, admitted %t", q.from, len(logs) > 1, want)]++
	if want && q.takes[0].Mode != store.ModePeek {
		for i, l := range logs {
			l.add(&q.takes[i], &q.answers[i])
		}
		tr.made = append(tr.made, q)
	}
}

// denied reports whether the store has denied without the backlogs of other logs, of which it then tells too much room.
func (tr *jointTrace) denied(q *asked) bool { return q.from == event.Store && !q.allowed() }

func (tr *jointTrace) settle() {
	if len(tr.made) == 0 {
		return
	}
	q, cost := tr.made[tr.r.IntN(len(tr.made))], tr.r.IntN(3)
	for _, take := range q.takes {
		l := tr.logs[slices.IndexFunc(tr.logs, func(l *modelLog) bool { return l.key.Text == take.Key.Text })]
		if !l.holds(take.ID) {
			continue
		}
		s := store.Settlement{Key: take.Key, ID: take.ID, Cost: cost}
		if err := tr.guard.Settle(tr.t.Context(), s, q.from == event.Local); err != nil {
			tr.t.Fatal(err)
		}
		l.settle(take.ID, cost)
	}
}

func (tr *jointTrace) steps(n int) {
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
func TestJointOutagesAgainstModel(t *testing.T) {
	count := make(map[string]int)
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	for trace := range 40 {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(trace)))
			logs := newSharedLogs()
			s := logs.connect()
			config := Config{Store: s, Policy: "p", Failure: Local, Timeout: 100 * time.Millisecond, LocalKeys: 1000}
			if trace%2 == 0 {
				config.DenyCache = time.Second
			}
			g := New(config)
			defer g.Close()
			for phase := range 10 {
				tr := &jointTrace{
					t: t, r: r, desc: fmt.Sprintf("seed %#x, trace %d, phase %d", seed, trace, phase),
					guard: g, count: count,
				}
				for i, limits := range traceLimits {
					tr.logs = append(tr.logs, &modelLog{
						key:  store.NewKey("p", fmt.Sprintf("k%d of %d", i, phase)),
						plan: store.NewPlan(store.Plan{Limits: limits}),
					})
				}
				s.faults(func() fault { return []fault{refuses, loses, partial}[rand.IntN(3)] })
				tr.steps(r.IntN(50))
				s.up(0)
				if r.IntN(2) == 0 {
					tr.steps(50) // while it is replayed
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				for _, l := range tr.logs {
					l.check(t, tr.desc, logs)
				}
				tr.steps(30)
				for _, l := range tr.logs {
					l.check(t, tr.desc, logs)
				}
				count["asked again"] += strings.Count(logs.asked(), "settle, take all")
			}
		})
		if t.Failed() {
			return
		}
	}
	if count["asked again"] < 100 {
		t.Errorf("%d requests were asked about again", count["asked again"])
	}
	for _, from := range []event.Source{event.Store, event.Local} {
		for _, admitted := range []bool{false, true} {
			if what := fmt.Sprintf("from %d, several true, admitted %t", from, admitted); count[what] < 500 {
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

	mu      sync.Mutex // guards what follows
	logs    map[string]*modelLog
	made    []*admitted
	unclear []*admitted // undone without an answer
}

// admitted is a request that was admitted.
type admitted struct {
	*asked
	process int
}

func (o *outages) ask(process int, names []string, cost int, mode store.Mode) {
	q := &asked{answers: make([]store.Answer, len(names))}
	for _, name := range names {
		l := o.logs[name]
		q.takes = append(q.takes, store.Take{Key: l.key, Plan: l.plan, Cost: cost, Mode: mode})
	}
	q.from, q.err = o.guards[process].Take(o.t.Context(), q.takes, q.answers)
	o.mu.Lock()
	defer o.mu.Unlock()
	if q.from != event.Local && q.err != nil {
		o.t.Error(q.err)
	}
	if q.allowed() {
		for i, name := range names {
			o.logs[name].add(&q.takes[i], &q.answers[i])
			if n := q.answers[i].Granted; mode == store.ModeUpTo && (n < 1 || n > cost || n != q.answers[0].Granted) {
				o.t.Errorf("answers %+v of %d units", q.answers, cost)
			}
		}
		o.made = append(o.made, &admitted{q, process})
	}
}

// undo removes a request from all of its logs, as far as the store answers.
func (o *outages) undo(q *admitted) (all bool) {
	all = true
	for _, take := range q.takes {
		s := store.Settlement{Key: take.Key, ID: take.ID}
		if o.guards[q.process].Settle(o.t.Context(), s, q.from == event.Local) != nil {
			all = false
			continue
		}
		o.mu.Lock()
		o.logs[take.Key.Text].settle(take.ID, 0)
		o.mu.Unlock()
	}
	return all
}

func (o *outages) step() {
	i := o.r.IntN(len(o.guards))
	switch n := o.r.IntN(20); {
	case n < 3:
		f := []fault{refuses, loses, late, partial}[o.r.IntN(4)]
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
				cost, mode = 1+o.r.IntN(4), store.ModeUpTo
			}
			names := []string{fmt.Sprint("u", o.r.IntN(3)), "org", "all"}[:1+o.r.IntN(3)]
			o.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			all.Go(func() { o.ask(process, names, cost, mode) })
		}
		all.Wait()
	}
}

// Three processes whose connections are cut at random admit and undo requests over several logs. No window of a log
// holds more than the quota that the store has admitted and one more for each process, and afterwards each log has what
// was admitted from it, once, and nothing of a request that was denied.
func TestJointRandomOutages(t *testing.T) {
	const processes = 3
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	byProcess, byStore := 0, 0
	for history := range 120 {
		synctest.Test(t, func(t *testing.T) {
			o := &outages{
				t: t, r: rand.New(rand.NewPCG(seed, uint64(history))),
				cut: make([]bool, processes), logs: make(map[string]*modelLog),
			}
			window := time.Hour
			if history%2 == 0 {
				window = 10 * time.Second
			}
			for name, quota := range map[string]int{"u0": 3, "u1": 4, "u2": 5, "org": 6, "all": 8} {
				o.logs[name] = &modelLog{key: store.NewKey("p", name), plan: planOf(quota, window)}
			}
			logs := newSharedLogs()
			for range processes {
				link := logs.connect()
				link.up(time.Duration(o.r.Int64N(int64(60 * time.Millisecond))))
				o.links = append(o.links, link)
				o.guards = append(o.guards, New(Config{
					Store: link, Policy: "p", Failure: Local,
					Timeout: 100 * time.Millisecond, DenyCache: time.Second, LocalKeys: 100,
				}))
			}
			for range 80 {
				o.step()
			}
			for _, link := range o.links {
				link.up(0)
			}
			time.Sleep(15 * time.Second) // calls of a probe go on for a while
			for _, q := range o.unclear {
				if !o.undo(q) {
					t.Fatal("a request cannot be undone")
				}
			}
			synctest.Wait()
			for _, q := range o.made {
				if q.from == event.Local {
					byProcess++
				} else {
					byStore++
				}
			}
			for name, l := range o.logs {
				o.check(fmt.Sprintf("seed %#x, history %d", seed, history), l, logs)
				for _, e := range l.entries {
					quota := l.plan.Limits[0].Quota
					if n := l.used(e.at.Add(-window), e.at); n > (1+processes)*quota {
						t.Errorf("seed %#x, history %d: %d of %d units of %s in a window",
							seed, history, n, quota, name)
					}
				}
			}
			for _, g := range o.guards {
				if err := g.Close(); err != nil {
					t.Error(err)
				}
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

// check compares the units and the number of the entries that the store has in a log with those that were admitted. An
// answer that is lost may have been recorded earlier than its request was decided.
func (o *outages) check(desc string, l *modelLog, logs *sharedLogs) {
	o.t.Helper()
	var want, got []int
	for _, e := range l.entries {
		if l.holds(e.id) && e.cost > 0 {
			want = append(want, e.cost)
		}
	}
	for _, e := range logs.logs.Log(&l.key, l.plan.Keep) {
		got = append(got, e.Cost)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		o.t.Errorf("%s: the log of %s has %v, want %v", desc, l.key.Text, got, want)
	}
}
