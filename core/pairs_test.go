package core_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
)

// ability is something that users switch on. A limiter with two of them has the limit base and what both add.
type ability struct {
	limits  core.Limits
	opts    []core.Option
	choose  bool // the limits are those of LimitBy
	far     bool // it needs a store outside the process
	prepare func(*testing.T, *core.Limiter)
}

func abilities() map[string]ability {
	org := core.By(func(r *http.Request) (string, error) { return r.Header.Get("Org"), nil })
	forThree := func(t *testing.T, l *core.Limiter) {
		overrideIn(t, l, "ann", core.Override{
			Limits: core.Limits{core.PerMinute(3)}, Until: time.Now().Add(300 * 24 * time.Hour),
		})
	}
	failed := func(_ *http.Request, status int) bool { return status >= 500 }
	return map[string]ability{
		"units": {
			limits: core.Limits{core.PerMinute(30).Of("tokens")},
			opts:   []core.Option{core.WithCostOf("tokens", func(*http.Request) int { return 4 })},
		},
		"by":           {limits: core.Limits{core.PerMinute(9).By(org)}},
		"in flight":    {limits: core.Limits{core.InFlight(2)}},
		"calendar":     {limits: core.Limits{core.PerMonth(500)}},
		"counter":      {limits: core.Limits{core.PerHour(400).With(core.SlidingCounter)}},
		"bucket":       {limits: core.Limits{core.TokenBucket(core.PerSecond(1), 50)}},
		"LimitBy":      {choose: true},
		"override":     {opts: []core.Option{core.WithOverrides()}, prepare: forThree},
		"lease":        {opts: []core.Option{core.WithLease(20 * time.Millisecond)}, far: true},
		"ban":          {opts: []core.Option{core.WithBan(4, time.Minute, time.Minute)}},
		"refund":       {opts: []core.Option{core.WithRefund(failed)}},
		"count denied": {opts: []core.Option{core.WithCountDenied()}},
		"shadow":       {opts: []core.Option{core.WithShadow(core.PerMinute(2))}},
		"secret":       {opts: []core.Option{core.WithSecret([]byte("0123456789abcdef"))}},
		"fail closed":  {opts: []core.Option{core.WithFailure(core.FailClosed)}, far: true},
		"spread":       {opts: []core.Option{core.WithSpread(0)}},
		"no cache":     {opts: []core.Option{core.WithDenyCache(0)}, far: true},
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

// Each pair of abilities works together, or New tells why it does not. Whatever else is on, the limit that every
// limiter here has counts what was admitted by it, settled, undone, recorded and reset, and nothing else.
func TestPairs(t *testing.T) {
	all := abilities()
	names := slices.Sorted(maps.Keys(all))
	seed := rand.Uint64()
	tried := 0
	for i, one := range names {
		for _, other := range names[i+1:] {
			for _, far := range []bool{false, true} {
				a, b := all[one], all[other]
				if !far && (a.far || b.far) {
					continue
				}
				desc := fmt.Sprintf("%s, %s, far %v", one, other, far)
				inBubble(t, desc, func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, uint64(tried)))
					tried++
					tryPair(t, r, far, one, other, a, b)
				})
			}
		}
	}
	t.Logf("seed %#x: %d pairs", seed, tried)
}

// refusedPairs are the pairs that New refuses, with what it advises.
var refusedPairs = map[string]string{"count denied, spread": "leave one of them out"}

