package main

import (
	"context"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
)

func failsafeBursty() contestant {
	return contestant{
		peer: peer{
			"failsafe-go", "github.com/failsafe-go/failsafe-go", window,
			"a count that begins anew after each window (its bursty form)",
		},
		make: func(l limit) (limiter, error) {
			keys := newPerKey(func() ratelimiter.RateLimiter[any] {
				return ratelimiter.NewBursty[any](uint(l.quota), l.window)
			})
			return limiter{check: func(_ context.Context, key string) (bool, error) {
				return keys.get(key).TryAcquirePermit(), nil
			}}, nil
		},
	}
}
