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

func newBubbled(rdb redis.UniversalClient) *bubbled {
	b := &bubbled{client: newClient(rdb)}
	b.client.ready = func() error {
		b.tick.Lock()
		defer b.tick.Unlock()
		if b.Advance(time.Since(b.Now())); b.cut.Load() {
			return errCut
		}
		return nil
	}
	return b
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
	nodes := make(chan *redisserver.Cluster)
	go func() { // a cluster takes 2 s to form
		defer close(nodes)
		nodes <- redisserver.StartCluster(t, 3)
	}()
	defer func() {
		for range nodes { // which a run of another subtest alone has not received
		}
	}()
	for _, on := range []struct {
		name     string
		addrs    func() []string
		requests int
		store    func(redisstore.Client) store.Store
	}{
		{"one server", func() []string { return one }, testlen.Of(30, 150), func(c redisstore.Client) store.Store {
			return redisstore.New(c, redisstore.WithOneServer())
		}},
		{"stream", func() []string { return one }, testlen.Of(30, 150), func(c redisstore.Client) store.Store {
			return redisstream.New(c, redisstream.WithOneServer())
		}},
		{"cluster", func() []string { return (<-nodes).Addrs() }, testlen.Of(10, 50),
			func(c redisstore.Client) store.Store { return redisstore.New(c) }},
	} {
		t.Run(on.name, func(t *testing.T) {
			var c *bubbled
			config := pairs.Config{Requests: on.requests, Streams: on.name == "stream"}
			config.Store = func(t *testing.T) store.Store {
				if c == nil {
					options := redis.UniversalOptions{Addrs: on.addrs(), ReadTimeout: time.Minute}
					rdb := redis.NewUniversalClient(&options)
					t.Cleanup(func() { rdb.Close() })
					c = newBubbled(rdb)
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
