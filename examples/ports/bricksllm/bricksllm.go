// Package bricksllm limits requests and dollars of each API key, as BricksLLM does.
package bricksllm

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/sashlimit/sash/core"
)

// TimeUnit is the window of a limit.
type TimeUnit string

var windows = map[TimeUnit]time.Duration{
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "mo": 30 * 24 * time.Hour,
}

// Key is an API key and its limits. At 0 there is no limit.
type Key struct {
	KeyID                  string
	RateLimitOverTime      int
	RateLimitUnit          TimeUnit
	CostLimitInUsdOverTime float64
	CostLimitInUsdUnit     TimeUnit
}

type keyKey struct{}

func limits(ctx context.Context) (all core.Limits) {
	k, _ := ctx.Value(keyKey{}).(*Key)
	if k.RateLimitOverTime > 0 {
		all = append(all, core.Limit{Quota: k.RateLimitOverTime, Window: windows[k.RateLimitUnit]})
	}
	if k.CostLimitInUsdOverTime > 0 {
		dollars := core.Limit{Quota: units(k.CostLimitInUsdOverTime), Window: windows[k.CostLimitInUsdUnit]}
		all = append(all, dollars.Of("dollars"))
	}
	return all
}

// units are hundredths of a cent, so that a limit may be up to 1000 dollars.
func units(dollars float64) int { return int(math.Ceil(dollars*10_000 - 1e-6)) } // 9.96 is a little more in binary

// Validator limits keys.
type Validator struct{ limiter *core.Limiter }

// NewValidator returns a validator whose processes share a store.
func NewValidator(store core.Store) (*Validator, error) {
	l, err := core.New(core.LimitBy(limits), core.Global(), core.WithName("bricksllm"), core.WithStore(store))
	return &Validator{l}, err
}

// Validate takes a request and reserves the dollars that it may cost, both or neither, before it is sent to a model.
func (v *Validator) Validate(ctx context.Context, k *Key, cost float64) (core.Decision, error) {
	costs := core.Costs{} // and one request, if there is a limit
	switch {
	case k.CostLimitInUsdOverTime > 0:
		costs["dollars"] = max(units(cost), 1)
	case k.RateLimitOverTime == 0:
		return core.Decision{Allowed: true}, nil
	}
	d, err := v.limiter.AllowCosts(context.WithValue(ctx, keyKey{}, k), k.KeyID, costs)
	return d, cmp.Or(err, d.Err())
}

// RecordKeySpend settles what a request has cost.
func RecordKeySpend(ctx context.Context, k *Key, d core.Decision, cost float64) error {
	if k.CostLimitInUsdOverTime == 0 {
		return nil
	}
	return d.SettleCosts(context.WithoutCancel(ctx), core.Costs{"dollars": units(cost)})
}
