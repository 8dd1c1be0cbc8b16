package core_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// limiterTrace asks limiters on the store under test and, in the same way, others on a store that is the definition
// written down. They are of one policy, so that all draw from one log.
type limiterTrace struct {
	t      *testing.T
	r      *rand.Rand
	desc   string
	oracle *coretest.FakeStore
	more   []func(time.Duration) // clocks that move on besides the bubble's and the oracle's
	key    string

	limits, chosen core.Limits
	keep           time.Duration
	plain          limiterPair
	all            []limiterPair // what is asked beside plain: counting, with a shadow, varying

	got   []core.Option // of the limiters that are compared with the oracle
	alike bool          // requests of one unit each that are hardly ever corrected
	noLog bool          // the log is not listed
	keeps bool          // ... and not reset
	loose func(got, want core.Decision, cost int) bool
	after func() // is called after each answer

	made     []madePair
	last     time.Duration
	lastCost int // of the last request
	answers  int
}

// limiterPair is the same limiter on both stores.
type limiterPair struct{ got, want *core.Limiter }

type madePair struct{ got, want core.Decision }

var limiterPolicies = []core.Limits{
	{{Name: "a", Quota: 1, Window: 10 * time.Millisecond}},
	{{Name: "a", Quota: 5, Window: 10 * time.Second}},
	{{Name: "a", Quota: 60, Window: time.Minute}},
	{{Name: "a", Quota: 3, Window: time.Second}, {Name: "b", Quota: 10, Window: time.Minute}},
	{
		{Name: "a", Quota: 40, Window: time.Hour},
		{Name: "b", Quota: 7, Window: 1300 * time.Millisecond},
		{Name: "c", Quota: 20, Window: time.Minute},
	},
}

// onOracle returns a limiter on the oracle's store.
func (tr *limiterTrace) onOracle(p core.Policy, opts ...core.Option) *core.Limiter {
	opts = append(slices.Clip(opts),
		core.WithStore(tr.oracle), core.WithDenyCache(0), core.WithFailure(core.FailClosed))
	return newLimiter(tr.t, p, opts...)
}

// pair makes a limiter on both stores.
func (tr *limiterTrace) pair(logs core.Store, p core.Policy, opts ...core.Option) limiterPair {
	got := append(slices.Concat(opts, tr.got), core.WithStore(logs))
	return limiterPair{newLimiter(tr.t, p, got...), tr.onOracle(p, opts...)}
}

func (tr *limiterTrace) advance(d time.Duration) {
	if d <= 0 {
		return
	}
	time.Sleep(d)
	tr.oracle.Advance(d)
	for _, advance := range tr.more {
		advance(d)
	}
}

// wait moves time by nothing, a little, a part of the window, or what the last denial said.
func (tr *limiterTrace) wait() {
	switch tr.r.IntN(12) {
	case 0:
		l := tr.limits[tr.r.IntN(len(tr.limits))]
		tr.advance(time.Duration(tr.r.Int64N(int64(l.Window)/int64(l.Quota)*3 + 1)).Truncate(time.Microsecond))
	case 1:
		tr.advance(time.Microsecond)
	case 2:
		tr.advance(tr.last - time.Duration(tr.r.IntN(2))*time.Microsecond)
	case 3:
		if tr.r.IntN(40) == 0 {
			tr.advance(tr.keep - time.Duration(tr.r.IntN(3)-1)*time.Microsecond)
		}
	}
}

func (tr *limiterTrace) cost() int {
	if tr.alike || tr.r.IntN(3) > 0 {
		return 1
	}
	return 1 + tr.r.IntN(min(tr.limits[0].Quota+1, 40))
}

// step asks one thing.
func (tr *limiterTrace) step() {
	tr.wait()
	k := tr.r.IntN(40)
	if tr.alike && k >= 31 && k < 37 && tr.r.IntN(30) > 0 {
		k = 0
	}
	switch {
	case k < 17:
		tr.ask(tr.plain, (*core.Limiter).AllowN, tr.cost())
	case k < 20:
		tr.askUpTo(tr.plain, tr.cost())
	case k < 25:
		if len(tr.all) == 0 {
			return
		}
		if p := tr.all[tr.r.IntN(len(tr.all))]; k == 24 {
			tr.askUpTo(p, tr.cost())
		} else {
			tr.ask(p, (*core.Limiter).AllowN, tr.cost())
		}
	case k < 30:
		tr.ask(tr.plain, peekN, 1)
	case k < 31:
		if !tr.alike || tr.r.IntN(30) == 0 {
			tr.ask(tr.plain, (*core.Limiter).Record, tr.cost())
		}
	case k < 37:
		tr.settle()
	case k < 39:
		if !tr.noLog {
			tr.log()
		}
	default:
		if !tr.keeps && tr.r.IntN(20) == 0 {
			tr.reset()
		}
	}
}

