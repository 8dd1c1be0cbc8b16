package benchmarks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// floorEvalsha is a script that does nothing: the least that any limiter of
// one script costs.
var floorEvalsha = contestant{
	name:    "floor: EVALSHA return 1",
	command: "evalsha",
	floor:   true,
	prepare: func(rdb *redis.Client, _ int, _ time.Duration) (check, error) {
		hash, err := rdb.ScriptLoad(context.Background(), "return 1").Result()
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, key string) (bool, error) {
			n, err := rdb.EvalSha(ctx, hash, []string{key}).Int64()
			return n == 1, err
		}, nil
	},
}

// floorPing is a round trip.
var floorPing = contestant{
	name:    "floor: PING",
	command: "ping",
	floor:   true,
	prepare: func(rdb *redis.Client, _ int, _ time.Duration) (check, error) {
		return func(ctx context.Context, _ string) (bool, error) {
			s, err := rdb.Ping(ctx).Result()
			if err == nil && s != "PONG" {
				err = fmt.Errorf("PING says %q", s)
			}
			return err == nil, err
		}, nil
	},
}

// floorMemory is the least that any limiter in a process does: take a lock,
// find the key and look at the clock.
func floorMemory() check {
	type entry struct{ last time.Duration }
	var (
		mu    sync.Mutex
		start = time.Now()
		keys  = make(map[string]*entry)
	)
	return func(_ context.Context, key string) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		e := keys[key]
		if e == nil {
			e = new(entry)
			keys[key] = e
		}
		e.last = time.Since(start)
		return true, nil
	}
}
