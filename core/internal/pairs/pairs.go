// Package pairs switches on each pair of what a limiter can do, for tests of stores: features that are right alone must
// be right together.
package pairs

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/store"
)

// Config is where the pairs are tried.
type Config struct {
	// Store returns an empty store, on the clock of the bubble in which all pairs are tried. If it is nil, the limiters
	// keep their logs themselves.
	Store func(t *testing.T) store.Store

	// Cut cuts the latest store off, or connects it again. If it is nil, there are no outages.
	Cut func(cut bool)

	Streams  bool // the store has one limit of cost 1
	Requests int  // for each pair
}

// ability is something that users switch on. A limiter with two of them has the limit base and what both add.
type ability struct {
	limits  core.Limits
	opts    []core.Option
	choose  bool // the limits are those of LimitBy
	far     bool // it needs a store outside the process
	prepare func(*testing.T, *core.Limiter)

	// streams is what a store advises that has one limit of cost 1 and refuses the ability, alone or in any pair. If
	// requests choose their limits, it does so when one has come.
	streams string
}

func abilities() map[string]ability {
	org := core.By(func(r *http.Request) (string, error) { return r.Header.Get("Org"), nil })
	forThree := func(t *testing.T, l *core.Limiter) {
		o := core.Override{Limits: core.Limits{core.PerMinute(3)}, Until: time.Now().Add(300 * 24 * time.Hour)}
		if err := l.Override(t.Context(), "ann", o); err != nil {
			t.Fatal(err)
		}
	}
	failed := func(_ *http.Request, status int) bool { return status >= 500 }
	return map[string]ability{
		"Limit.Of": {
			limits: core.Limits{core.PerMinute(30).Of("tokens")},
			opts:   []core.Option{core.WithCostOf("tokens", func(*http.Request) int { return 4 })},

			streams: aLimiterEach,
		},
		"Limit.By":         {limits: core.Limits{core.PerMinute(9).By(org)}, streams: aLimiterEach},
		"InFlight":         {limits: core.Limits{core.InFlight(2)}, streams: aLimiterEach},
		"PerMonth":         {limits: core.Limits{core.PerMonth(500)}, streams: aLimiterEach},
		"SlidingCounter":   {limits: core.Limits{core.PerHour(400).With(core.SlidingCounter)}, streams: aLimiterEach},
		"TokenBucket":      {limits: core.Limits{core.TokenBucket(core.PerSecond(1), 50)}, streams: aLimiterEach},
		"LimitBy":          {choose: true},
		"WithOverrides":    {opts: []core.Option{core.WithOverrides()}, prepare: forThree},
		"WithLease":        {opts: []core.Option{core.WithLease(lease)}, far: true, streams: noLease},
		"WithBan":          {opts: []core.Option{core.WithBan(4, time.Minute, time.Minute)}, streams: otherStore},
		"WithRefund":       {opts: []core.Option{core.WithRefund(failed)}},
		"WithCountDenied":  {opts: []core.Option{core.WithCountDenied()}},
		"WithShadow":       {opts: []core.Option{core.WithShadow(core.PerMinute(2))}},
		"WithSecret":       {opts: []core.Option{core.WithSecret([]byte("0123456789abcdef"))}},
		"FailClosed":       {opts: []core.Option{core.WithFailure(core.FailClosed)}, far: true},
		"WithSpread":       {opts: []core.Option{core.WithSpread(0)}},
		"WithDenyCache(0)": {opts: []core.Option{core.WithDenyCache(0)}, far: true},
	}
}

// base is what the limit of that name has admitted of a user, as this test has counted.
type base struct {
	entries []admitted
	quota   int
	window  time.Duration
}

type admitted struct {
	at    time.Time
	units *int
}

func (b *base) add(units int) *int {
	b.entries = append(b.entries, admitted{time.Now(), &units})
	return &units
}

func (b *base) used() (n int) {
	for _, e := range b.entries {
		if time.Since(e.at) < b.window {
			n += *e.units
		}
	}
	return n
}

// trim forgets the oldest denials that were counted, so that the quota stays.
func (b *base) trim() {
	b.entries = slices.DeleteFunc(b.entries, func(e admitted) bool { return time.Since(e.at) >= b.window })
	for len(b.entries) > 0 && b.used()-*b.entries[0].units >= b.quota {
		b.entries = b.entries[1:]
	}
}

// refused are the pairs that New refuses, with what it advises.
var refused = map[string]string{
	"WithCountDenied and WithSpread": "leave one of them out",
}

const (
	otherStore   = "use a sliding log, or another store"
	noLease      = "leave the option out, or use a store of package redisstore"
	aLimiterEach = "make a limiter for each of them, or use another store, such as one of package redisstore"
)