//nolint:revive // a method expression has the context second
func peekN(l *core.Limiter, ctx context.Context, key string, _ int) (core.Decision, error) {
	return l.Peek(ctx, key)
}

// question is [core.Limiter.AllowN] or another method.
type question func(*core.Limiter, context.Context, string, int) (core.Decision, error)

// askUpTo asks for as many units as there are, but often for many more than that unless the requests are alike. It is
// denied as a request for one is.
func (tr *limiterTrace) askUpTo(p limiterPair, most int) {
	if !tr.alike && tr.r.IntN(4) == 0 {
		most += 1000
	}
	upTo := func(l *core.Limiter, ctx context.Context, key string, _ int) (core.Decision, error) {
		return l.AllowAtMost(ctx, key, most)
	}
	tr.ask(p, upTo, 1)
}

func (tr *limiterTrace) ask(p limiterPair, how question, cost int) {
	if tr.r.IntN(5) == 0 {
		tr.chosen = slices.Clone(tr.limits)
		i := tr.r.IntN(len(tr.chosen))
		tr.chosen[i].Quota = 1 + tr.r.IntN(2*tr.chosen[i].Quota)
		tr.chosen[i].Window = time.Duration(1+tr.r.Int64N(int64(tr.keep/time.Millisecond))) * time.Millisecond
	}
	got, err := how(p.got, tr.t.Context(), tr.key, cost)
	if tr.failed(err) {
		return
	}
	want, err := how(p.want, tr.t.Context(), tr.key, cost)
	if err != nil && !errors.Is(err, core.ErrCostExceedsQuota) {
		tr.t.Fatalf("%s: the oracle: %v", tr.desc, err)
	}
	if !reflect.DeepEqual(shown(got), shown(want)) && (tr.loose == nil || !tr.loose(got, want, cost)) {
		tr.t.Fatalf("%s, after %d answers, limits %v, cost %d:\ngot  %+v\nwant %+v",
			tr.desc, tr.answers, tr.limits, cost, shown(got), shown(want))
	}
	if tr.made = append(tr.made, madePair{got, want}); len(tr.made) > 20 {
		tr.made = tr.made[1:]
	}
	tr.last, tr.lastCost = want.RetryAfter, cost
	if tr.answers++; tr.after != nil {
		tr.after()
	}
}

// failed reports whether the store has not answered. Then the oracle is not asked.
func (tr *limiterTrace) failed(err error) bool {
	if err == nil || errors.Is(err, core.ErrCostExceedsQuota) {
		return false
	}
	if !errors.As(err, new(*core.StoreError)) {
		tr.t.Fatalf("%s: %v", tr.desc, err)
	}
	return true
}

// shown returns the exported fields of a decision, for any store.
func shown(d core.Decision) core.Decision {
	v := core.Decision{Allowed: d.Allowed, Remaining: d.Remaining, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter}
	v.Used, v.Banned, v.Granted = d.Used, d.Banned, d.Granted
	if len(d.Violated) > 0 {
		v.Violated = slices.Clone(d.Violated)
	}
	return v
}

func (tr *limiterTrace) settle() {
	if len(tr.made) == 0 {
		return
	}
	m := tr.made[tr.r.IntN(len(tr.made))]
	cost := []int{0, 0, tr.r.IntN(12), tr.r.IntN(200)}[tr.r.IntN(4)]
	if tr.failed(m.got.Settle(tr.t.Context(), cost)) {
		return
	}
	if err := m.want.Settle(tr.t.Context(), cost); err != nil {
		tr.t.Fatal(err)
	}
	tr.ask(tr.plain, peekN, 1)
}

func (tr *limiterTrace) log() {
	got, err := tr.plain.got.Log(tr.t.Context(), tr.key)
	if tr.failed(err) {
		return
	}
	want, err := tr.plain.want.Log(tr.t.Context(), tr.key)
	if err != nil {
		tr.t.Fatal(err)
	}
	if !slices.Equal(spans(got), spans(want)) {
		tr.t.Fatalf("%s, after %d answers: log\ngot  %v\nwant %v", tr.desc, tr.answers, got, want)
	}
}

// spans is a log by what can be compared between clocks.
func spans(entries []core.Entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, fmt.Sprint(e.At.Sub(entries[0].At), " ", e.Cost))
	}
	slices.Sort(all)
	return all
}

