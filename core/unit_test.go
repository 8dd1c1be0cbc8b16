package core_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
	"github.com/sashlimit/sash/nethttp"
)

// allowCosts asks, and compares whether it is allowed.
func allowCosts(t *testing.T, l *core.Limiter, costs core.Costs, allowed bool) core.Decision {
	t.Helper()
	d, err := l.AllowCosts(t.Context(), "k", costs)
	if err != nil || d.Allowed != allowed {
		t.Errorf("AllowCosts(%v): %v, %v; want allowed=%v", costs, d, err, allowed)
	}
	return d
}

// unitsUsed returns what each limit has used after a request.
func unitsUsed(d core.Decision) map[string]int {
	used := make(map[string]int)
	for _, s := range d.Limits() {
		used[s.Name+" "+s.Unit] = s.Quota - s.Remaining
	}
	return used
}

func TestUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := newLimiter(
			t,
			core.Limits{core.PerMinute(3), core.PerMinute(100).Of("tokens"), core.PerHour(150).Of("tokens")},
		)
		d := allowCosts(t, l, core.Costs{"tokens": 60}, true)
		want := map[string]int{
			"3-per-minute requests":        1,
			"100-tokens-per-minute tokens": 60,
			"150-tokens-per-hour tokens":   60,
		}
		if got := unitsUsed(d); !reflect.DeepEqual(got, want) {
			t.Errorf("used %v, want %v", got, want)
		}
		if d.Granted != 1 || d.Remaining != 40 { // the smallest share
			t.Errorf("%v, want 1 granted and 40 remaining", d)
		}
		time.Sleep(time.Second)
		denied := allowCosts(t, l, core.Costs{"tokens": 41}, false)
		if fmt.Sprint(denied.Violated) != "[100-tokens-per-minute]" || denied.RetryAfter != 59*time.Second {
			t.Errorf("%v, want a denial by tokens for 59s", denied)
		}
		fields := http.Header{}
		denied.SetHeaders(fields)
		if got, want := fields.Get("RateLimit-Policy"), `"3-per-minute";q=3;w=60, `+
			`"100-tokens-per-minute";q=100;qu="tokens";w=60, `+
			`"150-tokens-per-hour";q=150;qu="tokens";w=3600`; got != want {
			t.Errorf("RateLimit-Policy: %s, want %s", got, want)
		}
		if got, want := fields.Get("RateLimit"), `"100-tokens-per-minute";r=40;t=59`; got != want {
			t.Errorf("RateLimit: %s, want %s", got, want)
		}
		d = allowCosts(t, l, nil, true) // the denial took no request
		if got := unitsUsed(d); !reflect.DeepEqual(got, map[string]int{"3-per-minute requests": 2}) {
			t.Errorf("used %v, want 2 requests", got)
		}
		d, err := l.Peek(ctx, "k")
		want["3-per-minute requests"] = 2
		if got := unitsUsed(d); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("used %v, %v; want %v", got, err, want)
		}
		d = allowCosts(t, l, core.Costs{"tokens": 40, "requests": 0}, true)
		if d.Granted != 0 || len(d.Limits()) != 2 {
			t.Errorf("%v, want nothing granted, by the limits of tokens", d)
		}
		allowCosts(t, l, core.Costs{"tokens": 0}, true)
		allowCosts(t, l, core.Costs{"tokens": 0}, false)
		allowCosts(t, l, core.Costs{"tokens": 0, "requests": 0}, true) // costs nothing
		if d, err := l.AllowCosts(ctx, "k", core.Costs{"tokens": 101, "requests": 0}); !errors.Is(
			err,
			core.ErrCostExceedsQuota,
		) ||
			!d.Never() ||
			d.RetryAfter != 0 {
			t.Errorf("%v, %v; want a cost above the quota", d, err)
		}
		if err := l.Reset(ctx, "k"); err != nil {
			t.Error(err)
		}
		allowCosts(t, l, core.Costs{"tokens": 100}, true)
	})
}

