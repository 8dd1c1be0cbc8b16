package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

var ululePeer = peer{
	"ulule/limiter", "github.com/ulule/limiter/v3", window,
	"a count that begins anew after each window",
}

func ululeRedis(rdb *redis.Client) contestant {
	return contestant{
		peer:    ululePeer,
		command: "evalsha",
		make: func(l limit) (limiter, error) {
			store, err := ululeredis.NewStore(rdb)
			return ululeOn(store, l), err
		},
	}
}

func ululeMemory() contestant {
	return contestant{
		peer:    ululePeer,
		forgets: true,
		make: func(l limit) (limiter, error) {
			options := ulule.StoreOptions{Prefix: ulule.DefaultPrefix, CleanUpInterval: ulule.DefaultCleanUpInterval}
			if l.forget > 0 {
				options.CleanUpInterval = l.forget
			}
			return ululeOn(memory.NewStoreWithOptions(options), l), nil
		},
	}
}

func ululeOn(store ulule.Store, l limit) limiter {
	lim := ulule.New(store, ulule.Rate{Limit: int64(l.quota), Period: l.window})
	return limiter{check: func(ctx context.Context, key string) (bool, error) {
		c, err := lim.Get(ctx, key)
		return err == nil && !c.Reached, err
	}}
}
