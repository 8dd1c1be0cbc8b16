package benchmarks

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
)

var (
	sashOne = sashRedis("sash", func(quota int, window time.Duration) core.Policy {
		return core.Limit{Quota: quota, Window: window}
	})
	// The second limit keeps the log twice as long. Of a load that keeps the
	// first half full it admits all, and of more it is the one that denies.
	sashTwo = sashRedis("sash, 2 limits", func(quota int, window time.Duration) core.Policy {
		return core.Limits{{Quota: quota, Window: window}, {Quota: quota * 3 / 2, Window: 2 * window}}
	})
)

func sashRedis(name string, policy func(int, time.Duration) core.Policy) contestant {
	return contestant{
		name:    name,
		command: "evalsha",
		prepare: func(rdb *redis.Client, quota int, window time.Duration) (check, error) {
			return sash(policy(quota, window), core.WithStore(redisstore.New(rdb)))
		},
	}
}

func sash(p core.Policy, opts ...core.Option) (check, error) {
	// Allow brings its own key, so this function is never asked for one.
	key := core.By(func(context.Context) (string, error) { return "", core.ErrNoKey })
	l, err := core.New(p, key, opts...)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (bool, error) {
		d, err := l.Allow(ctx, key)
		return d.Allowed, err
	}, nil
}