// A denial that is answered from memory lists only limits of which the numbers are known.
func TestUnitsOfADenialFromMemory(t *testing.T) {
	l := newLimiter(t, core.Limits{core.PerMinute(9), core.PerMinute(10).Of("tokens"), core.PerHour(20).Of("tokens")},
		core.WithStore(struct{ store.Full }{core.NewMemoryStore()}))
	allowCosts(t, l, core.Costs{"tokens": 10}, true)
	want := map[string]int{
		"9-per-minute requests": 1, "10-tokens-per-minute tokens": 10, "20-tokens-per-hour tokens": 10,
	}
	for range 2 {
		if got := unitsUsed(allowCosts(t, l, core.Costs{"tokens": 1}, false)); !reflect.DeepEqual(got, want) {
			t.Errorf("used %v, want %v", got, want)
		}
		want = map[string]int{"10-tokens-per-minute tokens": 10} // the next one does not ask the store
	}
}

// Settling changes the units that are named, and records those that the decision has taken nothing of when it was made.
// Shares of large quotas are compared exactly, also where an int has 32 bits.
func TestSharesOfLargeQuotas(t *testing.T) {
	l := newLimiter(t, core.Limits{core.PerMinute(10_000_000).Of("tokens"), core.PerMinute(9_000_000).Of("bytes")})
	d := allowCosts(t, l, core.Costs{"tokens": 5_000_000, "bytes": 2_000_000}, true)
	if d.Remaining != 5_000_000 {
		t.Errorf("%d remaining, want those of tokens, of which a smaller share is left", d.Remaining)
	}
}

func TestSettleCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := newLimiter(
			t,
			core.Limits{core.PerMinute(9), core.PerMinute(100).Of("tokens"), core.PerMinute(50).Of("images")},
		)
		state := func(requests, tokens, images int) {
			t.Helper()
			d, err := l.Peek(ctx, "k")
			want := map[string]int{
				"9-per-minute requests": requests, "100-tokens-per-minute tokens": tokens,
				"50-images-per-minute images": images,
			}
			if got := unitsUsed(d); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("used %v, %v; want %v", got, err, want)
			}
		}
		settle := func(d core.Decision, costs core.Costs) {
			t.Helper()
			if err := d.SettleCosts(ctx, costs); err != nil {
				t.Error(err)
			}
		}
		d := allowCosts(t, l, core.Costs{"tokens": 60}, true)
		settle(d, core.Costs{"tokens": 30})
		state(1, 30, 0)
		time.Sleep(10 * time.Second)
		settle(d, core.Costs{"images": 5})
		state(1, 30, 5)
		settle(d, core.Costs{"images": 7, "requests": 2})
		state(2, 30, 7)
		if err := d.Settle(ctx, 3); err != nil {
			t.Error(err)
		}
		state(3, 30, 7)
		time.Sleep(50*time.Second - time.Microsecond)
		state(3, 30, 7)
		time.Sleep(time.Microsecond) // all of it is as old as the decision
		state(0, 0, 0)
		d = allowCosts(t, l, core.Costs{"tokens": 60}, true)
		settle(d, core.Costs{"images": 7})
		if err := d.Undo(ctx); err != nil {
			t.Error(err)
		}
		state(0, 0, 0)
		denied, err := l.AllowCosts(ctx, "k", core.Costs{"tokens": 101})
		if !errors.Is(err, core.ErrCostExceedsQuota) {
			t.Error(err)
		}
		settle(denied, core.Costs{"images": 7})
		state(0, 0, 0)
		for text, err := range map[string]error{
			"SettleCosts(characters)": d.SettleCosts(ctx, core.Costs{"characters": 1}),
			"SettleCosts(images: -1)": d.SettleCosts(ctx, core.Costs{"images": -1}),
		} {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v, want %s", err, text)
			}
		}
	})
}

// Log lists the log of the only unit also where LimitBy has chosen it.
func TestLogOfAChosenUnit(t *testing.T) {
	chosen := newLimiter(t, core.LimitBy(func(context.Context) core.Limits {
		return core.Limits{core.PerMinute(100).Of("tokens")}
	}))
	if _, err := chosen.AllowN(t.Context(), "k", 60); err != nil {
		t.Error(err)
	}
	entries, err := chosen.Log(t.Context(), "k")
	if err != nil || len(entries) != 1 || entries[0].Cost != 60 {
		t.Errorf("%v, %v; want the entry of tokens that were chosen", entries, err)
	}
}

