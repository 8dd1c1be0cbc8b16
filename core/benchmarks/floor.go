package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// evalsha is a script that does nothing: the least that any limiter of one
// script costs.
func evalsha(rdb *redis.Client) contestant {
	return contestant{
		peer:    peer{name: "EVALSHA return 1", kind: floor},
		command: "evalsha",
		make: func(limit) (limiter, error) {
			hash, err := rdb.ScriptLoad(context.Background(), "return 1").Result()
			return limiter{check: func(ctx context.Context, key string) (bool, error) {
				n, err := rdb.EvalSha(ctx, hash, []string{key}).Int64()
				return n == 1, err
			}}, err
		},
	}
}

// ping is a round trip.
func ping(rdb *redis.Client) contestant {
	return contestant{
		peer:    peer{name: "PING", kind: floor},
		command: "ping",
		make: func(limit) (limiter, error) {
			return limiter{check: func(ctx context.Context, _ string) (bool, error) {
				s, err := rdb.Ping(ctx).Result()
				if err == nil && s != "PONG" {
					err = fmt.Errorf("PING says %q", s)
				}
				return err == nil, err
			}}, nil
		},
	}
}

// mapAndClock is the least that any limiter in a process does: take a lock,
// find the key and look at the clock.
func mapAndClock() contestant {
	return contestant{
		peer: peer{name: "mutex, map, clock", kind: floor},
		make: func(limit) (limiter, error) {
			type entry struct{ last time.Duration }
			var (
				mu    sync.Mutex
				start = time.Now()
				keys  = make(map[string]*entry)
			)
			return limiter{check: func(_ context.Context, key string) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				e := keys[key]
				if e == nil {
					e = new(entry)
					keys[key] = e
				}
				e.last = time.Since(start)
				return true, nil
			}}, nil
		},
	}
}