func (tr *limiterTrace) reset() {
	if tr.failed(tr.plain.got.Reset(tr.t.Context(), tr.key)) {
		return
	}
	if err := tr.plain.want.Reset(tr.t.Context(), tr.key); err != nil {
		tr.t.Fatal(err)
	}
}

// raceShare: the race detector looks at a quarter of the traces, which it makes ten times as long.
const raceShare = 4

// runTraces runs limiterTraces until they have had so many answers together.
func runTraces(t *testing.T, answers int, run func(tr *limiterTrace, name string)) {
	if testlen.Race {
		answers /= raceShare
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 4))
	for n, done := 0, 0; done < answers; n++ {
		synctest.Test(t, func(t *testing.T) {
			tr := &limiterTrace{
				t: t, r: r, oracle: new(coretest.FakeStore), key: "k", alike: n%2 == 0,
				limits: limiterPolicies[n%len(limiterPolicies)], desc: fmt.Sprintf("seed %#x, trace %d", seed, n),
			}
			tr.chosen = tr.limits
			for _, l := range tr.limits {
				tr.keep = max(tr.keep, l.Window)
			}
			run(tr, fmt.Sprint("trace-", n))
			done += tr.answers
		})
	}
}

// wantPaths logs how many answers came by each path, and fails the test where one of them has answered too rarely.
func wantPaths(t *testing.T, count, least map[string]int) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(count)) {
		t.Logf("%6d %s", count[path], path)
	}
	for path, n := range least {
		if testlen.Race {
			n /= raceShare
		}
		if count[path] < n {
			t.Errorf("%d answers %s, want at least %d", count[path], path, n)
		}
	}
}

// others are the limiters beside the plain one, once they know how long entries stay.
func (tr *limiterTrace) others(logs core.Store, name string, opts ...core.Option) {
	opts = append(opts, core.WithName(name))
	counting := append(slices.Clip(opts), core.WithCountDenied())
	chosen := core.LimitBy(func(context.Context) core.Limits { return tr.chosen })
	tr.all = append(tr.all, tr.pair(logs, tr.limits, counting...))
	for _, varying := range []limiterPair{tr.pair(logs, chosen, opts...), tr.pair(logs, chosen, counting...)} {
		for _, l := range []*core.Limiter{varying.got, varying.want} {
			if _, err := l.Peek(tr.t.Context(), tr.key); err != nil {
				tr.t.Fatal(err)
			}
		}
		tr.all = append(tr.all, varying)
	}
}

// keySpyOf is the key that the plain limiter asks about.
func (tr *limiterTrace) keySpyOf(name string) (key store.Key) {
	return store.NewKey(name, tr.key)
}

type takeSpy struct {
	store.Full

	seen func(store.Take)
}

func (s *takeSpy) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	s.seen(takes[0])
	return s.Full.Take(ctx, takes, answers)
}

// In memory a log is kept in one of two forms, and a limiter asks its store without a key and an id of its own.
func TestMemoryAgainstOracle(t *testing.T) {
	testlen.SkipRace(t)
	count := map[string]int{}
	runTraces(t, 100_000, func(tr *limiterTrace, name string) {
		logs := core.NewMemoryStore()
		key := tr.keySpyOf(name)
		tr.after = func() {
			switch entries, ledger := core.HasLedger(logs, key); {
			case !entries:
				count["of an empty log"]++
			case ledger:
				count["of a log with a ledger"]++
			default:
				count["of a log without a ledger"]++
			}
		}
		tr.plain = tr.pair(logs, tr.limits, core.WithName(name))
		tr.others(logs, name)
		ids := uint64(1 << 40)
		for range 1000 {
			if tr.step(); tr.alike || tr.r.IntN(60) > 0 {
				continue
			}
			m := store.MergeRequest{Key: key, Keep: tr.keep}
			for range tr.r.IntN(4) {
				ids++
				age := time.Duration(tr.r.Int64N(int64(tr.keep/time.Microsecond))) * time.Microsecond
				m.Entries = append(m.Entries, store.Entry{ID: ids, Age: age, Cost: 1 + tr.r.IntN(3)})
			}
			for range 1 + tr.r.IntN(2) {
				if err := errors.Join(logs.Merge(tr.t.Context(), m), tr.oracle.Merge(tr.t.Context(), m)); err != nil {
					tr.t.Fatal(err)
				}
			}
			tr.ask(tr.plain, peekN, 1)
		}
		if logs.Shared() > 0 {
			tr.t.Error("the key has shared a log")
		}
	})
	wantPaths(t, count, map[string]int{
		"of an empty log": 400, "of a log with a ledger": 20_000, "of a log without a ledger": 20_000,
	})
}