// Costs without a name are of requests, or of the only other unit.
func TestCostsWithoutUnit(t *testing.T) {
	ctx := t.Context()
	tokens := newLimiter(t, core.PerMinute(100).Of("tokens"), core.WithName("tokens"))
	if d, err := tokens.AllowN(ctx, "k", 60); err != nil || !d.Allowed || d.Granted != 60 || d.Remaining != 40 {
		t.Errorf("%v, %v; want 40 tokens left", d, err)
	}
	if d := allowCosts(t, tokens, core.Costs{"tokens": 30}, true); d.Granted != 30 || d.Remaining != 10 {
		t.Errorf("%v, want 10 tokens left", d)
	}
	if d := allowCosts(t, tokens, nil, true); d.Remaining != 0 || d.Granted != 0 {
		t.Errorf("%v, want nothing taken", d)
	}
	entries, err := tokens.Log(ctx, "k")
	if err != nil || len(entries) != 2 || entries[0].Cost != 60 {
		t.Errorf("%v, %v; want the entries of tokens", entries, err)
	}
	if d, err := tokens.AllowAtMost(ctx, "k", 60); err != nil || d.Granted != 10 {
		t.Errorf("%v, %v; want 10 tokens granted", d, err)
	}
	if err := tokens.Reset(ctx, "k"); err != nil {
		t.Error(err)
	}
	if d, err := tokens.WaitN(ctx, "k", 100); err != nil || !d.Allowed {
		t.Errorf("%v, %v", d, err)
	}

	both := newLimiter(t, core.Limits{core.PerMinute(100).Of("tokens"), core.PerMinute(9)})
	if d, err := both.AllowN(ctx, "k", 5); err != nil || len(d.Limits()) != 1 || d.Limits()[0].Unit != "requests" {
		t.Errorf("%v, %v; want 5 requests", d, err)
	}
	if d, err := both.AllowAtMost(ctx, "k", 60); err != nil || d.Granted != 4 {
		t.Errorf("%v, %v; want 4 requests granted", d, err)
	}
	if d, err := both.Record(ctx, "k", 60); err != nil || d.Limits()[0].Used != 9 {
		t.Errorf("%v, %v; want a record of requests", d, err)
	}

	several := newLimiter(
		t,
		core.Limits{core.PerMinute(100).Of("tokens"), core.PerMinute(9).Of("images"), core.InFlight(3)},
	)
	calls := map[string]func() (core.Decision, error){
		"Allow":       func() (core.Decision, error) { return several.Allow(ctx, "k") },
		"AllowN":      func() (core.Decision, error) { return several.AllowN(ctx, "k", 2) },
		"AllowAtMost": func() (core.Decision, error) { return several.AllowAtMost(ctx, "k", 2) },
		"Record":      func() (core.Decision, error) { return several.Record(ctx, "k", 2) },
		"Wait":        func() (core.Decision, error) { return several.Wait(ctx, "k") },
		"Settle": func() (core.Decision, error) {
			d := allowCosts(t, several, core.Costs{"tokens": 60}, true)
			defer d.Release(ctx)
			return d, d.Settle(ctx, 5)
		},
	}
	for name, call := range calls {
		if _, err := call(); !errors.As(err, new(*core.ConfigError)) ||
			!strings.Contains(err.Error(), "tokens, images") {
			t.Errorf("%s: %v, want an error that names the units", name, err)
		}
	}
}

// A limit of another unit is added to a policy with a name: the log of requests stays.
func TestUnitsKeepTheLogOfRequests(t *testing.T) {
	logs := core.NewMemoryStore()
	before := newLimiter(t, core.PerMinute(5), core.WithName("api"), core.WithStore(logs))
	if _, err := before.AllowN(t.Context(), "k", 3); err != nil {
		t.Error(err)
	}
	after := newLimiter(
		t,
		core.Limits{core.PerMinute(5), core.PerMinute(50).Of("tokens")},
		core.WithName("api"),
		core.WithStore(logs),
	)
	if d := allowCosts(t, after, core.Costs{"tokens": 5}, true); d.Limits()[0].Used != 3 {
		t.Errorf("%v, want 3 requests used before", d.Limits())
	}
}