func tryPair(t *testing.T, r *rand.Rand, far bool, one, other string, a, b ability) {
	is := func(name string) bool { return one == name || other == name }
	limits := slices.Concat(core.Limits{core.Limit{Name: "base", Quota: 5, Window: time.Minute}}, a.limits, b.limits)
	policy := core.Policy(limits)
	if a.choose || b.choose {
		policy = core.LimitBy(func(context.Context) core.Limits { return limits })
	}
	user := core.By(func(r *http.Request) (string, error) { return r.Header.Get("User"), nil })
	opts := slices.Concat([]core.Option{core.WithName("pairs")}, a.opts, b.opts)
	if far {
		opts = append(opts, core.WithStore(&keeper{MemoryStore: core.NewMemoryStore()}))
	}
	l, err := core.New(policy, user, opts...)
	remedy, refused := refusedPairs[one+", "+other]
	wrong := configErrors(err)
	if refused != (err != nil) || refused && (len(wrong) != 1 || wrong[0].Remedy != remedy) {
		t.Fatalf("refused: %v, %v, want the remedy %q", refused, err, remedy)
	}
	if refused {
		return
	}
	defer l.Close()
	for _, prepare := range []func(*testing.T, *core.Limiter){a.prepare, b.prepare} {
		if prepare != nil {
			prepare(t, l)
		}
	}
	users := map[string]*base{}
	for _, name := range []string{"ann", "bob"} {
		users[name] = &base{quota: 5, window: time.Minute}
		if is("override") && name == "ann" {
			users[name].quota = 3
		}
		if is("lease") {
			users[name].window += 20 * time.Millisecond
		}
	}
	for range testlen.Of(150, 600) {
		if r.IntN(3) == 0 {
			time.Sleep(time.Duration(1+r.IntN(9)) * 3 * time.Second)
		}
		name := []string{"ann", "bob"}[r.IntN(2)]
		u := users[name]
		switch n := r.IntN(20); {
		case n == 0 && !is("by"): // whose key is that of a request
			if _, err := l.Record(t.Context(), name, 2); err != nil {
				t.Fatal("Record:", err)
			}
			u.add(2)
		case n == 1:
			if err := l.Reset(t.Context(), name); err != nil {
				t.Fatal("Reset:", err)
			}
			u.entries = slices.DeleteFunc(u.entries, func(e admitted) bool {
				return !is("lease") || time.Since(e.at) >= 20*time.Millisecond
			})
		default:
			u.request(t, r, l, name, is)
		}
	}
}

// request makes a request, and with it what handlers do.
func (b *base) request(t *testing.T, r *rand.Rand, l *core.Limiter, name string, is func(string) bool) {
	before := b.used()
	d, err := l.Check(from("192.0.2.1:1", "User", name, "Org", "acme"))
	if err != nil {
		t.Fatal("Check:", err)
	}
	if b.compare(t, before, d, name, is); d.Allowed {
		b.serve(t, r, d, name, is)
	}
}

// compare compares a decision with what the limit base has admitted before.
func (b *base) compare(t *testing.T, before int, d core.Decision, name string, is func(string) bool) {
	denies := false
	for _, state := range d.Limits() {
		if state.Name == "base" || state.Name == "3-per-minute" {
			denies = state.Denies
			if state.Used != before || state.Quota != b.quota {
				t.Fatalf("%s: %d of %d used, want %d of %d: %v", name, state.Used, state.Quota, before, b.quota, d)
			}
		}
	}
	switch {
	case d.Allowed && before >= b.quota:
		t.Fatalf("%s: admitted with %d of %d used", name, before, b.quota)
	case d.Allowed:
	case d.Banned != (len(d.Limits()) == 0):
		t.Fatalf("%s: %v by no limit", name, d)
	case denies && before < b.quota:
		t.Fatalf("%s: denied with %d of %d used", name, before, b.quota)
	case denies && is("count denied"):
		b.add(1)
		b.trim()
	}
}

// serve is what becomes of an admitted request.
func (b *base) serve(t *testing.T, r *rand.Rand, d core.Decision, name string, is func(string) bool) {
	units, status := b.add(1), []int{200, 500}[r.IntN(2)]
	d.Serve(func() int {
		if r.IntN(3) == 0 {
			before := b.used()
			next, err := d.Again(t.Context())
			if err != nil {
				t.Fatal("Again:", err)
			}
			if b.compare(t, before, next, name, is); next.Allowed {
				b.settle(t, r, next, b.add(1))
			}
		}
		return status
	})
	if status == 500 && is("refund") {
		*units = 0
		return
	}
	b.settle(t, r, d, units)
}

// settle changes what an admitted request has cost, perhaps.
func (b *base) settle(t *testing.T, r *rand.Rand, d core.Decision, units *int) {
	var err error
	switch n := r.IntN(6); n {
	case 0:
		*units, err = 0, d.Undo(t.Context())
	case 1, 2:
		*units, err = n, d.Settle(t.Context(), n)
	}
	if err != nil {
		t.Fatal("Undo or Settle:", err)
	}
}