// A key in a shared log that no other key uses is decided as if the log were its own, except that its denials are not
// counted.
func TestSharedLogAgainstOracle(t *testing.T) {
	count := map[string]int{}
	runTraces(t, 50_000, func(tr *limiterTrace, name string) {
		logs := core.NewMemoryStore(core.WithMaxKeys(1))
		year := core.Limit{Quota: 1, Window: core.MaxWindow}
		occupant := newLimiter(tr.t, year, core.WithStore(logs), core.WithName("occupant"))
		if d, err := occupant.Allow(tr.t.Context(), "k"); err != nil || !d.Allowed {
			tr.t.Fatal(d, err)
		}
		tr.plain = tr.pair(logs, tr.limits, core.WithName(name))
		tr.others(logs, name)
		tr.all[0].want, tr.all[2].want = tr.plain.want, tr.all[1].want // denials are not counted
		tr.keeps = true                                                // Reset does nothing
		tr.loose = func(got, want core.Decision, _ int) bool {
			want.Remaining, want.ResetAfter = got.Remaining, got.ResetAfter // as if the denial had been counted
			return !want.Allowed && reflect.DeepEqual(shown(got), shown(want))
		}
		before := logs.Shared()
		tr.after = func() {
			if now := logs.Shared(); now > before {
				before = now
				count["of a shared log"]++
			} else {
				count["of no log: a peek"]++
			}
		}
		for range 1000 {
			switch k := tr.r.IntN(400); {
			case k > 0:
				tr.step()
			default: // entries of another log, all of age 0: older ones would become younger
				key := tr.keySpyOf(name)
				entries := []store.Entry{{ID: 1<<31 + uint64(tr.answers), Cost: 2}}
				m := store.MergeRequest{Key: key, Keep: tr.keep, Entries: entries}
				for range 2 {
					err := errors.Join(logs.Merge(tr.t.Context(), m), tr.oracle.Merge(tr.t.Context(), m))
					if err != nil {
						tr.t.Fatal(err)
					}
				}
			}
		}
	})
	wantPaths(t, count, map[string]int{"of a shared log": 20_000})
}

// A denial from the deny cache is one that the store would give, and its wait ends no later. If nothing was recorded
// since, it equals the store's in all exported fields except Used.
func TestDenyCacheAgainstOracle(t *testing.T) {
	count := map[string]int{}
	runTraces(t, 30_000, func(tr *limiterTrace, name string) {
		fake := new(coretest.FakeStore)
		tr.more = append(tr.more, fake.Advance)
		takes := 0
		logs := &takeSpy{Full: fake, seen: func(store.Take) { takes++ }}
		longest := []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, time.Minute}[tr.r.IntN(4)]
		tr.plain = tr.pair(logs, tr.limits, core.WithName(name))
		tr.plain.got = newLimiter(tr.t, tr.limits,
			core.WithName(name), core.WithStore(logs), core.WithDenyCache(longest))
		tr.all = append(tr.all, tr.plain)
		before, denied := 0, 0 // denied is the cost of the denial in the cache, or 0 where something was recorded since
		tr.loose = func(got, want core.Decision, cost int) bool {
			denials := takes <= before && !got.Allowed && !want.Allowed
			if !denials || got.RetryAfter <= 0 || got.RetryAfter > want.RetryAfter {
				return false
			}
			if want.Used = got.Used; cost == denied {
				return reflect.DeepEqual(shown(got), shown(want))
			}
			return true
		}
		tr.after = func() {
			d := tr.made[len(tr.made)-1].want
			switch {
			case takes == before:
				count["from the deny cache"]++
				if tr.lastCost == denied {
					count["from the deny cache, compared in full"]++
				}
			case d.Allowed:
				denied = 0
				count["from the store"]++
			default:
				denied = tr.lastCost
				count["from the store"]++
			}
			before = takes
		}
		for range 1000 {
			tr.step()
		}
		cost := 1 + tr.r.IntN(2)
		for range 200 { // the same cost again and again, while time goes on
			tr.advance(time.Duration(tr.r.Int64N(int64(longest / 8))).Truncate(time.Microsecond))
			tr.ask(tr.plain, (*core.Limiter).AllowN, cost)
		}
	})
	wantPaths(t, count, map[string]int{
		"from the store": 5000, "from the deny cache": 2500, "from the deny cache, compared in full": 1500,
	})
}