func TestUnitsInMiddleware(t *testing.T) {
	limits := core.Limits{
		core.PerMinute(5),
		core.PerMinute(50).Of("tokens"),
		core.PerMinute(100).Of("bytes").By(core.Global()),
	}
	size := func(*http.Request) int { return 30 }
	tokens := func(r *http.Request) int { return len(r.URL.Query().Get("q")) }
	server := nethttp.New(limits, core.ByIP(), core.WithCostOf("tokens", tokens), core.WithCostOf("bytes", size))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	get := func(q string) (int, string) {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?q="+q, nil))
		return w.Code, w.Header().Get("RateLimit")
	}
	for _, step := range []struct {
		q      string
		status int
		fields string
	}{
		{
			strings.Repeat("x", 20), 200,
			`"5-per-minute";r=4;t=60, "50-tokens-per-minute";r=30;t=60, "100-bytes-per-minute";r=70;t=60`,
		},
		{"", 200, `"5-per-minute";r=3;t=60, "100-bytes-per-minute";r=40;t=60`},
		{strings.Repeat("x", 31), 429, `"50-tokens-per-minute";r=30;t=60`},
		{strings.Repeat("x", 51), 429, `"50-tokens-per-minute";r=30`},
		{"x", 200, `"5-per-minute";r=2;t=60, "50-tokens-per-minute";r=29;t=60, "100-bytes-per-minute";r=10;t=60`},
		{"x", 429, `"100-bytes-per-minute";r=10;t=60`},
	} {
		if status, fields := get(step.q); status != step.status || fields != step.fields {
			t.Errorf("%q: %d %s, want %d %s", step.q, status, fields, step.status, step.fields)
		}
	}
	double := nethttp.New(core.PerMinute(5), core.ByIP(), core.WithCostOf("requests", func(r *http.Request) int {
		return len(r.URL.Query().Get("q"))
	}))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, step := range []struct {
		q      string
		status int
	}{{"xxx", 200}, {"xxx", 429}, {"", 200}, {"xx", 200}, {"x", 429}} {
		w := httptest.NewRecorder()
		double.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?q="+step.q, nil))
		if w.Code != step.status {
			t.Errorf("a cost of %d requests: %d, want %d", len(step.q), w.Code, step.status)
		}
	}
	wrong := map[string]struct {
		policy core.Policy
		opts   []core.Option
	}{
		"WithCostOf(tokens): no function returns": {limits, []core.Option{core.WithCostOf("bytes", size)}},
		"WithCostOf(characters): no limit counts": {
			limits,
			[]core.Option{core.WithCostOf("characters", size)},
		},
		`WithCostOf("Tokens"): the unit is not valid`: {limits, []core.Option{core.WithCostOf("Tokens", size)}},
		"WithCostOf(tokens): WithCost is of the same unit": {
			core.PerMinute(5).Of("tokens"), []core.Option{core.WithCostOf("tokens", size), core.WithCost(size)},
		},
		"WithCostOf(requests): WithCost is of the same unit": {
			core.PerMinute(5), []core.Option{core.WithCostOf("requests", size), core.WithCost(size)},
		},
		"WithCost(without a unit): the limits count several": {
			core.Limits{core.PerMinute(5).Of("a"), core.PerMinute(5).Of("b")}, []core.Option{core.WithCost(size)},
		},
		`the unit "T" is not valid`:     {core.PerMinute(5).Of("T"), nil},
		`the unit "" is not valid`:      {core.PerMinute(5).Of(""), nil},
		"InFlight counts requests only": {core.InFlight(5).Of("tokens"), nil},
		"WithCostOf(nil)":               {limits, []core.Option{core.WithCostOf[*http.Request]("tokens", nil)}},
		"the requests of this middleware are": {
			limits,
			[]core.Option{core.WithCostOf("tokens", func(int) int { return 1 })},
		},
	}
	for text, w := range wrong {
		_, err := core.NewFor[*http.Request](w.policy, core.ByIP(), w.opts...)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %s", err, text)
		}
	}
	chosen := nethttp.New(core.LimitBy(func(*http.Request) core.Limits { return limits }), core.ByIP())(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w := httptest.NewRecorder()
	if chosen.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)); w.Code != 500 {
		t.Errorf("%d for limits of a unit without a cost, want 500", w.Code)
	}
}

// unitEntry is what a request has taken of each unit.
type unitEntry struct {
	at            time.Time
	costs         map[string]int
	asked, undone map[string]bool // units that the decision has taken, and of those the ones that it has given back
}

