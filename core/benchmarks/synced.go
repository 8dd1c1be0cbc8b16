package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// apisix decides without a round trip: each process counts, and they exchange their counts through Redis from time to
// time. It is written after what is published of one gateway that does so, with its smallest interval. It counts in
// fixed windows that begin with the first request, as APISIX's plugin limit-count does with sync_interval, which is 100
// ms at least: a request passes while its unit fits in what remained when this process has last asked Redis, less what
// it has counted since. That is added to the count in Redis an interval after a request, and with the first request
// after the window has ended, which waits for the answer. See sync_interval in
// https://apisix.apache.org/docs/apisix/3.19/plugins/limit-count/, and limit-count/delayed-syncer.lua and
// limit-count/util.lua in apisix/plugins of https://github.com/apache/apisix.
func apisix(rdb *redis.Client) contestant {
	return contestant{"as APISIX does", window, func(l limit) (limiter, error) {
		var counts sync.Map
		return limiter{check: func(ctx context.Context, key string) (bool, error) {
			c, _ := counts.LoadOrStore(key, &apisixCount{rdb: rdb, limit: l, key: "apisix:" + key})
			return c.(*apisixCount).check(ctx)
		}}, nil
	}}
}

type apisixCount struct {
	rdb   *redis.Client
	limit limit
	key   string

	mu        sync.Mutex
	remaining int       // in Redis
	until     time.Time // when the window ends
	own       int       // counted since
	waits     bool      // for the end of an interval
}

func (c *apisixCount) check(ctx context.Context) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !time.Now().Before(c.until) {
		if err := c.sync(ctx); err != nil {
			return false, err
		}
	}
	if !c.waits {
		c.waits = true
		time.AfterFunc(100*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.waits = false
			c.sync(context.Background()) //nolint:errcheck // the next has its units as well
		})
	}
	if c.remaining-c.own < 1 {
		return false, nil
	}
	c.own++
	return true, nil
}

// apisixScript returns the count in Redis, and for how many milliseconds it remains.
var apisixScript = redis.NewScript(`
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
	redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
	return {tonumber(ARGV[1]), tonumber(ARGV[2])}
end
return {redis.call('INCRBY', KEYS[1], ARGV[1]), left}`)

func (c *apisixCount) sync(ctx context.Context) error {
	shared, err := apisixScript.Run(ctx, c.rdb, []string{c.key}, c.own, c.limit.window.Milliseconds()).Int64Slice()
	if err != nil {
		return err
	}
	c.remaining, c.own = max(c.limit.quota-int(shared[0]), 0), 0
	c.until = time.Now().Add(time.Duration(shared[1]) * time.Millisecond)
	return nil
}
