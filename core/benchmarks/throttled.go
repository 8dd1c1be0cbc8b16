package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
)

var throttledPeer = peer{
	"throttled", "github.com/throttled/throttled/v2", bucket,
	"GCRA; gives up with an error when others change the key ten times meanwhile",
}

// In Redis it reads with one pipeline and writes with a script.
func throttledRedis(rdb *redis.Client) contestant {
	return contestant{
		peer: throttledPeer,
		make: func(l limit) (limiter, error) {
			store, err := throttledredis.NewCtx(rdb, "throttled:")
			if err != nil {
				return limiter{}, err
			}
			return throttledOn(store, l)
		},
	}
}

func throttledMemory() contestant {
	return contestant{
		peer: throttledPeer,
		make: func(l limit) (limiter, error) {
			store, err := memstore.NewCtx(0) // 0 keeps all keys, as the others do
			if err != nil {
				return limiter{}, err
			}
			return throttledOn(store, l)
		},
	}
}

func throttledOn(store throttled.GCRAStoreCtx, l limit) (limiter, error) {
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(l.quota, l.window), MaxBurst: l.quota - 1}
	lim, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		return limiter{}, err
	}
	return limiter{check: func(ctx context.Context, key string) (bool, error) {
		limited, _, err := lim.RateLimitCtx(ctx, key, 1)
		return err == nil && !limited, err
	}}, nil
}