func newUnitEntry(costs map[string]int) *unitEntry {
	e := &unitEntry{time.Now(), costs, map[string]bool{}, map[string]bool{}}
	for u, cost := range costs {
		e.asked[u] = cost > 0
	}
	return e
}

func (e *unitEntry) settle(costs core.Costs) {
	for u, cost := range costs {
		if !e.undone[u] {
			e.costs[u], e.undone[u] = cost, e.asked[u] && cost == 0
		}
	}
}

// unitOracle is the definition written down.
type unitOracle struct {
	limits  core.Limits
	units   []string // of limits
	entries []*unitEntry
}

func (o *unitOracle) used(i int) (units int) {
	for _, e := range o.entries {
		if time.Since(e.at) < o.limits[i].Window {
			units += e.costs[o.units[i]]
		}
	}
	return units
}

// asks reports whether a request fits, and how long it waits if it does not: -1 if it never fits.
func (o *unitOracle) asks(costs map[string]int) (fits bool, wait time.Duration) {
	for i, l := range o.limits {
		cost := costs[o.units[i]]
		if cost > l.Quota {
			return false, -1
		}
	}
	for i, l := range o.limits {
		cost := costs[o.units[i]]
		if cost == 0 {
			continue
		}
		over := o.used(i) + cost - l.Quota
		for _, e := range o.entries { // oldest first
			if left := l.Window - time.Since(e.at); over > 0 && left > 0 && e.costs[o.units[i]] > 0 {
				over -= e.costs[o.units[i]]
				wait = max(wait, left)
			}
		}
	}
	return wait == 0, wait
}

// Random calls are compared with the definition: in memory here, and in Redis by package redisstore.
func TestUnitsAgainstOracle(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		for range testlen.Of(40, 2000) {
			traceOfUnits(t.Context(), t, r, testlen.Of(250, 500))
		}
	})
}

func traceOfUnits(ctx context.Context, t *testing.T, r *rand.Rand, calls int) {
	t.Helper()
	units := []string{"requests", "tokens", "images"}[:2+r.IntN(2)]
	o := new(unitOracle)
	var limits core.Limits
	for i := range len(units) + r.IntN(3) {
		u := units[i%len(units)]
		l := core.Limit{
			Name:   fmt.Sprint("l", i),
			Quota:  1 + r.IntN(30),
			Window: time.Duration(1+i+8*r.IntN(3)) * time.Second, // of each limit another one
		}
		o.limits, o.units = append(o.limits, l), append(o.units, u)
		limits = append(limits, l.Of(u))
	}
	l, err := core.New(limits, core.Global())
	if err != nil {
		t.Fatal(err)
	}
	type made struct {
		core.Decision

		entry *unitEntry
	}
	var all []made
	denials, admissions := 0, 0
	for range calls {
		time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
		costs := core.Costs{}
		for _, u := range units {
			if r.IntN(3) > 0 {
				costs[u] = r.IntN(1 + r.IntN(12))
			}
		}
		switch r.IntN(10) {
		case 0:
			if len(all) == 0 {
				continue
			}
			m := all[r.IntN(len(all))]
			if err := m.SettleCosts(ctx, costs); err != nil {
				t.Fatal(err)
			}
			m.entry.settle(costs)
			continue
		case 1:
			if len(all) == 0 {
				continue
			}
			i := r.IntN(len(all))
			if err := all[i].Undo(ctx); err != nil {
				t.Fatal(err)
			}
			all[i].entry.costs = map[string]int{}
			all = append(all[:i], all[i+1:]...)
			continue
		}
		want := map[string]int{"requests": 1}
		maps.Copy(want, costs)
		fits, wait := o.asks(want)
		d, err := l.AllowCosts(ctx, "k", costs)
		if wait < 0 {
			if !errors.Is(err, core.ErrCostExceedsQuota) || !d.Never() {
				t.Fatalf("AllowCosts(%v) of %v: %v, %v; it never fits", costs, limits, d, err)
			}
			continue
		}
		if err != nil || d.Allowed != fits || d.RetryAfter != wait {
			t.Fatalf("AllowCosts(%v) of %v: %v, %v; want %v, wait %v", costs, limits, d, err, fits, wait)
		}
		if !fits {
			denials++
			continue
		}
		admissions++
		e := newUnitEntry(want)
		o.entries = append(o.entries, e)
		all = append(all, made{d, e})
		for _, s := range d.Limits() {
			var i int
			fmt.Sscanf(s.Name, "l%d", &i)
			if left := o.limits[i].Quota - o.used(i); s.Remaining != max(left, 0) {
				t.Fatalf("%v of %v has %d remaining, want %d", costs, s.Name, s.Remaining, left)
			}
		}
		if len(all) > 20 {
			all = all[1:]
		}
	}
	if admissions == 0 {
		t.Errorf("nothing of %d calls was admitted, %d denied", calls, denials)
	}
}

