package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// pool has limits of which no two are on one log.
var pool = []string{
	"3/10s", "5/30s", "4/10s by org", "20/minute by org", "12/10s by all", "6 tokens/10s", "30 tokens/minute by org",
	"3/10s with fixed window", "5/minute with sliding counter", "10 tokens/7s with fixed window by org",
	bucket, "10 tokens/month",
	"2 in flight", "3 in flight by org",
}

const bucket = "3/second burst 5"

// naive decides by the definition of logs: without sets, names, lists, and all that is remembered.
type naive struct {
	logs   definition.Store
	ids    uint64
	limits []limittext.Limit
	by     []string
}

// decided is a decision of it.
type decided struct {
	asked   []int // cost of each limit, 0 if it is left out
	ids     []uint64
	keys    []store.Key
	as      []*store.Limit
	answers []store.Answer
	settled map[int]int // cost of a limit since it was settled
	allowed bool
	mode    store.Mode
	at      time.Time
	user    string

	wasReset bool // the user, after the decision
}

// limit returns what a store gets of a limit.
func (n *naive) limit(i int, endless bool) *store.Limit {
	g := n.limits[i]
	l := &store.Limit{
		Log: fmt.Sprintf("limit-%d", i), Quota: g.Quota, Window: g.Window, Algorithm: g.Algorithm, Permits: g.InFlight,
		Unlimited: endless,
	}
	switch {
	case g.InFlight:
		l.Window = time.Hour // they are renewed
	case g.Burst > 0:
		l.Quota, l.Refill = g.Burst, g.Quota
	case g.Calendar.IsSet(): // months in UTC
		l.Algorithm, l.Window, l.Calendar = store.FixedWindow, 31*24*time.Hour, new(store.Calendar)
		y, m, _ := time.Now().UTC().Date()
		for k := range l.Calendar {
			l.Calendar[k] = time.Date(y, m+time.Month(k)-1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
		}
	}
	return l
}

func (n *naive) store() *definition.Store {
	n.logs.Advance(time.Since(n.logs.Now()))
	return &n.logs
}

func (n *naive) decide(user, org string, requests, tokens int, mode store.Mode) *decided {
	n.ids++
	d := &decided{mode: mode, allowed: true, at: time.Now(), user: user, settled: make(map[int]int)}
	never := false
	for i, l := range n.limits {
		cost := requests
		switch {
		case l.InFlight && mode == store.ModeRecord:
			cost = 0
		case l.InFlight:
			cost = max(requests, 1)
		case l.Unit == "tokens":
			cost = tokens
		}
		endless := mode == store.ModeRecord && !l.InFlight
		limit := n.limit(i, endless)
		never = never || limit.NeverFits(cost)
		d.asked, d.as, d.ids = append(d.asked, cost), append(d.as, limit), append(d.ids, n.ids)
		d.keys = append(d.keys, store.NewKey(n.by[i], map[string]string{"": user, "org": org}[n.by[i]]))
	}
	if mode == store.ModeRecord || mode == store.ModeChargeDenied && never {
		mode = store.ModeCharge
	}
	d.answers = make([]store.Answer, len(n.limits))
	var takes []store.Take
	var at []int
	for _, by := range []string{"", "org", "all"} {
		for i := range n.limits {
			if n.by[i] == by && d.asked[i] > 0 {
				at = append(at, i)
				takes = append(takes, store.Take{Key: d.keys[i], Limit: d.as[i], Cost: d.asked[i], ID: n.ids,
					Mode: mode})
			}
		}
	}
	if takes == nil {
		return d
	}
	answers := make([]store.Answer, len(takes))
	must(n.store().Take(context.Background(), takes, answers))
	for k, i := range at {
		d.answers[i] = answers[k]
		d.allowed = d.allowed && answers[k].Allowed
	}
	return d
}

// settle changes the cost of one limit's take.
func (n *naive) settle(d *decided, i, cost int) {
	if !d.allowed || d.mode == store.ModePeek || n.limits[i].InFlight || d.wasReset && n.by[i] == "" {
		return
	}
	before, known := d.settled[i]
	d.settled[i] = cost
	if d.asked[i] > 0 {
		if !known {
			before = d.asked[i]
			if d.mode == store.ModeAtMost {
				before = d.answers[i].Granted
			}
		}
		if d.ids[i] != 0 && before != cost { // settling to the same changes nothing
			must(n.store().Settle(context.Background(), store.Settlement{
				Key: d.keys[i], Limit: d.as[i], ID: d.ids[i], Cost: cost,
			}))
		}
		if cost == 0 {
			d.ids[i] = 0 // it stays given back
		}
		return
	}
	added := d.asked[i] < 0
	if before == cost { // although counted denials may have removed it
		return
	}
	switch {
	case added && (cost == 0 || d.as[i].Algorithm != store.SlidingLog):
		must(n.store().Settle(context.Background(), store.Settlement{
			Key: d.keys[i], Limit: d.as[i], ID: d.ids[i], Cost: cost,
		}))
	case d.as[i].Algorithm == store.SlidingLog:
		must(n.store().Merge(context.Background(), store.MergeRequest{Key: d.keys[i], Limit: d.as[i],
			Entries: []store.Entry{
				{ID: d.ids[i], Cost: cost, Age: time.Since(d.at)},
			}}))
	default:
		d.as[i] = n.limit(i, true)
		takes := []store.Take{{Key: d.keys[i], Limit: d.as[i], Cost: cost, ID: d.ids[i]}}
		must(n.store().Take(context.Background(), takes, make([]store.Answer, 1)))
	}
	d.asked[i] = -1 // it was added
}

// check returns how the decision of an engine differs.
func (d *decided) check(n *naive, r *engine.Result) error {
	if r.Allowed != d.allowed {
		return fmt.Errorf("allowed %v, not %v", r.Allowed, d.allowed)
	}
	var denying []string
	var retry, tightestReset time.Duration
	never, permit := false, false
	tightest, tightestLeft, tightestUsed := -1, 0, 0
	for i, cost := range d.asked {
		if cost <= 0 {
			continue
		}
		a := &d.answers[i]
		fits := !d.as[i].NeverFits(cost) || d.mode == store.ModeAtMost
		never = never || !d.allowed && !fits
		permit = permit || !d.allowed && !a.Allowed && n.limits[i].InFlight
		retry = max(retry, a.Retry)
	}
	for i, cost := range d.asked {
		got := r.State(i)
		if got.Asked != (cost > 0) {
			return fmt.Errorf("limit %d: asked %v of cost %d", i, got.Asked, cost)
		}
		if cost <= 0 {
			continue
		}
		a := &d.answers[i]
		fits := !d.as[i].NeverFits(cost) || d.mode == store.ModeAtMost
		if denies := !d.allowed && !a.Allowed; got.Denies != denies {
			return fmt.Errorf("limit %d: denies %v", i, got.Denies)
		} else if denies && never == !fits {
			denying = append(denying, r.Set.Names[i])
		}
		taken, mode := d.as[i].Counted(cost, d.mode)
		switch {
		case mode == store.ModePeek:
			taken = 0
		case d.allowed && mode == store.ModeAtMost && !n.limits[i].InFlight:
			taken = a.Granted
		case !d.allowed && (mode != store.ModeChargeDenied || a.Allowed || never):
			taken = 0
		}
		left, reset := max(0, d.as[i].Quota-a.Used-taken), a.Reset
		if n.limits[i].InFlight {
			reset = 0
		}
		if l := &r.Set.Limits[i]; a.Known && (d.allowed || !a.Allowed) && (tightest < 0 ||
			len(r.Set.Units) < 2 && left < tightestLeft ||
			len(r.Set.Units) > 1 && left*r.Set.Limits[tightest].Quota < tightestLeft*l.Quota) {
			tightest, tightestLeft, tightestReset, tightestUsed = i, left, reset, a.Used
		}
		if got.Used != a.Used || got.Left != left || got.Reset != reset {
			return fmt.Errorf("limit %d: used %d, left %d, reset %v; not %d, %d, %v", i, got.Used, got.Left, got.Reset,
				a.Used, left, reset)
		}
	}
	if never || permit || d.allowed {
		retry = 0
	}
	if r.Retry != retry || r.Never != never || r.AwaitsPermit() != permit || !slices.Equal(r.Denying(), denying) {
		return fmt.Errorf("retry %v, never %v, permit %v, denying %v; not %v, %v, %v, %v", r.Retry, r.Never,
			r.AwaitsPermit(), r.Denying(), retry, never, permit, denying)
	}
	if longest := r.Set.Longest; d.allowed && tightest >= 0 && longest >= 0 {
		tightestUsed = d.answers[longest].Used
	}
	got := r.Tightest()
	if left, reset, used := r.Numbers(); got != tightest || left != tightestLeft || reset != tightestReset ||
		used != tightestUsed {
		return fmt.Errorf("limit %d: left %d, reset %v, used %d; not limit %d: %d, %v, %d", got, left, reset, used,
			tightest, tightestLeft, tightestReset, tightestUsed)
	}
	return nil
}

// TestRandom compares an engine with the definition, by random requests and what follows them.
func TestRandom(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) { random(t, seed) })
	}
}

