package core_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// allowCosts asks, and fails unless it is allowed.
func allowCosts(t *testing.T, l *core.Limiter, costs core.Costs) core.Decision {
	t.Helper()
	d, err := l.AllowCosts(t.Context(), "k", costs)
	if err != nil || !d.Allowed {
		t.Errorf("AllowCosts(%v): %v, %v", costs, d, err)
	}
	return d
}

// Shares of large quotas are compared exactly, also where an int has 32 bits.
func TestSharesOfLargeQuotas(t *testing.T) {
	l := newLimiter(t, core.Limits{core.PerMinute(10_000_000).Of("tokens"), core.PerMinute(9_000_000).Of("bytes")})
	d := allowCosts(t, l, core.Costs{"tokens": 5_000_000, "bytes": 2_000_000})
	if d.Remaining != 5_000_000 {
		t.Errorf("%d remaining, want those of tokens, of which a smaller share is left", d.Remaining)
	}
}

// What no limit counts, or is below 0, cannot be settled. A denial has nothing to settle.
func TestSettleCostsMistakes(t *testing.T) {
	ctx := t.Context()
	l := newLimiter(t, core.Limits{core.PerMinute(9), core.PerMinute(100).Of("tokens")})
	denied, err := l.AllowCosts(ctx, "k", core.Costs{"tokens": 101})
	if !errors.Is(err, core.ErrCostExceedsQuota) || denied.SettleCosts(ctx, core.Costs{"tokens": 7}) != nil {
		t.Error(denied, err)
	}
	if d, err := l.Peek(ctx, "k"); err != nil || d.Used != 0 || d.Limits()[1].Used != 0 {
		t.Errorf("%v, %v; want nothing used", d.Limits(), err)
	}
	d := allowCosts(t, l, core.Costs{"tokens": 60})
	for text, err := range map[string]error{
		"SettleCosts(characters)": d.SettleCosts(ctx, core.Costs{"characters": 1}),
		"SettleCosts(tokens: -1)": d.SettleCosts(ctx, core.Costs{"tokens": -1}),
		"Settle(-1)":              d.Settle(ctx, -1),
	} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %s", err, text)
		}
	}
}

// Log lists the log of the only unit, also where LimitBy has chosen it or a shadow. A process that had decided nothing
// yet knew no window then, and listed an empty log.
func TestLogOfAUnit(t *testing.T) {
	tokens := core.PerMinute(100).Of("tokens")
	chosen := core.LimitBy(func(context.Context) core.Limits { return core.Limits{tokens} })
	shadow := core.WithShadow(core.LimitBy(func(context.Context) core.Limits { return core.Limits{tokens} }))
	for name, c := range map[string]struct {
		policy core.Policy
		opts   []core.Option
	}{"chosen": {chosen, nil}, "a shadow": {tokens, options(shadow)}} {
		c.opts = append(c.opts, core.WithStore(core.NewMemoryStore()))
		here, there := newLimiter(t, c.policy, c.opts...), newLimiter(t, c.policy, c.opts...)
		if _, err := here.AllowN(t.Context(), "k", 60); err != nil {
			t.Error(err)
		}
		for _, l := range []*core.Limiter{here, there} {
			if entries, err := l.Log(t.Context(), "k"); err != nil || len(entries) != 1 || entries[0].Cost != 60 {
				t.Errorf("%s: %v, %v; want the entry of tokens", name, entries, err)
			}
		}
	}
}

// Costs without a name are of requests, or of the only other unit.
func TestCostsWithoutUnit(t *testing.T) {
	ctx := t.Context()
	tokens := newLimiter(t, core.PerMinute(100).Of("tokens"), core.WithName("tokens"))
	if d, err := tokens.AllowN(ctx, "k", 60); err != nil || !d.Allowed || d.Granted != 60 || d.Remaining != 40 {
		t.Errorf("%v, %v; want 40 tokens left", d, err)
	}
	if d := allowCosts(t, tokens, core.Costs{"tokens": 30}); d.Granted != 30 || d.Remaining != 10 {
		t.Errorf("%v, want 10 tokens left", d)
	}
	if d := allowCosts(t, tokens, nil); d.Remaining != 0 || d.Granted != 0 {
		t.Errorf("%v, want nothing taken", d)
	}
	entries, err := tokens.Log(ctx, "k")
	if err != nil || len(entries) != 2 || entries[0].Cost != 60 {
		t.Errorf("%v, %v; want the entries of tokens", entries, err)
	}
	if d, err := tokens.AllowAtMost(ctx, "k", 60); err != nil || d.Granted != 10 {
		t.Errorf("%v, %v; want 10 tokens granted", d, err)
	}
	noError(t, tokens.Reset(ctx, "k"))
	if d, err := tokens.WaitN(ctx, "k", 100); err != nil || !d.Allowed {
		t.Errorf("%v, %v", d, err)
	}

	both := newLimiter(t, core.Limits{core.PerMinute(100).Of("tokens"), core.PerMinute(9).Of("requests")})
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
			d := allowCosts(t, several, core.Costs{"tokens": 60})
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

func TestUnitsInMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := core.Limits{
			core.PerMinute(5),
			core.PerMinute(50).Of("tokens"),
			core.PerMinute(100).Of("bytes").By(core.Global()),
		}
		size := func(*http.Request) int { return 30 }
		tokens := func(r *http.Request) int { return len(r.URL.Query().Get("q")) }
		serve := func(p core.Policy, opts ...core.Option) func(q string) (status int, fields string) {
			served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			server := nethttp.New(p, core.ByIP(), opts...)(served)
			return func(q string) (int, string) {
				w := httptest.NewRecorder()
				server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?q="+q, nil))
				return w.Code, w.Header().Get("RateLimit")
			}
		}
		get := serve(limits, core.WithCostOf("tokens", tokens), core.WithCostOf("bytes", size))
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
		get = serve(core.PerMinute(5), core.WithCostOf("requests", tokens))
		for _, step := range []struct {
			q      string
			status int
		}{{"xxx", 200}, {"xxx", 429}, {"", 200}, {"xx", 200}, {"x", 429}} {
			if status, _ := get(step.q); status != step.status {
				t.Errorf("a cost of %d requests: %d, want %d", len(step.q), status, step.status)
			}
		}
	})
}

// A call of Wait behind another, with a deadline, takes nothing of other units, and does not wait for them.
func TestWaitTakesNoOtherUnits(t *testing.T) {
	for _, quota := range []int{2, 9} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, core.Limits{{Quota: 1, Window: 10 * time.Second}, core.PerHour(quota).Of("tokens")})
			start := time.Now()
			allowCosts(t, l, core.Costs{"tokens": 2})
			first, second := wait(t, l, 1), wait(t, l, 1, time.Minute)
			first.admitted(t, start.Add(10*time.Second), "the first")
			second.admitted(t, start.Add(20*time.Second), "the second")
			d, err := l.Peek(t.Context(), "k")
			if err != nil || d.Limits()[1].Used != 2 {
				t.Errorf("%+v, %v; want 2 tokens used", d.Limits(), err)
			}
		})
	}
}

// A call that waits is woken when some of the units that were recorded afterwards are given back.
func TestSettleCostsWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.Limits{core.PerHour(5), core.PerHour(9).Of("tokens")})
		late := allowCosts(t, l, core.Costs{"tokens": 1, "requests": 0})
		settle := func(requests int) {
			noError(t, late.SettleCosts(t.Context(), core.Costs{"requests": requests}))
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