// Units in company of everything else that a limiter can do.
func TestUnitsInModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		both := core.Limits{core.PerMinute(5), core.PerMinute(50).Of("tokens")}
		state := func(l *core.Limiter, key string, requests, tokens int) {
			t.Helper()
			d, err := l.Peek(ctx, key)
			used := make(map[string]int)
			for _, s := range d.Limits() {
				used[s.Unit] = max(used[s.Unit], s.Used)
			}
			if err != nil || used["requests"] != requests || used["tokens"] != tokens {
				t.Errorf("%v used, %v; want %d requests and %d tokens", used, err, requests, tokens)
			}
		}

		t.Log("denials that are counted are recorded by the limits that deny")
		l := newLimiter(t, both, core.WithCountDenied())
		allowCosts(t, l, core.Costs{"tokens": 40}, true)
		d := allowCosts(t, l, core.Costs{"tokens": 20, "requests": 0}, false)
		if all := d.Limits(); len(all) != 1 || all[0].Remaining != 0 {
			t.Errorf("%v, want no tokens left", all)
		}
		d = allowCosts(t, l, core.Costs{"tokens": 20}, false)
		if all := d.Limits(); all[0].Remaining != 4 || all[1].Remaining != 0 {
			t.Errorf("%v, want 4 requests and no tokens left", all)
		}
		state(l, "k", 1, 80) // whole entries leave, while as much as the quota is left
		if d, err := l.AllowCosts(ctx, "k", core.Costs{"tokens": 51}); !errors.Is(err, core.ErrCostExceedsQuota) ||
			!d.Never() {
			t.Errorf("%v, %v; want a cost above the quota", d, err)
		}
		state(l, "k", 1, 80)
		time.Sleep(time.Minute - time.Microsecond)
		if d, err := l.AllowCosts(ctx, "k", core.Costs{"requests": 6, "tokens": 1}); !d.Never() {
			t.Errorf("%v, %v; want a cost above the quota", d, err)
		}
		time.Sleep(time.Microsecond)
		state(l, "k", 0, 0) // what never fits was not recorded by the limit of tokens either

		t.Log("a ban is for denials by any unit")
		l = newLimiter(t, both, core.WithBan(2, time.Minute, time.Hour))
		allowCosts(t, l, core.Costs{"tokens": 40}, true)
		allowCosts(t, l, core.Costs{"tokens": 20}, false)
		if d := allowCosts(t, l, core.Costs{"tokens": 20}, false); !d.Banned {
			t.Errorf("%v, want a ban", d)
		}

		t.Log("a shadow has units of its own")
		var shadows []string
		l = newLimiter(
			t,
			core.PerMinute(5),
			core.WithShadow(core.Limits{core.PerMinute(9).Of("tokens"), core.PerMinute(1)}),
			core.WithObserver(func(_ context.Context, e core.Event) {
				shadows = append(
					shadows,
					fmt.Sprintf(
						"allowed=%v never=%v %v %v",
						e.Shadow.Allowed,
						e.Shadow.Never(),
						e.Shadow.Violated,
						unitsUsed(*e.Shadow),
					),
				)
			}),
		)
		allowCosts(t, l, core.Costs{"tokens": 4}, true)
		allowCosts(t, l, core.Costs{"tokens": 4}, true)
		allowCosts(t, l, core.Costs{"tokens": 10}, true)
		want := []string{
			"allowed=true never=false [] map[1-per-minute requests:1 9-tokens-per-minute tokens:4]",
			"allowed=false never=false [1-per-minute] map[1-per-minute requests:1 9-tokens-per-minute tokens:4]",
			"allowed=false never=true [9-tokens-per-minute] map[1-per-minute requests:1 9-tokens-per-minute tokens:4]",
		}
		if !reflect.DeepEqual(shadows, want) {
			t.Errorf("shadows %q, want %q", shadows, want)
		}

		t.Log("limits of other algorithms")
		l = newLimiter(t, core.Limits{
			core.PerMinute(5), core.TokenBucket(core.PerSecond(1).Of("tokens"), 50), core.PerMonth(100).Of("images"),
		})
		allowCosts(t, l, core.Costs{"tokens": 30, "images": 60}, true)
		if d := allowCosts(t, l, core.Costs{"tokens": 30, "images": 60}, false); len(d.Violated) != 2 {
			t.Errorf("%v, want a denial by both", d)
		}
		time.Sleep(10 * time.Second)
		allowCosts(t, l, core.Costs{"tokens": 30, "images": 40}, true)
		state(l, "k", 2, 50)

		t.Log("keys of their own, and permits")
		type orgKey struct{}
		org := core.ByValue(orgKey{})
		l = newLimiter(t, core.Limits{
			core.PerMinute(5), core.PerMinute(50).Of("tokens").By(org), core.PerMinute(20).Of("tokens"),
			core.PerMinute(7).By(org), core.InFlight(2),
		})
		acme := context.WithValue(ctx, orgKey{}, "acme")
		for _, step := range []struct {
			user     string
			tokens   int
			violated string
		}{
			{"ann", 20, "[]"},
			{"ann", 0, "[]"},
			{"ann", 0, "[2-in-flight]"}, // without a cost of tokens, there is a permit to take
			{"ann", 1, "[20-tokens-per-minute 2-in-flight]"},
			{"bob", 20, "[]"},
			{"eve", 11, "[50-tokens-per-minute]"},
			{"eve", 10, "[]"},
		} {
			d, err := l.AllowCosts(acme, step.user, core.Costs{"tokens": step.tokens})
			if err != nil || fmt.Sprint(d.Violated) != step.violated {
				t.Errorf("%s, %d tokens: %v, %v; want %s", step.user, step.tokens, d, err, step.violated)
			}
		}

		t.Log("limits that are chosen")
		plans := map[string]core.Limits{"small": both, "large": {core.PerMinute(50), core.PerMinute(500).Of("tokens")}}
		type planKey struct{}
		l = newLimiter(
			t,
			core.LimitBy(func(ctx context.Context) core.Limits { return plans[ctx.Value(planKey{}).(string)] }),
		)
		small, large := context.WithValue(ctx, planKey{}, "small"), context.WithValue(ctx, planKey{}, "large")
		for _, step := range []struct {
			ctx     context.Context
			tokens  int
			allowed bool
		}{{small, 50, true}, {small, 1, false}, {large, 400, true}, {large, 51, false}, {large, 50, true}} {
			d, err := l.AllowCosts(step.ctx, "k", core.Costs{"tokens": step.tokens})
			if err != nil || d.Allowed != step.allowed {
				t.Errorf("%d tokens: %v, %v; want allowed=%v", step.tokens, d, err, step.allowed)
			}
		}
		if err := l.Reset(ctx, "k"); err != nil {
			t.Error(err)
		}
		if d, err := l.Peek(large, "k"); err != nil || d.Limits()[1].Used != 0 {
			t.Errorf("%v, %v; want tokens reset", d.Limits(), err)
		}
	})
}

