package main

import (
	"context"
	"strings"
	"time"

	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
)

// contestant is one way to limit.
type contestant struct {
	name string
	kind kind
	make func(limit) (limiter, error)
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
	keys   int // live at once
}

// limiter is a contestant at work.
type limiter struct {
	check check
	close func() // nil where there is nothing to close
}

// check asks once whether key may go on.
type check func(ctx context.Context, key string) (allowed bool, err error)

func (l limiter) end() {
	if l.close != nil {
		l.close()
	}
}

// inRedis are the contestants that several servers can share, in the order of their turns. Without its deny cache sash
// asks Redis about each denial.
func inRedis(rdb *redis.Client) []contestant {
	return []contestant{
		sash("sash", one, remote(rdb)),
		sash("sash, no deny cache", one, remote(rdb), core.WithDenyCache(0)),
		sash("sash, 2 limits", two, remote(rdb), core.WithDenyCache(0)),
		redisRate(rdb),
		ululeRedis(rdb),
		throttledRedis(rdb),
		ping(rdb),
	}
}

// algorithms are those of sash in Redis, beside the sliding log.
func algorithms(rdb *redis.Client) []contestant {
	return []contestant{
		sash("sash, Stream", one, streams(rdb), core.WithDenyCache(0)),
		sash("sash, fixed window", using(core.FixedWindow), remote(rdb), core.WithDenyCache(0)),
		sash("sash, sliding counter", using(core.SlidingCounter), remote(rdb), core.WithDenyCache(0)),
		sash("sash, token bucket", bucketOf, remote(rdb), core.WithDenyCache(0)),
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

// sharing are the contestants whose processes share a quota, two of them without a round trip for each request.
func sharing(rdb *redis.Client) []contestant { return append(leasing(rdb)[:2], apisix(rdb)) }

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
		throttledMemory(),
		echoStore(),
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