// Table is for docs: what is refused, and the remedy.
func Table() string {
	var b strings.Builder
	b.WriteString("| refused | remedy |\n|---|---|\n")
	row := func(what, remedy string) { fmt.Fprintf(&b, "| %s | %s |\n", what, remedy) }
	for _, pair := range slices.Sorted(maps.Keys(refused)) {
		row(pair, refused[pair])
	}
	byRemedy := map[string][]string{}
	all := abilities()
	for _, ability := range slices.Sorted(maps.Keys(all)) {
		if remedy := all[ability].streams; remedy != "" {
			byRemedy[remedy] = append(byRemedy[remedy], ability)
		}
	}
	for _, remedy := range slices.Sorted(maps.Keys(byRemedy)) {
		row(strings.Join(byRemedy[remedy], ", ")+" on Redis Streams", remedy)
	}
	return b.String()
}

// remedies returns what New advises if it refuses the pair.
func (w *world) remedies(a, b ability) (all []string) {
	if remedy := refused[w.name()]; remedy != "" {
		all = append(all, remedy)
	}
	for _, remedy := range []string{a.streams, b.streams} {
		if w.Streams && remedy != "" {
			all = append(all, remedy)
		}
	}
	return all
}

func (w *world) name() string { return strings.Join(w.pair, " and ") }

// Run has each pair of abilities work together, or New tell why it does not. Whatever else is on, the limit that every
// limiter here has counts what was admitted by it, settled, undone, recorded and reset, and nothing else.
func Run(t *testing.T, c Config) {
	t.Helper()
	all := abilities()
	names := slices.Sorted(maps.Keys(all))
	seed := rand.Uint64()
	tried := 0
	for range 2 { // which empties pools, since what another bubble has left in them must not be used in this one
		runtime.GC()
	}
	synctest.Test(t, func(t *testing.T) { // one bubble for all, since clients of servers share what they wait for
		for i, one := range names {
			for _, other := range names[i+1:] {
				if c.Store == nil && (all[one].far || all[other].far) {
					continue
				}
				r := rand.New(rand.NewPCG(seed, uint64(tried)))
				w := &world{Config: c, t: t, r: r, pair: []string{one, other}}
				w.run(all[one], all[other])
				tried++
			}
		}
	})
	t.Logf("seed %#x: %d pairs", seed, tried)
}

// world is a limiter with a pair of abilities.
type world struct {
	Config

	t       *testing.T
	r       *rand.Rand
	pair    []string
	limiter *core.Limiter
	users   map[string]*base
	told    []string
}

func (w *world) is(name string) bool { return slices.Contains(w.pair, name) }

const lease = 20 * time.Millisecond

// tellf keeps what is printed if something is wrong later.
func (w *world) tellf(format string, args ...any) {
	text := time.Now().Format("15:04:05.000000 ") + fmt.Sprintf(format, args...)
	w.told = append(w.told[max(0, len(w.told)-30):], text)
}

// fatalf ends the test.
func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf(strings.Join(w.told, "\n")+"\n"+w.name()+": "+format, args...)
}

func (w *world) run(a, b ability) {
	limits := slices.Concat(core.Limits{core.Limit{Name: "base", Quota: 5, Window: time.Minute}}, a.limits, b.limits)
	policy := core.Policy(limits)
	if a.choose || b.choose {
		policy = core.LimitBy(func(context.Context) core.Limits { return limits })
	}
	user := core.By(func(r *http.Request) (string, error) { return r.Header.Get("User"), nil })
	opts := slices.Concat([]core.Option{core.WithName("pairs")}, a.opts, b.opts)
	if w.Store != nil {
		opts = append(opts, core.WithStore(w.Store(w.t)))
	}
	l, err := core.New(policy, user, opts...)
	if want := w.remedies(a, b); want != nil {
		if err == nil {
			defer l.Close()
			_, err = l.Check(newRequest("ann"))
		}
		for _, remedy := range want {
			if err == nil || !strings.Contains(fmt.Sprint(err), remedy) {
				w.fatalf("New: %v, want the remedy %q", err, remedy)
			}
		}
		return
	}
	if err != nil {
		w.fatalf("New: %v", err)
	}
	defer time.Sleep(time.Minute) // until what a store does in the background has ended
	defer l.Close()
	w.limiter = l
	for _, prepare := range []func(*testing.T, *core.Limiter){a.prepare, b.prepare} {
		if prepare != nil {
			prepare(w.t, l)
		}
	}
	w.users = map[string]*base{}
	for _, name := range []string{"ann", "bob"} {
		u := &base{quota: 5, window: time.Minute}
		if w.is("WithOverrides") && name == "ann" {
			u.quota = 3
		}
		if w.is("WithLease") {
			u.window += lease
		}
		w.users[name] = u
	}
	for range w.Requests {
		w.step()
	}
}

