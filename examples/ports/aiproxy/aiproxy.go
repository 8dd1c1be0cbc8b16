// Package aiproxy limits requests and tokens of each group and model, as AI Proxy does.
package aiproxy

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/sashlimit/sash/core"
)

// The errors of a denial.
var (
	ErrRequestRateLimitExceeded = errors.New("the group has no requests left")
	ErrRequestTpmLimitExceeded  = errors.New("the group has no tokens left")
)

// ModelConfig is how much a group may use of a model a minute. At 0 there is no limit.
type ModelConfig struct {
	Model    string
	RPM, TPM int64
}

type configKey struct{}

// Limiter limits groups.
type Limiter struct{ limiter *core.Limiter }

// New returns a limiter whose processes share a store.
func New(store core.Store) (*Limiter, error) {
	limits := func(ctx context.Context) (all core.Limits) {
		mc, _ := ctx.Value(configKey{}).(ModelConfig)
		if mc.RPM > 0 {
			all = append(all, core.PerMinute(int(mc.RPM)))
		}
		if mc.TPM > 0 {
			all = append(all, core.PerMinute(int(mc.TPM)).Of("tokens"))
		}
		return all
	}
	l, err := core.New(core.LimitBy(limits), core.Global(), core.WithName("aiproxy"), core.WithStore(store))
	return &Limiter{l}, err
}

// Check takes a request and reserves the tokens that it may take, both or neither.
func (l *Limiter) Check(ctx context.Context, group string, mc ModelConfig, tokens int64) (core.Decision, error) {
	costs := core.Costs{}
	switch {
	case mc.TPM > 0:
		costs["tokens"] = int(max(tokens, 1))
	case mc.RPM == 0:
		return core.Decision{Allowed: true}, nil
	}
	key := strconv.Quote(group) + mc.Model // so that no other group and model make the same
	d, err := l.limiter.AllowCosts(context.WithValue(ctx, configKey{}, mc), key, costs)
	for _, limit := range d.Limits() {
		switch {
		case limit.Denies && limit.Unit == "requests":
			return d, errors.Join(ErrRequestRateLimitExceeded, d.Err())
		case limit.Denies:
			return d, errors.Join(ErrRequestTpmLimitExceeded, d.Err())
		}
	}
	return d, err
}

// Count settles how many tokens a response has taken.
func Count(ctx context.Context, d core.Decision, tokens int64) error {
	for _, limit := range d.Limits() {
		if limit.Unit == "tokens" {
			return d.SettleCosts(context.WithoutCancel(ctx), core.Costs{"tokens": int(tokens)})
		}
	}
	return nil
}

// SetHeaders writes the header fields that clients of OpenAI read.
func SetHeaders(h http.Header, d core.Decision) {
	for _, l := range d.Limits() {
		name := map[string]string{"requests": "Requests", "tokens": "Tokens"}[l.Unit]
		h.Set("X-RateLimit-Limit-"+name, strconv.Itoa(l.Quota))
		h.Set("X-RateLimit-Remaining-"+name, strconv.Itoa(l.Remaining))
		h.Set("X-RateLimit-Reset-"+name, strconv.FormatFloat(math.Ceil(l.ResetAfter.Seconds()), 'f', 0, 64)+"s")
	}
}
