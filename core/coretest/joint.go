package coretest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// jointLog is one of the logs of a joint trace.
type jointLog struct {
	key    store.Key
	plans  []*store.Plan // without a shadow, with one, and as a shadow of no other limit
	plan   int           // which of plans is used
	oracle oracle
}

var jointLimits = [][]store.Limit{
	{{Quota: 2, Window: 10 * time.Millisecond}},
	{{Quota: 5, Window: 10 * time.Second}},
	{{Quota: 100, Window: time.Minute}},
	{{Quota: 3, Window: time.Second}, {Quota: 10, Window: time.Minute}},
	{{Quota: 30, Window: time.Second}, {Quota: 20, Window: 3 * time.Second}},
}

func newJointLogs(name string, r *rand.Rand) (logs []*jointLog) {
	for i, n := range r.Perm(len(jointLimits))[:2+r.IntN(3)] {
		limits := jointLimits[n]
		logs = append(logs, &jointLog{
			key: store.NewKey(name, fmt.Sprint("k", i)),
			plans: []*store.Plan{
				store.NewPlan(store.Plan{Limits: limits, Keep: time.Hour}),
				store.NewPlan(store.Plan{
					Limits: append(slices.Clip(limits), store.Limit{Quota: 7, Window: time.Second}),
					Shadow: 1, Keep: time.Hour,
				}),
				store.NewPlan(store.Plan{Limits: limits, Shadow: len(limits), Keep: time.Hour}),
			},
		})
	}
	return logs
}

// jointAgainstOracle compares random requests over several logs with the oracle.
func jointAgainstOracle(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	joint := optional[store.Joint](&direct{t: t, store: s}, "store.Joint")
	settler, _ := s.(store.Settler)
	_, granter := s.(store.Granter)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for n, done := 0, 0; done < c.Checks; n++ {
		tr := &jointTrace{
			t: t, r: r, store: s, joint: joint, settler: settler, granter: granter, advance: advance,
			repeats:  c.Repeats,
			logs:     newJointLogs(fmt.Sprintf("joint-%x-%d", seed, n), r),
			desc:     fmt.Sprintf("seed %#x, trace %d", seed, n),
			counting: n%4 == 0, weighted: n%3 == 0,
		}
		for i, l := range tr.logs {
			switch {
			case n%5 == 0:
				l.plan = 1
			case n%7 == 0 && i == 0:
				l.plan = 2
			}
		}
		for range testlen.Of(60, 300) {
			tr.step()
		}
		done += tr.done
	}
}

type jointTrace struct {
	t       *testing.T
	r       *rand.Rand
	store   store.Store
	joint   store.Joint
	settler store.Settler // or nil
	granter bool          // the store knows ModeUpTo
	advance func(time.Duration)
	logs    []*jointLog
	desc    string
	repeats bool

	counting, weighted bool

	wait time.Duration // what the last denial told
	id   uint64
	done int
}

func (tr *jointTrace) step() {
	var by time.Duration
	switch tr.r.IntN(8) {
	case 0:
		by = time.Duration(tr.r.Int64N(int64(4 * time.Second))).Truncate(time.Microsecond)
	case 1:
		by = time.Duration(tr.r.Int64N(int64(20 * time.Millisecond))).Truncate(time.Microsecond)
	case 2:
		by = tr.wait
	case 3:
		by = max(tr.wait-time.Microsecond, 0)
	}
	if by > 0 {
		tr.advance(by)
	}
	for _, l := range tr.logs {
		l.oracle.now += by
		l.oracle.forget(time.Hour)
	}
	switch k := tr.r.IntN(20); {
	case k == 0 && tr.settler != nil && tr.id > 0:
		tr.settle()
	case k < 3:
		tr.take(tr.logs[tr.r.IntN(len(tr.logs))])
	default:
		tr.takeAll()
	}
}

func (tr *jointTrace) next(l *jointLog, cost int, mode store.Mode) store.Take {
	return store.Take{Key: l.key, Plan: l.plans[l.plan], Cost: cost, ID: tr.id, Mode: mode}
}

func (tr *jointTrace) cost() int {
	if tr.weighted && tr.r.IntN(3) == 0 {
		return 1 + tr.r.IntN(6)
	}
	return 1
}

// take takes from one log alone.
func (tr *jointTrace) take(l *jointLog) {
	tr.id++
	mode := store.ModeCharge
	if tr.granter && tr.r.IntN(3) == 0 {
		mode = store.ModeUpTo
	}
	take := tr.next(l, tr.cost(), mode)
	got, err := tr.store.Take(tr.t.Context(), take)
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.compare(take, got, l.oracle.take(take))
}

