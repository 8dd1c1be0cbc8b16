package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
)

// Denied requests are told one after the other when the entries in Redis leave, and then when those leave that take
// their place.
func TestSpread(t *testing.T) {
	const quota = 5
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	defer rdb.Close()
	l := newLimiter(t, core.PerHour(quota), redisstore.New(rdb), core.WithSpread(0), core.WithDenyCache(0))
	for range quota {
		if d, err := l.Allow(t.Context(), "a"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	entries, err := l.Log(t.Context(), "a")
	if err != nil || len(entries) != quota {
		t.Fatal(entries, err)
	}
	var first time.Time // when the first unit is free, by this clock
	for i := range 3 * quota {
		d, err := l.Allow(t.Context(), "a")
		if err != nil || d.Allowed {
			t.Fatal(d, err)
		}
		if i == 0 {
			first = time.Now().Add(d.RetryAfter)
		}
		want := first.Add(entries[i%quota].At.Sub(entries[0].At) + time.Duration(i/quota)*(time.Hour+time.Hour/64))
		if late := time.Until(want) - d.RetryAfter; late.Abs() > time.Second {
			t.Errorf("denial %d: %v, which is wrong by %v", i+1, d.RetryAfter, late)
		}
	}
}
