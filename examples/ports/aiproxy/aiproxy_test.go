package aiproxy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/ports/aiproxy"
	"github.com/sashlimit/sash/examples/ports/internal/porttest"
)

// limiter admits a request, and returns the function that counts its tokens afterwards, or nil.
type limiter func(mc aiproxy.ModelConfig, tokens int64) (count func(tokens int64))

// record counts by whole seconds of the last minute, as the script of AI Proxy does in one step.
type record struct {
	mu           sync.Mutex
	normal, over map[int64]int64 // by second
}

// push adds n units. Beyond the limit they are counted apart; up to then, and once more, they are normal.
func (r *record) push(limit, n int64) (normal int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.normal == nil {
		r.normal, r.over = map[int64]int64{}, map[int64]int64{}
	}
	now := time.Now().Unix()
	if normal = sum(r.normal, now); limit > 0 && normal > limit {
		r.over[now] += n
		return normal
	}
	r.normal[now] += n
	return normal + n
}

func (r *record) count() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().Unix()
	return sum(r.normal, now) + sum(r.over, now)
}

func sum(seconds map[int64]int64, now int64) (units int64) {
	for second, n := range seconds {
		if second >= now-60 {
			units += n
		}
	}
	return units
}

// original decides as AI Proxy does for one group: a request is counted, then compared with the limit; then the tokens
// so far are. Those of the request are counted when its response has ended.
func original() limiter {
	var requests, tokens record
	return func(mc aiproxy.ModelConfig, _ int64) func(int64) {
		if n := requests.push(mc.RPM, 1); mc.RPM > 0 && n > mc.RPM {
			return nil
		}
		if mc.TPM > 0 && tokens.count() >= mc.TPM {
			return nil
		}
		return func(n int64) { tokens.push(mc.TPM, n) }
	}
}

func port(t *testing.T) limiter {
	t.Helper()
	l, err := aiproxy.New(core.NewMemoryStore())
	if err != nil {
		t.Fatal(err)
	}
	return func(mc aiproxy.ModelConfig, tokens int64) func(int64) {
		d, err := l.Check(context.Background(), "group", mc, tokens)
		if err != nil {
			return nil
		}
		return func(n int64) {
			if err := aiproxy.Count(context.Background(), d, n); err != nil {
				t.Error(err)
			}
		}
	}
}

// A request that is denied takes a place, if one is free. A client that goes on trying takes each of them with a denied
// request, and is never admitted again.
func TestRetries(t *testing.T) {
	porttest.Compare(t, original, port, func(l limiter) bool {
		var admitted porttest.Log
		for range 600 {
			if l(aiproxy.ModelConfig{Model: "small", RPM: 2}, 1) != nil {
				admitted.Admit(1)
			}
			time.Sleep(time.Second)
		}
		t.Logf("%d of 20 admitted in ten minutes", admitted.Len())
		return admitted.Len() != 20 || admitted.Breaks(core.PerMinute(2))
	})
}

// Responses that have not ended have no tokens yet.
func TestTokensInFlight(t *testing.T) {
	porttest.Compare(t, original, port, func(l limiter) bool {
		var tokens porttest.Log
		porttest.AtOnce(20, func() {
			if count := l(aiproxy.ModelConfig{Model: "small", RPM: 100, TPM: 1000}, 500); count != nil {
				tokens.Admit(500)
				time.Sleep(5 * time.Second)
				count(500)
			}
		})
		return tokens.Len() < 2 || tokens.Breaks(core.PerMinute(1000))
	})
}

// Requests that tokens deny have been counted, so none is left when tokens are there again.
func TestDeniedByTokens(t *testing.T) {
	porttest.Compare(t, original, port, func(l limiter) bool {
		mc := aiproxy.ModelConfig{Model: "small", RPM: 5, TPM: 100}
		l(mc, 100)(100)
		time.Sleep(30 * time.Second)
		for range 10 {
			l(mc, 1)
		}
		time.Sleep(31 * time.Second) // the tokens have left, and the denied requests have not
		return l(mc, 1) == nil
	})
}

// A model without limits is not limited, and one with a limit of tokens alone by that.
func TestLimitsOfZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := port(t)
		for i := range 20 {
			if l(aiproxy.ModelConfig{Model: "free"}, 1000) == nil {
				t.Error("denied without a limit")
			}
			if allowed := l(aiproxy.ModelConfig{Model: "tokens", TPM: 100}, 10) != nil; allowed != (i < 10) {
				t.Errorf("request %d of 10 tokens each: allowed %v", i+1, allowed)
			}
		}
	})
}

// The errors tell which limit has denied, and the header fields how long it takes until the oldest unit leaves.
func TestErrorsAndHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := aiproxy.New(core.NewMemoryStore())
		if err != nil {
			t.Fatal(err)
		}
		mc := aiproxy.ModelConfig{Model: "small", RPM: 2, TPM: 100}
		for _, c := range []struct {
			tokens int64
			err    error
			header string
		}{
			{60, nil, "[2] [1] [60s] [100] [40] [60s]"},
			{60, aiproxy.ErrRequestTpmLimitExceeded, "[2] [1] [50s] [100] [40] [50s]"},
			{40, nil, "[2] [0] [40s] [100] [0] [40s]"},
			{1, aiproxy.ErrRequestRateLimitExceeded, "[2] [0] [30s] [100] [0] [30s]"},
		} {
			d, err := l.Check(t.Context(), "group", mc, c.tokens)
			h := http.Header{}
			aiproxy.SetHeaders(h, d)
			got := ""
			for _, unit := range []string{"Requests", "Tokens"} {
				for _, what := range []string{"Limit", "Remaining", "Reset"} {
					got += fmt.Sprint(h["X-Ratelimit-"+what+"-"+unit], " ")
				}
			}
			if !errors.Is(err, c.err) || got != c.header+" " {
				t.Errorf("%d tokens: %v, %s; want %v, %s", c.tokens, err, got, c.err, c.header)
			}
			time.Sleep(10 * time.Second)
		}
	})
}
