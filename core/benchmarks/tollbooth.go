package main

import (
	"context"

	"github.com/didip/tollbooth/v7"
)

func tollboothKeys() contestant {
	return contestant{
		peer:    peer{"tollbooth", "github.com/didip/tollbooth/v7", bucket, "a token bucket"},
		forgets: true,
		make: func(l limit) (limiter, error) {
			lim := tollbooth.NewLimiter(float64(l.quota)/l.window.Seconds(), nil).SetBurst(l.quota)
			if l.forget > 0 {
				lim.SetTokenBucketExpirationTTL(l.forget)
			}
			return limiter{check: func(_ context.Context, key string) (bool, error) {
				return tollbooth.LimitByKeys(lim, []string{key}) == nil, nil
			}}, nil
		},
	}
}
