package main

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

func xTimeRate() contestant {
	return contestant{
		peer: peer{"x/time/rate", "golang.org/x/time", bucket, "a token bucket"},
		make: func(l limit) (limiter, error) {
			keys := newPerKey(func() *rate.Limiter {
				return rate.NewLimiter(rate.Limit(float64(l.quota)/l.window.Seconds()), l.quota)
			})
			return limiter{check: func(_ context.Context, key string) (bool, error) {
				return keys.get(key).Allow(), nil
			}}, nil
		},
	}
}

// perKey is what people write around a limiter that knows no keys: a map that
// only grows.
type perKey[L any] struct {
	mu   sync.Mutex
	each map[string]L
	make func() L
}

func newPerKey[L any](each func() L) *perKey[L] {
	return &perKey[L]{each: make(map[string]L), make: each}
}

func (k *perKey[L]) get(key string) L {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.each[key]
	if !ok {
		l = k.make()
		k.each[key] = l
	}
	return l
}