// A call of Wait behind another, with a deadline, takes nothing of other units, and does not wait for them.
func TestWaitTakesNoOtherUnits(t *testing.T) {
	for _, quota := range []int{2, 9} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, core.Limits{{Quota: 1, Window: 10 * time.Second}, core.PerHour(quota).Of("tokens")})
			start := time.Now()
			allowCosts(t, l, core.Costs{"tokens": 2}, true)
			first, second := wait(t, l, "k", 1), wait(t, l, "k", 1, time.Minute)
			first.admitted(t, start.Add(10*time.Second), "the first")
			second.admitted(t, start.Add(20*time.Second), "the second")
			d, err := l.Peek(t.Context(), "k")
			if err != nil || d.Limits()[1].Used != 2 {
				t.Errorf("%+v, %v; want 2 tokens used", d.Limits(), err)
			}
		})
	}
}

// What is taken of all units is given back where WithRefund says so.
func TestUnitsRefunded(t *testing.T) {
	logs := core.NewMemoryStore()
	limits := core.Limits{core.PerMinute(5), core.PerMinute(50).Of("tokens")}
	size := core.WithCostOf("tokens", func(*http.Request) int { return 30 })
	server := nethttp.New(limits, core.Global(), size, core.WithStore(logs),
		core.WithRefund(func(_ *http.Request, status int) bool { return status == 500 }))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/fails" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
	for _, step := range []struct {
		path   string
		status int
	}{{"/fails", 500}, {"/fails", 500}, {"/", 200}, {"/", 429}} {
		w := httptest.NewRecorder()
		if server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, step.path, nil)); w.Code != step.status {
			t.Errorf("%s: %d, want %d", step.path, w.Code, step.status)
		}
	}
}