func (w *world) step() {
	if w.r.IntN(3) == 0 {
		time.Sleep(time.Duration(1+w.r.IntN(9)) * 3 * time.Second)
	}
	name := []string{"ann", "bob"}[w.r.IntN(2)]
	u := w.users[name]
	switch n := w.r.IntN(20); {
	case n == 0 && !w.is("Limit.By"): // whose key is that of a request
		units := 2
		if w.Streams {
			units = 1
		}
		if _, err := w.limiter.Record(w.t.Context(), name, units); err != nil {
			w.fatalf("Record: %v", err)
		}
		u.add(units)
		w.tellf("%s: recorded %d", name, units)
	case n == 1:
		w.tellf("%s: reset", name)
		if err := w.limiter.Reset(w.t.Context(), name); err != nil {
			w.fatalf("Reset: %v", err)
		}
		u.entries = slices.DeleteFunc(u.entries, func(e admitted) bool {
			return !w.is("WithLease") || time.Since(e.at) >= lease
		})
	case n == 2 && w.Cut != nil && !w.is("WithCountDenied"): // what an outage denies is counted in this process only
		w.outage()
	default:
		w.request(u, name)
	}
}

// outage has some requests come while the store does not answer. What was admitted is in the store soon afterwards.
func (w *world) outage() {
	w.Cut(true)
	w.tellf("cut off")
	for range 1 + w.r.IntN(12) {
		name := []string{"ann", "bob"}[w.r.IntN(2)]
		d, err := w.limiter.Check(newRequest(name))
		w.tellf("%s: %v, %v", name, d, err)
		switch {
		case err != nil && !w.is("FailClosed"):
			w.fatalf("Check in an outage: %v", err)
		case d.Allowed && w.is("FailClosed") && !w.is("WithLease"):
			w.fatalf("admitted in an outage: %v", d)
		case d.Allowed:
			units := w.users[name].add(1)
			d.Serve(func() int { return http.StatusOK })
			w.settle(d, units)
		}
		time.Sleep(time.Duration(w.r.IntN(100)) * time.Millisecond)
	}
	w.Cut(false)
	w.tellf("connected")
	time.Sleep(5 * time.Second)
}

// request makes a request, and with it what handlers do.
func (w *world) request(u *base, name string) {
	before := u.used()
	d, err := w.limiter.Check(newRequest(name))
	if err != nil {
		w.fatalf("Check: %v", err)
	}
	w.tellf("%s: %v", name, d)
	if w.compare(u, before, d, name); d.Allowed {
		w.serve(u, d, name)
	}
}

// compare compares a decision with what the limit base has admitted before.
func (w *world) compare(u *base, before int, d core.Decision, name string) {
	denies := false
	for _, state := range d.Limits() {
		if state.Name == "base" || state.Name == "3-per-minute" {
			denies = state.Denies
			if state.Used != before || state.Quota != u.quota {
				w.fatalf("%s: %d of %d used, want %d of %d: %v", name, state.Used, state.Quota, before, u.quota, d)
			}
		}
	}
	switch {
	case d.Allowed && before >= u.quota:
		w.fatalf("%s: admitted with %d of %d used", name, before, u.quota)
	case d.Allowed:
	case d.Banned != (len(d.Limits()) == 0):
		w.fatalf("%s: %v by no limit", name, d)
	case denies && before < u.quota:
		w.fatalf("%s: denied with %d of %d used", name, before, u.quota)
	case denies && w.is("WithCountDenied"):
		u.add(1)
		u.trim()
	}
}

// serve is what becomes of an admitted request.
func (w *world) serve(u *base, d core.Decision, name string) {
	units, status := u.add(1), []int{200, 500}[w.r.IntN(2)]
	d.Serve(func() int {
		if w.r.IntN(3) == 0 {
			before := u.used()
			next, err := d.Again(w.t.Context())
			if err != nil {
				w.fatalf("Again: %v", err)
			}
			w.tellf("%s: again %v", name, next)
			if w.compare(u, before, next, name); next.Allowed {
				w.settle(next, u.add(1))
			}
		}
		return status
	})
	if status == 500 && w.is("WithRefund") {
		*units = 0
		return
	}
	w.settle(d, units)
}

// settle changes what an admitted request has cost, perhaps.
func (w *world) settle(d core.Decision, units *int) {
	var err error
	switch n := w.r.IntN(6); {
	case n == 0:
		*units, err = 0, d.Undo(w.t.Context())
	case n <= 2 && !w.Streams:
		*units, err = n, d.Settle(w.t.Context(), n)
	}
	w.tellf("it costs %d", *units)
	if err != nil {
		w.fatalf("Undo or Settle: %v", err)
	}
}

// request is one of net/http.
type request struct{ *http.Request }

func newRequest(user string) request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	r.Header.Set("User", user)
	r.Header.Set("Org", "acme")
	return request{r}
}

func (r request) Peer() adapter.Peer          { return adapter.PeerOf(r.Request) }
func (r request) Header(name string) []string { return r.Request.Header.Values(name) }
func (r request) Value(key any) any           { return r.Context().Value(key) }
func (r request) Native() any                 { return r.Request }
