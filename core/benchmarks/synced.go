package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Gateways that decide without a round trip count in each process, and exchange their counts through Redis from time
// to time. These two are written after what is published of two of them, with their smallest interval. Both count in
// fixed windows that begin with the first request.

// wso2 counts as the gateways of WSO2 API Manager do in their asynchronous mode, the default with Redis: a request
// passes while the count of all, as last seen, and this process's own are below the quota together. Every 50 ms the own
// is added to that of all. If Redis has a later window than this process, its own count begins anew with that. See
// "Asynchronous Mode" in
// https://apim.docs.wso2.com/en/4.6.0/api-gateway/rate-limiting/configuring-rate-limiting-api-gateway-cluster/, and
// CallerContext and UnifiedThrottleReplicator in modules/commons of https://github.com/wso2/wso2-synapse.
func wso2(rdb *redis.Client) contestant {
	return contestant{
		peer: peer{"as WSO2 does", "", window, "a count, and each process's own"},
		make: func(l limit) (limiter, error) {
			w := &wso2Counts{rdb: rdb, limit: l, of: make(map[string]*wso2Count)}
			ctx, stop := context.WithCancel(context.Background())
			go w.sync(ctx)
			return limiter{check: w.check, close: stop}, nil
		},
	}
}

type wso2Counts struct {
	rdb   *redis.Client
	limit limit
	mu    sync.Mutex
	of    map[string]*wso2Count
}

type wso2Count struct {
	first       int64 // when the window has begun, in µs since 1970
	global, own int
}

func (w *wso2Counts) check(_ context.Context, key string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.of[key]
	if now := time.Now().UnixMicro(); c == nil || now >= c.first+w.limit.window.Microseconds() {
		c = &wso2Count{first: now}
		w.of[key] = c
	}
	if c.global+c.own >= w.limit.quota {
		return false, nil
	}
	c.own++
	return true, nil
}

// wso2Script returns the window in Redis, and its count.
var wso2Script = redis.NewScript(`
local own, window, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local first = tonumber(redis.call('HGET', KEYS[1], 'first'))
if not first or own >= first + window then
	redis.call('HSET', KEYS[1], 'first', ARGV[1], 'count', n)
	redis.call('PEXPIREAT', KEYS[1], math.ceil((own + window) / 1000))
	return {own, n}
end
return {first, redis.call('HINCRBY', KEYS[1], 'count', first > own and 0 or n)}`)

func (w *wso2Counts) sync(ctx context.Context) {
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return
		}
		w.mu.Lock()
		counts := make(map[string]wso2Count, len(w.of))
		for key, c := range w.of {
			counts[key] = *c
		}
		w.mu.Unlock()
		for key, old := range counts {
			if time.Now().UnixMicro() >= old.first+w.limit.window.Microseconds() {
				continue
			}
			shared, err := wso2Script.Run(ctx, w.rdb, []string{"wso2:" + key},
				old.first, w.limit.window.Microseconds(), old.own).Int64Slice()
			if err != nil {
				continue
			}
			w.mu.Lock()
			switch c := w.of[key]; {
			case c.first != old.first: // another has begun meanwhile
			case shared[0] > old.first:
				*c = wso2Count{shared[0], int(shared[1]), 0}
			default:
				*c = wso2Count{shared[0], int(shared[1]), c.own - old.own}
			}
			w.mu.Unlock()
		}
	}
}

// apisix counts as APISIX's plugin limit-count does with sync_interval, which is 100 ms at least: a request passes
// while its unit fits in what remained when this process has last asked Redis, less what it has counted since. That is
// added to the count in Redis an interval after a request, and with the first request after the window has ended, which
// waits for the answer. See sync_interval in https://apisix.apache.org/docs/apisix/3.19/plugins/limit-count/, and
// limit-count/delayed-syncer.lua and limit-count/util.lua in apisix/plugins of https://github.com/apache/apisix.
func apisix(rdb *redis.Client) contestant {
	return contestant{
		peer: peer{"as APISIX does", "", window, "a count, and each process's own"},
		make: func(l limit) (limiter, error) {
			var counts sync.Map
			return limiter{check: func(ctx context.Context, key string) (bool, error) {
				c, _ := counts.LoadOrStore(key, &apisixCount{rdb: rdb, limit: l, key: "apisix:" + key})
				return c.(*apisixCount).check(ctx)
			}}, nil
		},
	}
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