func (tr *jointTrace) settle() {
	id, cost := 1+tr.r.Uint64N(tr.id), tr.r.IntN(4)
	for _, l := range tr.logs {
		if err := tr.settler.Settle(tr.t.Context(), store.Settlement{Key: l.key, ID: id, Cost: cost}); err != nil {
			tr.t.Fatal(err)
		}
		l.oracle.settle(id, cost)
	}
}

func (tr *jointTrace) takeAll() {
	mode := store.ModeCharge
	switch k := tr.r.IntN(12); {
	case k == 0:
		mode = store.ModePeek
	case k == 1:
		mode = store.ModeRecord
	case k < 5 && tr.granter:
		mode = store.ModeUpTo
	case tr.counting:
		mode = store.ModeChargeDenied
	}
	tr.id++
	cost := tr.cost()
	if mode == store.ModeUpTo && tr.weighted {
		cost = 1 + tr.r.IntN(12)
	}
	var takes []store.Take
	all := true
	chosen := tr.r.Perm(len(tr.logs))[:1+tr.r.IntN(len(tr.logs))]
	limits := 0
	for n, i := range chosen {
		l := tr.logs[i]
		take := tr.next(l, cost, mode)
		if limits += len(take.Plan.Limits); limits > store.MaxLimits {
			chosen = chosen[:n]
			break
		}
		takes = append(takes, take)
		all = all && l.oracle.fits(take.Plan.Deciding(), cost, l.oracle.now)
	}
	answers := make([]store.Answer, len(takes))
	if err := tr.joint.TakeAll(tr.t.Context(), takes, answers); err != nil {
		tr.t.Fatalf("%s, step %d: %v", tr.desc, tr.done, err)
	}
	tr.wait = 0
	if mode == store.ModeUpTo {
		logs := make([]*oracle, len(takes))
		for n, i := range chosen {
			logs[n] = &tr.logs[i].oracle
		}
		takes = takesUpTo(takes, logs)
		mode, all = takes[0].Mode, takes[0].Mode == store.ModeUpTo
	}
	for n, i := range chosen {
		l, take := tr.logs[i], takes[n]
		cost := take.Cost
		room := l.oracle.fits(take.Plan.Deciding(), cost, l.oracle.now)
		if !all && mode != store.ModeRecord && (room || mode != store.ModeChargeDenied) {
			take.Mode = store.ModePeek
		}
		tr.compare(take, answers[n], l.oracle.take(take))
		tr.wait = max(tr.wait, answers[n].Retry)
	}
}

func (tr *jointTrace) compare(take store.Take, got, want store.Answer) {
	if tr.repeats && take.Mode == store.ModeChargeDenied && !want.Allowed {
		// The second time, older units were trimmed.
		want.State, want.Denied, want.Shadow = got.State, got.Denied, got.Shadow
	}
	if got != want {
		tr.t.Fatalf("%s, step %d, limits %v, cost %d, mode %v:\ngot  %+v\nwant %+v",
			tr.desc, tr.done, take.Plan.Limits, take.Cost, take.Mode, got, want)
	}
	tr.done++
}

