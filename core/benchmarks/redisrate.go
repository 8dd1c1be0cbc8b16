package benchmarks

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// redisRate is GCRA: one number a key, and not a sliding window. It admits up
// to twice the quota in one window (a full burst, and what trickles in).
var redisRate = contestant{
	name:    "redis_rate",
	command: "evalsha",
	prepare: func(rdb *redis.Client, quota int, window time.Duration) (check, error) {
		l := redis_rate.NewLimiter(rdb)
		limit := redis_rate.Limit{Rate: quota, Burst: quota, Period: window}
		return func(ctx context.Context, key string) (bool, error) {
			r, err := l.Allow(ctx, key, limit)
			if err != nil {
				return false, err
			}
			return r.Allowed > 0, nil
		}, nil
	},
}