func random(t *testing.T, seed uint64, on ...func(*engine.Config)) {
	r := rand.New(rand.NewPCG(seed, 0))
	var texts []string
	for _, text := range pool {
		if r.IntN(3) == 0 && len(texts) < engine.MostLimits {
			texts = append(texts, text)
		}
	}
	if texts == nil {
		texts = pool[:1]
	}
	r.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
	e, n := newEngine(t, on...), new(naive)
	s := compile(t, e, texts...)
	for _, g := range limits(t, texts...) {
		by := ""
		for name, k := range byKeys {
			if k == g.Key {
				by = name
			}
		}
		n.limits, n.by = append(n.limits, g.Limit), append(n.by, by)
	}
	type pair struct {
		r *engine.Result
		d *decided
	}
	var all []pair
	var log []string // of steps
	start := time.Now()
	for step := range 60 {
		time.Sleep(time.Duration(r.IntN(3)) * time.Duration(r.IntN(4000)) * time.Millisecond)
		switch k := r.IntN(10); {
		case k < 6 || all == nil:
			user, org := []string{"a", "b"}[r.IntN(2)], []string{"x", "y"}[r.IntN(2)]
			mode := []store.Mode{
				store.ModeCharge, store.ModeCharge, store.ModePeek, store.ModeRecord, store.ModeChargeDenied,
				store.ModeAtMost,
			}[r.IntN(6)]
			if mode == store.ModeRecord && slices.Contains(texts, bucket) { // how far it is below empty, nobody says
				mode = store.ModeCharge
			}
			requests, tokens := r.IntN(4), r.IntN(5)
			if mode == store.ModeAtMost { // all are granted the same
				requests = 1 + r.IntN(7)
				tokens = requests
			}
			if r.IntN(20) == 0 && mode != store.ModeAtMost {
				requests = 30
			}
			a := &engine.Ask{Identities: identities(s, user, org), Cost: requests, Mode: mode}
			a.Costs = costs(s, requests, tokens)
			log = append(log, fmt.Sprintf("%v %v %d %d by %s of %s", time.Since(start), mode, requests, tokens, user,
				org))
			p := pair{allow(t, e, s, a), n.decide(user, org, requests, tokens, mode)}
			if err := p.d.check(n, p.r); err != nil {
				t.Log(strings.Join(log, "\n"))
				t.Errorf("seed %d, step %d of %v: %v", seed, step, texts, err)
				return
			}
			all = append(all, p)
		case k < 7:
			p := all[r.IntN(len(all))]
			log = append(log, fmt.Sprintf("%v undo what was decided at %v", time.Since(start), p.d.at.Sub(start)))
			if err := p.r.Undo(t.Context()); err != nil {
				t.Error(err)
			}
			for i := range n.limits {
				n.settle(p.d, i, 0)
				if n.limits[i].InFlight && p.d.allowed && p.d.asked[i] > 0 && p.d.mode != store.ModePeek {
					must(n.store().Settle(t.Context(), store.Settlement{Key: p.d.keys[i], Limit: p.d.as[i],
						ID: p.d.ids[i]}))
				}
			}
		case k < 9:
			p, unit, cost := all[r.IntN(len(all))], []string{"", "tokens"}[r.IntN(2)], r.IntN(5)
			log = append(log, fmt.Sprintf("%v settle to %d %q what was decided at %v", time.Since(start), cost, unit,
				p.d.at.Sub(start)))
			copied := *p.r
			if err := copied.Settle(t.Context(), func(l *engine.Limit) (int, bool) {
				return cost,
					l.Unit == unit
			}); err != nil {
				t.Error(err)
			}
			for i := range n.limits {
				if n.limits[i].Unit == unit {
					n.settle(p.d, i, cost)
				}
			}
		default:
			log = append(log, fmt.Sprintf("%v reset", time.Since(start)))
			if err := e.Reset(t.Context(), text("a")); err != nil {
				t.Error(err)
			}
			for _, p := range all {
				p.d.wasReset = p.d.wasReset || p.d.user == "a"
			}
			for i := range n.limits {
				if n.by[i] == "" && !n.limits[i].InFlight {
					must(n.store().Reset(t.Context(), store.NewKey("", "a"), []*store.Limit{n.limit(i, false)}, 0))
				}
			}
		}
	}
}
