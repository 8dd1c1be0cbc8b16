package main

import (
	"context"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

func redisRate(rdb redis.UniversalClient) contestant {
	return contestant{
		peer: peer{
			"redis_rate", "github.com/go-redis/redis_rate/v10", bucket,
			"GCRA: the time by which all is paid back",
		},
		command: "evalsha",
		make: func(l limit) (limiter, error) {
			lim := redis_rate.NewLimiter(rdb)
			rate := redis_rate.Limit{Rate: l.quota, Burst: l.quota, Period: l.window}
			cost := max(1, l.cost)
			return limiter{check: func(ctx context.Context, key string) (bool, error) {
				r, err := lim.AllowN(ctx, key, rate, cost)
				return err == nil && r.Allowed > 0, err
			}}, nil
		},
	}
}
