package main

import (
	"context"
	"fmt"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// ping is a round trip.
func ping(rdb *redis.Client) contestant {
	return contestant{"PING", floor, func(limit) (limiter, error) {
		return limiter{check: func(ctx context.Context, _ string) (bool, error) {
			s, err := rdb.Ping(ctx).Result()
			if err == nil && s != "PONG" {
				err = fmt.Errorf("PING says %q", s)
			}
			return err == nil, err
		}}, nil
	}}
}

func redisRate(rdb redis.UniversalClient) contestant {
	return contestant{"redis_rate", bucket, func(l limit) (limiter, error) {
		lim := redis_rate.NewLimiter(rdb)
		rate := redis_rate.Limit{Rate: l.quota, Burst: l.quota, Period: l.window}
		return limiter{check: func(ctx context.Context, key string) (bool, error) {
			r, err := lim.Allow(ctx, key, rate)
			return err == nil && r.Allowed > 0, err
		}}, nil
	}}
}

func ululeRedis(rdb *redis.Client) contestant {
	return ululeOn(func() (ulule.Store, error) { return ululeredis.NewStore(rdb) })
}

func ululeMemory() contestant {
	return ululeOn(func() (ulule.Store, error) { return memory.NewStore(), nil })
}

func ululeOn(newStore func() (ulule.Store, error)) contestant {
	return contestant{"ulule/limiter", window, func(l limit) (limiter, error) {
		store, err := newStore()
		lim := ulule.New(store, ulule.Rate{Limit: int64(l.quota), Period: l.window})
		return limiter{check: func(ctx context.Context, key string) (bool, error) {
			c, err := lim.Get(ctx, key)
			return err == nil && !c.Reached, err
		}}, err
	}}
}

// throttledRedis reads with one pipeline and writes with a script.
func throttledRedis(rdb *redis.Client) contestant {
	return throttledOn(func() (throttled.GCRAStoreCtx, error) { return throttledredis.NewCtx(rdb, "throttled:") })
}

func throttledMemory() contestant {
	return throttledOn(func() (throttled.GCRAStoreCtx, error) { return memstore.NewCtx(0) }) // all keys, as others keep
}

func throttledOn(newStore func() (throttled.GCRAStoreCtx, error)) contestant {
	return contestant{"throttled", bucket, func(l limit) (limiter, error) {
		store, err := newStore()
		if err != nil {
			return limiter{}, err
		}
		quota := throttled.RateQuota{MaxRate: throttled.PerDuration(l.quota, l.window), MaxBurst: l.quota - 1}
		lim, err := throttled.NewGCRARateLimiterCtx(store, quota)
		return limiter{check: func(ctx context.Context, key string) (bool, error) {
			limited, _, err := lim.RateLimitCtx(ctx, key, 1)
			return err == nil && !limited, err
		}}, err
	}}
}
