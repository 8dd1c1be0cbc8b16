package main

import (
	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
)

// autoPipeline has go-redis put checks together, in its own way: several runs of a script in one pipeline, where
// the store would make one run of them.
func autoPipeline(rdb *redis.Client) contestant {
	c := sash("sash, AutoPipeline", one, nil)
	c.make = func(l limit) (limiter, error) {
		pipe, err := rdb.AutoPipeline()
		if err != nil {
			return limiter{}, err
		}
		store := func(limit) core.Store { return redisstore.New(pipe) }
		made, err := sash(c.name, one, store, core.WithDenyCache(0)).make(l)
		made.close = func() { pipe.Close() }
		return made, err
	}
	return c
}
