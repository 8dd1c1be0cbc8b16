package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// evalsha runs a script that does nothing: the least cost of any limiter that runs one
// script.
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

// bareScript calls sash's own script as a program that has nothing but go-redis would. What sash adds to that is its
// decision, its breaker, its deadline and its queue.
func bareScript(rdb *redis.Client) contestant {
	return contestant{
		peer:    peer{name: "sash's script, bare", kind: floor},
		command: "evalsha",
		make: func(l limit) (limiter, error) {
			spy := &spy{}
			watched := redis.NewClient(rdb.Options())
			watched.AddHook(spy)
			defer watched.Close()
			made, err := sash("", one, remote(watched)).make(l)
			if err != nil {
				return limiter{}, err
			}
			ctx := context.Background()
			if _, err := made.check(ctx, "seen once"); err != nil {
				return limiter{}, err
			}
			hash, ok := spy.args[1].(string)
			logKey, found := spy.args[3].(*string)
			if !ok || !found || len(spy.args) != 8 {
				return limiter{}, fmt.Errorf("it has sent %v", spy.args)
			}
			var ids atomic.Uint64
			return limiter{check: func(ctx context.Context, key string) (bool, error) {
				id := string(binary.BigEndian.AppendUint64(nil, ids.Add(1)))
				logs := []string{(*logKey)[:len(*logKey)-len(key)] + key}
				reply, err := rdb.EvalSha(ctx, hash, logs, id, spy.args[5], spy.args[6], spy.args[7]).Int64Slice()
				return err == nil && reply[0] > 0, err
			}}, nil
		},
	}
}

// spy sees the last EVALSHA that a client sends.
type spy struct {
	seen int
	args []any
}

func (s *spy) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *spy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (s *spy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.seen++; cmd.Name() == "evalsha" {
			s.args = cmd.Args()
		}
		return next(ctx, cmd)
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