// A call that waits is woken when some of the units that were recorded afterwards are given back.
func TestSettleCostsWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.Limits{core.PerHour(5), core.PerHour(9).Of("tokens")})
		late := allowCosts(t, l, core.Costs{"tokens": 1, "requests": 0}, true)
		settle := func(requests int) {
			if err := late.SettleCosts(t.Context(), core.Costs{"requests": requests}); err != nil {
				t.Error(err)
			}
		}
		settle(5)
		began := time.Now()
		go func() {
			time.Sleep(time.Minute)
			settle(4)
		}()
		d, err := l.Wait(t.Context(), "k")
		if waited := time.Since(began); err != nil || !d.Allowed || waited != time.Minute {
			t.Errorf("%v, %v after %v; want a request after a minute", d, err, waited)
		}
	})
}

// What is settled when the store answers again is not undone by what is replayed.
func TestSettleCostsAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &failingNow{Full: core.NewMemoryStore()}
		limits := core.Limits{core.PerHour(9), core.PerHour(100).Of("tokens")}
		l := newLimiter(t, limits, core.WithStore(away))
		d := allowCosts(t, l, nil, true)
		for tokens, gone := range []bool{false, true, false, true, false} {
			away.away.Store(gone)
			if err := d.SettleCosts(t.Context(), core.Costs{"tokens": 50 - tokens}); err != nil {
				t.Error(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		d, err := newLimiter(t, limits, core.WithStore(away)).Peek(t.Context(), "k")
		if err != nil || d.Limits()[1].Used != 46 {
			t.Errorf("%v, %v; want 46 tokens", d.Limits(), err)
		}
	})
}

// Units that are recorded afterwards reach the store also if it does not answer meanwhile.
func TestSettleCostsInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		away := &failingNow{Full: core.NewMemoryStore()}
		l := newLimiter(t, core.Limits{core.PerHour(9), core.PerHour(100).Of("tokens")}, core.WithStore(away))
		before := allowCosts(t, l, nil, true)
		away.away.Store(true)
		settle := func(d core.Decision, tokens int) {
			t.Helper()
			if err := d.SettleCosts(ctx, core.Costs{"tokens": tokens}); err != nil {
				t.Error(err)
			}
		}
		settle(before, 60)
		settle(before, 50)
		during := allowCosts(t, l, core.Costs{"requests": 2}, true)
		if !during.Degraded {
			t.Errorf("%v, want a decision without the store", during)
		}
		settle(during, 7)
		if d := allowCosts(t, l, core.Costs{"tokens": 44}, false); d.RetryAfter == 0 {
			t.Errorf("%v, want a wait: 57 tokens are used", d)
		}
		away.away.Store(false)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		d, err := newLimiter(
			t,
			core.Limits{core.PerHour(9), core.PerHour(100).Of("tokens")},
			core.WithStore(away),
		).Peek(ctx, "k")
		if err != nil || fmt.Sprint(unitsUsed(d)) != "map[100-tokens-per-hour tokens:57 9-per-hour requests:3]" {
			t.Errorf("%v used, %v; want 3 requests and 57 tokens", unitsUsed(d), err)
		}
		settle(before, 40) // the decision knows its units in the store
		if d, err := l.Peek(ctx, "k"); err != nil || d.Limits()[1].Used != 47 {
			t.Errorf("%v, %v; want 47 tokens", d.Limits(), err)
		}
	})
}
