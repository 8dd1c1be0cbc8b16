package coretest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// trace is a sequence of random requests to a store, each compared with the definition.
type trace struct {
	*counting
	StoreConfig
	traceConfig

	r      *rand.Rand
	oracle *FakeStore
	joint  bool // requests are over several logs
	logs   []*traceLog
	name   string
	units  bool       // takes and corrections are of one unit: stores may keep such logs in another way
	most   store.Mode // that of most takes

	made []store.Take  // the latest
	hint time.Duration // until an answer changes
	done int           // answers that were compared
}

// traceConfig is what the traces of a case have in common.
type traceConfig struct {
	addLogs  func(tr *trace, n int) // of trace n
	checks   int                    // answers to compare
	steps    int                    // of a trace
	calm     int                    // of so many steps 8 begin with a pause
	several  bool                   // requests are over several logs
	batches  bool                   // requests are decided together, if there is a StoreConfig.Batch
	counters bool                   // the store must have other algorithms than the sliding log
}

// traceLog is the logs of one position in a request, such as those of users.
type traceLog struct {
	keys  []store.Key
	plans []*store.Plan // each request has any one of them
}

func (l *traceLog) slots() bool    { return l.plans[0].Slots }
func (l *traceLog) counters() bool { return l.plans[0].Algorithm() != store.SlidingLog }
func (l *traceLog) isLog() bool    { return !l.slots() && !l.counters() }

// runTraces runs traces of a store, until enough answers were compared.
func runTraces(t *testing.T, c StoreConfig, config traceConfig) {
	eachTrace(t, c, config, func(tr *trace, n int) {
		tr.addLogs(tr, n)
		for range tr.steps {
			tr.pause()
			tr.step()
		}
	})
}