// Many requests at once over two logs each, in either order: no log is over its quota, and what is denied by one log
// takes nothing from the other.
func jointConcurrently(t *testing.T, c StoreConfig) {
	s, _ := c.New(t)
	joint := optional[store.Joint](&direct{t: t, store: s}, "store.Joint")
	const users = 16
	each, userQuota, sharedQuota := testlen.Of(12, 60), testlen.Of(10, 40), testlen.Of(60, 300)
	user := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: userQuota, Window: time.Hour}}})
	shared := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: sharedQuota, Window: time.Hour}}})
	all := store.NewKey("joint", "all")
	var id atomic.Uint64
	take := func(n int, reverse bool) bool {
		number := id.Add(1)
		takes := []store.Take{
			{Key: store.NewKey("joint:user", fmt.Sprint(n)), Plan: user, Cost: 1, ID: number},
			{Key: all, Plan: shared, Cost: 1, ID: number},
		}
		if reverse {
			slices.Reverse(takes)
		}
		answers := make([]store.Answer, 2)
		if err := joint.TakeAll(t.Context(), takes, answers); err != nil {
			t.Error(err)
		}
		return answers[0].Allowed && answers[1].Allowed
	}
	var admitted [users]atomic.Int64
	var wg sync.WaitGroup
	for caller := range 2 * users {
		wg.Go(func() {
			for range each {
				if take(caller%users, caller%2 == 0) {
					admitted[caller%users].Add(1)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for n := range users {
		for take(n, false) { // where takes are made one after the other, some were denied for a moment only
			admitted[n].Add(1)
		}
		got := int(admitted[n].Load())
		if total += got; got > userQuota {
			t.Errorf("user %d was admitted %d times, want %d at most", n, got, userQuota)
		}
		a, err := s.Take(t.Context(), store.Take{
			Key: store.NewKey("joint:user", fmt.Sprint(n)), Plan: user, Cost: 1, ID: id.Add(1), Mode: store.ModePeek,
		})
		if err != nil || a.State[0].Used != got {
			t.Errorf("the log of user %d holds %d units, want %d: %v", n, a.State[0].Used, got, err)
		}
	}
	if total != sharedQuota {
		t.Errorf("%d admitted, want %d", total, sharedQuota)
	}
}

// keysOfLimits sends requests of one user and then of his colleagues: those of his that are denied by his own limit
// take nothing of the organisation's, and the response names both limits.
func keysOfLimits(t *testing.T, serve Serve) {
	header := func(name string) core.Key { return core.ByHeader(name, core.Unverified) }
	const user, organisation = 3, 100
	l, err := core.New(core.Limits{
		core.PerHour(user), core.PerHour(organisation).By(header("Organisation")), core.PerHour(1000).By(core.Global()),
	}, header("User"))
	if err != nil {
		t.Fatal(err)
	}
	send := serve(t, func() string { return text }, l)
	request := func(name, organisation string) *http.Response {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("User", name)
		if organisation != "" {
			r.Header.Set("Organisation", organisation)
		}
		return send(r)
	}
	count := map[int]int{}
	for range 120 {
		count[request("ann", "acme").StatusCode]++
	}
	if count[200] != user || count[429] != 120-user {
		t.Errorf("one user's requests: %v, want %d of 200 and the others 429", count, user)
	}
	first := request("colleague", "acme")
	if got, want := first.Header["Ratelimit"], `"3-per-hour";r=2;t=3600, "100-per-hour";r=96;t=`; len(got) != 1 ||
		!strings.HasPrefix(got[0], want) || !strings.Contains(got[0], `, "1000-per-hour";r=996;t=`) {
		t.Errorf("RateLimit %q, want it to begin with %s", got, want)
	}
	count = map[int]int{}
	for n := range organisation {
		r := request(fmt.Sprint("colleague", n), "acme")
		if count[r.StatusCode]++; r.StatusCode == 429 && r.Header.Get("Retry-After") == "" {
			t.Error("a denial without Retry-After")
		}
	}
	if left := organisation - user - 1; count[200] != left || count[429] != organisation-left {
		t.Errorf("the colleagues' requests: %v, want %d of 200 and the others 429", count, left)
	}
	if r := request("ann", ""); r.StatusCode != 400 {
		t.Errorf("a request without an organisation: status %d, want 400", r.StatusCode)
	}
}

// Takes that are not those of one request are errors, and record nothing.
func invalidJointQuestions(t *testing.T, c StoreConfig) {
	s, _ := c.New(t)
	joint := optional[store.Joint](&direct{t: t, store: s}, "store.Joint")
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 5, Window: time.Hour}}})
	nine := make([]store.Take, store.MaxLimits+1)
	for i := range nine {
		nine[i] = store.Take{Key: store.NewKey("joint-invalid", fmt.Sprint(i)), Plan: plan, Cost: 1, ID: 1}
	}
	change := func(f func(*store.Take)) []store.Take {
		takes := slices.Clone(nine[:2])
		f(&takes[1])
		return takes
	}
	for desc, takes := range map[string][]store.Take{
		"none":         {},
		"nine limits":  nine,
		"a zero key":   change(func(t *store.Take) { t.Key = store.Key{} }),
		"no plan":      change(func(t *store.Take) { t.Plan = nil }),
		"another cost": change(func(t *store.Take) { t.Cost = 2 }),
		"another ID":   change(func(t *store.Take) { t.ID = 2 }),
		"another mode": change(func(t *store.Take) { t.Mode = store.ModeRecord }),
		"one key":      change(func(t *store.Take) { t.Key = store.NewKey("joint-invalid", "0") }),
	} {
		err := joint.TakeAll(t.Context(), takes, make([]store.Answer, len(takes)))
		if !errors.As(err, new(*store.ConfigError)) {
			t.Errorf("%s: %v, want a ConfigError", desc, err)
		}
	}
	if err := joint.TakeAll(t.Context(), nine[:2], make([]store.Answer, 1)); err == nil {
		t.Error("one answer for two takes: no error")
	}
	a, err := s.Take(t.Context(), store.Take{Key: nine[0].Key, Plan: plan, Cost: 1, ID: 3, Mode: store.ModePeek})
	if err != nil || a.State[0].Used != 0 {
		t.Errorf("%+v, %v: an invalid request has recorded units", a, err)
	}
}
