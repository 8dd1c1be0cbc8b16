package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
)

// inRedis are the contestants that several servers can share, in the order of
// their turns.
func inRedis(rdb *redis.Client) []contestant {
	return []contestant{
		sash("sash", one, remote(rdb)),
		sash("sash, no deny cache", one, remote(rdb), core.WithDenyCache(0)),
		autoPipeline(rdb),
		bareScript(rdb),
		redisRate(rdb),
		ululeRedis(rdb),
		throttledRedis(rdb),
		evalsha(rdb),
		ping(rdb),
	}
}

// onServer are those, and what costs Redis more than one unit of one limit.
// Denials that never reach it would tell nothing of that.
func onServer(rdb *redis.Client) []contestant {
	asked := core.WithDenyCache(0)
	return []contestant{
		sash("sash", one, remote(rdb)),
		sash("sash, no deny cache", one, remote(rdb), asked),
		sash("sash, 2 limits", two, remote(rdb), asked),
		sash("sash, 3 limits", three, remote(rdb), asked),
		costing(10, sash("sash", one, remote(rdb), asked)),
		sash("sash, Stream", one, streams(rdb), asked),
		sash("sash, fixed window", using(core.FixedWindow), remote(rdb), asked),
		sash("sash, sliding counter", using(core.SlidingCounter), remote(rdb), asked),
		sash("sash, token bucket", bucketOf, remote(rdb), asked),
		redisRate(rdb),
		costing(10, redisRate(rdb)),
		ululeRedis(rdb),
		throttledRedis(rdb),
		evalsha(rdb),
		ping(rdb),
	}
}

// leasing are the contestants that show what leases are worth.
func leasing(rdb *redis.Client) []contestant {
	return []contestant{
		sash("sash", one, remote(rdb)),
		sash("sash, lease 20 ms", one, remote(rdb), core.WithLease(20*time.Millisecond)),
		sash("sash, lease 100 ms", one, remote(rdb), core.WithLease(100*time.Millisecond)),
		redisRate(rdb),
	}
}

// sharing are the contestants whose processes share a quota, most of them without a round trip for each request.
func sharing(rdb *redis.Client) []contestant {
	return append(leasing(rdb)[:2], wso2(rdb), apisix(rdb))
}

// inMemory are the contestants that keep to one process.
func inMemory() []contestant {
	return []contestant{
		sash("sash", one, local),
		sash("sash, fixed window", using(core.FixedWindow), local),
		sash("sash, sliding counter", using(core.SlidingCounter), local),
		sash("sash, token bucket", bucketOf, local),
		ululeMemory(),
		goLimiter(),
		httprateCounter(),
		slidingWindow(),
		failsafeBursty(),
		ginRateLimitStore(),
		throttledMemory(),
		tollboothKeys(),
		echoStore(),
		xTimeRate(),
		mapAndClock(),
	}
}

// judged are the contestants whose accuracy is measured. In Redis are only those that are not in memory as well.
func judged(rdb redis.UniversalClient) []contestant {
	return []contestant{
		algorithm("sash", exact, one, local),
		algorithm("sash, in Redis", exact, one, remote(rdb)),
		algorithm("sash, Stream", exact, one, streams(rdb)),
		algorithm("sash, fixed window", window, using(core.FixedWindow), local),
		algorithm("sash, sliding counter", window, using(core.SlidingCounter), remote(rdb)),
		algorithm("sash, token bucket", bucket, bucketOf, remote(rdb)),
		ululeMemory(),
		redisRate(rdb),
		httprateCounter(),
		throttledMemory(),
		goLimiterInStep(),
		fiberOwn("fiber's fixed", fiberlimiter.FixedWindow{}),
		fiberOwn("fiber's sliding", fiberlimiter.SlidingWindow{}),
		echoStore(),
	}
}

// algorithm is sash with logs of its own. In Redis, limiters of one name share them.
func algorithm(name string, k kind, limits func(limit) core.Limits, store func(limit) core.Store) contestant {
	c := sash(name, limits, store, core.WithName(strings.NewReplacer(" ", "-", ",", "").Replace(strings.ToLower(name))))
	c.kind = k
	return c
}

// contestant is one way to limit.
type contestant struct {
	peer
	make    func(limit) (limiter, error)
	command string // what it sends to Redis, as INFO commandstats calls it; empty if several
	cost    int    // units of one check; 0 is 1
	windows int    // how many windows long its log is; 0 is 1
	forgets bool   // that it drops idle keys, which else is left to its user
}

// peer is who made it, and what it knows of a key.
type peer struct {
	name   string
	module string
	kind   kind
	keeps  string
}

type kind string

const (
	exact  kind = "exact"  // no window holds more than its quota, wherever it begins
	window kind = "window" // counts in windows that lie fixed, or weighs two of them
	bucket kind = "bucket" // a balance that fills up again
	floor  kind = "floor"  // decides nothing: what the rest costs
)

// limit is what a contestant is to hold its keys to.
type limit struct {
	quota  int
	window time.Duration
	cost   int           // units of one check; 0 is 1
	keys   int           // live at once
	forget time.Duration // how soon idle keys should go, where one can say so; 0 is the default
}

// limiter is a contestant at work.
type limiter struct {
	check check
	close func() // nil where there is nothing to close
}

func (l limiter) end() {
	if l.close != nil {
		l.close()
	}
}

// check asks once whether key may go on.
type check func(ctx context.Context, key string) (allowed bool, err error)

// costing is the contestant with a larger cost of each check.
func costing(n int, c contestant) contestant {
	cheap := c
	c.name += fmt.Sprintf(", cost %d", n)
	c.cost = n
	c.make = func(l limit) (limiter, error) {
		l.cost = n
		return cheap.make(l)
	}
	return c
}
