package redisstore_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/internal/pairs"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
	"github.com/sashlimit/sash/core/store"
)

// bubbled runs scripts at the time of the bubble that it is used in, unless it is cut off.
type bubbled struct {
	*client

	cut  atomic.Bool
	tick sync.Mutex
}

func (b *bubbled) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	if b.cut.Load() {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(errCut)
		return cmd
	}
	b.tick.Lock()
	b.Advance(time.Since(b.Now()))
	b.tick.Unlock()
	return b.client.Eval(ctx, text, keys, args...)
}

func (b *bubbled) Ping(ctx context.Context) *redis.StatusCmd {
	if b.cut.Load() {
		cmd := redis.NewStatusCmd(ctx)
		cmd.SetErr(errCut)
		return cmd
	}
	return b.client.Ping(ctx)
}

var errCut = &net.OpError{Op: "dial", Err: errors.New("cut off")}

// Whatever a user switches on together works on Redis, too.
func TestPairs(t *testing.T) {
	one := []string{redisserver.Start(t).Addr()}
	nodes := redisserver.StartCluster(t, 3).Addrs()
	for _, on := range []struct {
		name     string
		addrs    []string
		requests int
		store    func(redisstore.Client) store.Store
	}{
		{"one server", one, testlen.Of(30, 150), func(c redisstore.Client) store.Store {
			return redisstore.New(c, redisstore.WithOneServer())
		}},
		{"cluster", nodes, testlen.Of(10, 50), func(c redisstore.Client) store.Store { return redisstore.New(c) }},
		{"stream", one, testlen.Of(30, 150), func(c redisstore.Client) store.Store {
			return redisstream.New(c, redisstream.WithOneServer())
		}},
	} {
		t.Run(on.name, func(t *testing.T) {
			var c *bubbled
			config := pairs.Config{Requests: on.requests, Streams: on.name == "stream"}
			config.Store = func(t *testing.T) store.Store {
				if c == nil {
					rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: on.addrs, ReadTimeout: time.Minute})
					t.Cleanup(func() { rdb.Close() })
					c = &bubbled{client: newClient(rdb)}
					time.Sleep(time.Until(c.Now())) // a bubble begins when instants had a digit less
				}
				flush(t, c.UniversalClient)
				return on.store(c)
			}
			if on.name != "cluster" { // whose scripts are sent in pipelines
				config.Cut = func(cut bool) { c.cut.Store(cut) }
			}
			pairs.Run(t, config)
		})
	}
}