// eachTrace calls f with a new trace and its number, until enough answers were compared.
func eachTrace(t *testing.T, c StoreConfig, config traceConfig, f func(tr *trace, n int)) {
	var k *counting
	if config.counters {
		k = newCounting(t, c)
	} else {
		s, advance := c.New(t)
		k = &counting{direct: newDirect(t, s), advance: advance}
	}
	if config.several {
		needSeveral(k.direct)
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for n, done := 0, 0; done < config.checks; n++ {
		tr := &trace{
			counting: k, StoreConfig: c, traceConfig: config, r: r, oracle: new(FakeStore), joint: config.several,
			name: fmt.Sprintf("trace-%x-%d", seed, n),
		}
		tr.oracle.Advance(time.Duration(k.now) * time.Microsecond)
		f(tr, n)
		done += tr.done
	}
}

func (tr *trace) fatalf(format string, args ...any) {
	tr.t.Helper()
	tr.t.Fatalf("%s, step %d, instant %d, "+format, append([]any{tr.name, tr.done, tr.now}, args...)...)
}

// longestPause bounds the pauses where there are algorithms, since a store may do something every few seconds.
const longestPause = 5 * time.Minute

// pause advances, mostly to an instant at which an answer changes, or to a microsecond before or after it.
func (tr *trace) pause() {
	l := anyOf(tr.r, tr.logs)
	p := anyOf(tr.r, l.plans)
	limit := anyOf(tr.r, p.Limits)
	by, give := time.Duration(0), time.Duration(tr.r.IntN(3)-1)*time.Microsecond
	switch tr.r.IntN(tr.calm) {
	case 0:
		by = tr.part(4 * limit.Window / time.Duration(limit.Quota))
	case 1:
		by = time.Microsecond
	case 2:
		by = tr.hint
	case 3:
		by = tr.hint - time.Microsecond
	case 4, 5:
		by = tr.edge(anyOf(tr.r, l.keys), limit) + give
	case 6:
		by = tr.part(limit.Window)
	case 7:
		if by = tr.part(3 * limit.Window); !l.counters() {
			by = time.Duration(tr.r.IntN(20)/19) * (p.Keep + give)
		}
	}
	if by = max(by, 0); tr.algorithms != nil {
		by %= longestPause
	}
	tr.counting.step(by)
	tr.oracle.Advance(by)
}

// part is a random part of d.
func (tr *trace) part(d time.Duration) time.Duration {
	return time.Duration(tr.r.Int64N(int64(d) + 1)).Truncate(time.Microsecond)
}

// edge returns the time until one of the entries of a log leaves a window, or a period ends.
func (tr *trace) edge(key store.Key, limit store.Limit) time.Duration {
	begin, end := periodOf(&limit, tr.now)
	entries := tr.oracle.log(key, 0).window(limit.Window)
	switch {
	case limit.Algorithm == store.SlidingLog && len(entries) > 0:
		oldest := entries[:min(len(entries), 4)]
		return anyOf(tr.r, [][]recorded{oldest, entries}[tr.r.IntN(2)]).at + limit.Window - tr.oracle.now
	case limit.Algorithm == store.SlidingLog, limit.Algorithm == store.TokenBucket, tr.now < begin:
		return 0
	}
	return time.Duration(end-tr.now) * time.Microsecond
}

func anyOf[E any](r *rand.Rand, all []E) E { return all[r.IntN(len(all))] }

func (tr *trace) step() {
	l := anyOf(tr.r, tr.logs)
	key, p := anyOf(tr.r, l.keys), anyOf(tr.r, l.plans)
	switch k := tr.r.IntN(48); {
	case k < 4:
		tr.settle()
	case k < 9 && l.slots():
		tr.renew(key, p)
	case k < 5 && l.isLog():
		tr.merge(key, p)
	case k < 6 && l.isLog():
		tr.list(key, p.Keep)
	case k < 9 && l.isLog() && !tr.units && p.Shadow == 0:
		tr.book(key, p)
	case k < 10 && (l.counters() || tr.r.IntN(8) == 0):
		tr.noError(tr.store.Reset(tr.t.Context(), key))
		tr.noError(tr.oracle.Reset(tr.t.Context(), key))
	default:
		tr.take()
	}
}

// mode is that of most takes, or another one that all logs of a request have. It is seldom another one where takes are
// of one unit: a log with more than its quota is kept off a store's short paths for a whole window.
func (tr *trace) mode(logs []*traceLog) store.Mode {
	counters := slices.ContainsFunc(logs, (*traceLog).counters)
	often := 20
	if tr.units {
		often = 60
	}
	switch k := tr.r.IntN(often); {
	case k < 2:
		return store.ModePeek
	case k < 5:
		return store.ModeUpTo
	case k < 6 && !counters:
		return store.ModeRecord
	case k < 7 && !counters:
		return store.ModeChargeDenied
	}
	return tr.most
}

// cost is mostly one unit, and at most one above the quota, unless a take gets what is left.
func (tr *trace) cost(l store.Limit, mode store.Mode) int {
	cost, most := 1, l.Quota+1
	if l.Algorithm == store.SlidingLog {
		most = min(most, 40)
	}
	switch tr.r.IntN(6) {
	case 0:
		cost += tr.r.IntN(most)
	case 1:
		if tr.r.IntN(4) == 0 {
			most = l.Quota + 1
		}
		cost += (most - 2) / (1 + tr.r.IntN(4))
	}
	if mode == store.ModeUpTo {
		cost += tr.r.IntN(2) * tr.r.IntN(400) // above most quotas
	}
	if tr.units {
		return 1
	}
	return cost
}

// corrected is what a take has cost after all.
func (tr *trace) corrected() int {
	if tr.units {
		return tr.r.IntN(2)
	}
	return []int{0, 0, tr.r.IntN(12), tr.r.IntN(400)}[tr.r.IntN(4)]
}

// take sends a request, or several that wait at the same time.
func (tr *trace) take() {
	logs := []*traceLog{anyOf(tr.r, tr.logs)}
	if tr.joint {
		logs = logs[:0]
		for _, i := range tr.r.Perm(len(tr.logs))[:1+tr.r.IntN(len(tr.logs))] {
			logs = append(logs, tr.logs[i])
		}
	}
	mode, several := tr.mode(logs), 1
	plans := make([]*store.Plan, len(logs))
	for i, l := range logs {
		plans[i] = tr.planOf(l)
	}
	if tr.batches && tr.Batch != nil {
		several += tr.r.IntN(anyOf(tr.r, []int{1, 8, 8, 20}))
	}
	var requests [][]store.Take
	for range several {
		tr.id++
		cost, each := tr.cost(anyOf(tr.r, plans).Limits[0], mode), tr.r.IntN(2) == 0
		var request []store.Take
		for i, l := range logs {
			take := store.Take{Key: anyOf(tr.r, l.keys), Plan: plans[i], Cost: cost, ID: tr.id, Mode: mode}
			if each && (mode != store.ModeUpTo || l.slots()) {
				take.Cost = tr.cost(plans[i].Limits[0], mode)
			}
			request = append(request, take)
		}
		met := func(other []store.Take) bool { return meet(other, request) }
		if mode == store.ModeChargeDenied && slices.ContainsFunc(requests, met) {
			continue // sent again, a denial that counts has the others in its numbers
		}
		requests = append(requests, request)
	}
	tr.ask(requests)
}

// meet reports whether two requests have a log in common.
func meet(a, b []store.Take) bool {
	return slices.ContainsFunc(a, func(t store.Take) bool {
		return slices.ContainsFunc(b, func(u store.Take) bool { return t.Key.String() == u.Key.String() })
	})
}

// ask compares the answers to requests that are decided together or one after the other.
func (tr *trace) ask(requests [][]store.Take) {
	if tr.batches && tr.Batch != nil && tr.r.IntN(4) > 0 {
		answers, groups, err := tr.Batch(tr.t.Context(), tr.store, requests)
		tr.noError(err)
		for _, group := range groups {
			for _, i := range group {
				tr.compare(requests[i], answers[i], len(requests), len(group))
			}
		}
		return
	}
	for _, takes := range requests {
		answers := make([]store.Answer, len(takes))
		if err := TakeAll(tr.t.Context(), tr.store, takes, answers); err != nil {
			tr.fatalf("%v", err)
		}
		tr.compare(takes, answers, 1, 1)
	}
}

// compare compares what a batch of so many requests can know of one, in a group of so many.
func (tr *trace) compare(takes []store.Take, got []store.Answer, batch, group int) {
	want := make([]store.Answer, len(takes))
	tr.noError(TakeAll(tr.t.Context(), tr.oracle, takes, want))
	allowed := !slices.ContainsFunc(want, func(a store.Answer) bool { return !a.Allowed })
	tr.hint = 0
	for i, t := range takes {
		if !tr.same(t, got[i], want[i], allowed, batch, group) {
			tr.fatalf("take %d of %d, limits %v, shadow %d, varies %v, slots %v, %v (calendar %v), cost %d, mode %v, "+
				"%d requests, %d alike:\ngot  %+v\nwant %+v", i+1, len(takes), t.Plan.Limits, t.Plan.Shadow,
				t.Plan.Varies, t.Plan.Slots, t.Plan.Algorithm(), t.Plan.Limits[0].Calendar, t.Cost, t.Mode, batch,
				group, got[i], want[i])
		}
		if tr.hint = max(tr.hint, want[i].Retry); allowed && tr.r.IntN(2) == 0 {
			tr.hint = anyOf(tr.r, want[i].State[:len(t.Plan.Limits)]).Reset
		}
		tr.made = append(tr.made, t)
		tr.done++
	}
	tr.made = tr.made[max(0, len(tr.made)-40):]
}

// same compares an answer, but for what a store may not know.
func (tr *trace) same(t store.Take, got, want store.Answer, allowed bool, batch, group int) bool {
	switch {
	case tr.Repeats && batch > 1: // sent again, a log that had room may be full of requests that came later
		return got.Allowed == want.Allowed || want.Allowed && !allowed
	case tr.Repeats && t.Mode == store.ModeChargeDenied && !want.Allowed && !t.Plan.Slots: // older units were trimmed
		want.State, want.Denied, want.Shadow = got.State, got.Denied, got.Shadow
	case group > 1: // all see the oldest unit as it is after the last of them
		for i := range want.State {
			want.State[i].Reset = got.State[i].Reset
		}
	}
	return got == want
}

// book books units, mostly after a take, and settles an earlier take or booking.
func (tr *trace) book(key store.Key, p *store.Plan) {
	leaser, ok := tr.store.(store.Leaser)
	if !ok {
		return
	}
	tr.id += 2
	b := store.Booking{
		Take: store.Take{Key: key, Plan: p, Cost: tr.cost(p.Limits[0], store.ModeCharge), ID: tr.id - 1},
		ID:   tr.id, Most: tr.r.IntN(3) * tr.r.IntN(100), Share: tr.r.IntN(9), Lease: tr.part(store.LongestLease),
	}
	if tr.r.IntN(4) == 0 {
		b.Take.Mode, b.Take.Cost = store.ModePeek, 1
	}
	for _, t := range tr.made {
		if t.Key.String() == key.String() && tr.r.IntN(3) == 0 {
			b.Settled, b.Used = t.ID, tr.corrected()
		}
	}
	got, err := leaser.Book(tr.t.Context(), b)
	tr.noError(err)
	want, err := tr.oracle.Book(tr.t.Context(), b)
	tr.noError(err)
	if tr.Repeats { // the second answer is with the units that were booked
		got.Answer.State = want.Answer.State
	}
	if got != want {
		tr.fatalf("booking %+v, limits %v:\ngot  %+v\nwant %+v", b, p.Limits, got, want)
	}
	tr.made = append(tr.made, b.Take, store.Take{Key: key, Plan: p, Cost: got.Units, ID: b.ID})
	tr.done++
}

// settle changes the cost of a take, in one log or in all that were asked. The take may not have been recorded.
func (tr *trace) settle() {
	settler, ok := tr.store.(store.Settler)
	if !ok || len(tr.made) == 0 {
		return
	}
	of, cost, all := anyOf(tr.r, tr.made), tr.corrected(), tr.r.IntN(4) > 0
	for _, t := range tr.made {
		if t.ID != of.ID || !all && t.Key.String() != of.Key.String() || t.Plan.Algorithm() != store.SlidingLog {
			continue
		}
		s := store.Settlement{Key: t.Key, ID: t.ID, Cost: cost}
		if t.Plan.Slots {
			s.Cost = 0
		}
		tr.noError(settler.Settle(tr.t.Context(), s))
		tr.noError(tr.oracle.Settle(tr.t.Context(), s))
	}
}

// renew renews some of the latest takes, whether they have a slot or not.
func (tr *trace) renew(key store.Key, p *store.Plan) {
	r := store.Renewal{Key: key, Keep: p.Keep}
	for id, most := tr.id, tr.r.Uint64N(16); id > 0 && tr.id-id < most; id-- {
		if tr.r.IntN(3) > 0 {
			r.IDs = append(r.IDs, id)
		}
	}
	tr.r.Shuffle(len(r.IDs), func(i, j int) { r.IDs[i], r.IDs[j] = r.IDs[j], r.IDs[i] })
	tr.noError(tr.store.(store.Renewer).Renew(tr.t.Context(), r))
	tr.noError(tr.oracle.Renew(tr.t.Context(), r))
}

// merge adds entries of another log, sometimes twice.
func (tr *trace) merge(key store.Key, p *store.Plan) {
	merger, ok := tr.store.(store.Merger)
	if !ok {
		return
	}
	m := store.MergeRequest{Key: key, Keep: p.Keep, Varies: p.Varies}
	for range tr.r.IntN(4) {
		tr.id++
		age := tr.part(anyOf(tr.r, []time.Duration{p.Limits[0].Window, p.Keep}) - time.Microsecond)
		m.Entries = append(m.Entries, store.Entry{ID: tr.id, Age: age, Cost: 1})
		if !tr.units {
			m.Entries[len(m.Entries)-1].Cost += tr.r.IntN(3)
		}
	}
	for range 1 + tr.r.IntN(2) {
		tr.noError(merger.Merge(tr.t.Context(), m))
	}
	tr.noError(tr.oracle.Merge(tr.t.Context(), m))
}

// list compares a log: when each entry came after the oldest, and how much it was.
func (tr *trace) list(key store.Key, window time.Duration) {
	if lister, ok := tr.store.(store.Lister); ok {
		entries, err := lister.Log(tr.t.Context(), key, window)
		tr.noError(err)
		tr.compareLogs(entries, key, window)
	}
}

func (tr *trace) compareLogs(entries []core.Entry, key store.Key, window time.Duration) {
	wanted, err := tr.oracle.Log(tr.t.Context(), key, window)
	tr.noError(err)
	if got, want := offsets(entries), offsets(wanted); !slices.Equal(got, want) {
		tr.fatalf("log of %v\ngot  %v\nwant %v", window, got, want)
	}
	tr.done++
}

type offset struct {
	since time.Duration
	cost  int
}

func offsets(entries []core.Entry) []offset {
	all := make([]offset, len(entries))
	for i, e := range entries {
		all[i] = offset{e.At.Sub(entries[0].At), e.Cost}
	}
	slices.SortFunc(all, func(a, b offset) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.cost, b.cost))
	})
	return all
}