// wayOfAsking tells whether the limiter asks its store directly, or through the breaker, as it does while something has
// failed.
func wayOfAsking() string {
	var calls [64]uintptr
	frames := runtime.CallersFrames(calls[:runtime.Callers(1, calls[:])])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "(*Guard).takeGuarded") || strings.Contains(f.Function, "(*Guard).probe") {
			return "asked through the breaker"
		}
		if !more {
			return "asked directly"
		}
	}
}

// A store that fails now and then gives the same answers as one that never fails, to any limiter.
func TestFailingStoreAgainstOracle(t *testing.T) {
	count := map[string]int{}
	runTraces(t, 30_000, func(tr *limiterTrace, name string) {
		fake := new(coretest.FakeStore)
		tr.more = append(tr.more, fake.Advance)
		way := ""
		logs := &takeSpy{Full: fake, seen: func(store.Take) { way = wayOfAsking() }}
		tr.got = []core.Option{core.WithFailure(core.FailClosed), core.WithDenyCache(0)}
		tr.plain = tr.pair(logs, tr.limits, core.WithName(name))
		tr.others(logs, name)
		tr.all = tr.all[:2] // the oracle does not learn the largest chosen quota while the store fails
		tr.after = func() {
			count[way]++
			way = "not asked"
		}
		for range 1000 {
			switch tr.r.IntN(12) {
			case 0:
				fake.Fail(errors.New("boom"))
			case 1, 2, 3:
				fake.Fail(nil)
			}
			tr.step()
		}
	})
	wantPaths(t, count, map[string]int{"asked directly": 5000, "asked through the breaker": 1500})
	if n := count["not asked"]; n > 0 {
		t.Errorf("%d answers without the store", n)
	}
}

// failingNow is a store that does not answer while it is away.
type failingNow struct {
	store.Full

	away atomic.Bool
}

var errAway = errors.New("the store is away")

func (s *failingNow) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if s.away.Load() {
		return errAway
	}
	return s.Full.Take(ctx, takes, answers)
}

func (s *failingNow) Settle(ctx context.Context, t store.Settlement) error {
	if s.away.Load() {
		return errAway
	}
	return s.Full.Settle(ctx, t)
}

func (s *failingNow) Merge(ctx context.Context, m store.MergeRequest) error {
	if s.away.Load() {
		return errAway
	}
	return s.Full.Merge(ctx, m)
}

// An outage that begins while a log is empty does not change decisions: the process makes them and replays them later.
func TestOutageAgainstOracle(t *testing.T) {
	count := map[string]int{}
	runTraces(t, 100_000, func(tr *limiterTrace, name string) {
		// It is on the bubble's clock, because a goroutine replays what was recorded here at any time.
		away := &failingNow{Full: core.NewMemoryStore()}
		way := "made without the store"
		logs := &takeSpy{Full: away, seen: func(store.Take) { way = wayOfAsking() }}
		tr.got = []core.Option{core.WithDenyCache(0)}
		tr.noLog, tr.keeps = true, true // what is listed is the store's, and a reset that fails there is one here
		tr.plain = tr.pair(logs, tr.limits, core.WithName(name))
		defer tr.plain.got.Close()
		// While entries are being replayed, an answer may report them twice, but does not decide by that. As soon as
		// they are in the store, it is exact again.
		tr.loose = func(got, want core.Decision, _ int) bool {
			if !want.Allowed || !got.Allowed || got.Granted != want.Granted || got.Degraded || got.Used < want.Used ||
				got.Remaining > want.Remaining {
				return false
			}
			count["told while it was replayed"]++
			synctest.Wait()
			got, err := tr.plain.got.Peek(tr.t.Context(), tr.key)
			if err != nil {
				tr.t.Fatal(err)
			}
			want, err = tr.plain.want.Peek(tr.t.Context(), tr.key)
			if err != nil {
				tr.t.Fatal(err)
			}
			return !got.Degraded && reflect.DeepEqual(shown(got), shown(want))
		}
		tr.after = func() {
			if d := tr.made[len(tr.made)-1].got; d.Degraded {
				way = "made without the store"
			}
			count[way]++
		}
		for n := range 12 {
			tr.key, tr.made = fmt.Sprint("k", n), nil
			away.away.Store(true)
			for range 1 + tr.r.IntN(60) {
				tr.step()
			}
			away.away.Store(false)
			for range 60 {
				tr.step()
			}
		}
	})
	wantPaths(t, count, map[string]int{
		"asked directly": 2500, "asked through the breaker": 100, "made without the store": 2500,
	})
}
