package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/allocs"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
)

// Of these, go-redis makes half.
func TestAllocations(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	defer rdb.Close()
	for _, c := range []struct {
		desc  string
		quota int
		most  float64
	}{
		{"allowed", 100_000, 12},
		{"denied, from memory", 1, 0},
	} {
		l, err := core.New(core.PerHour(c.quota), core.Global(),
			core.WithStore(redisstore.New(rdb)), core.WithTimeout(time.Minute)) // a busy machine is no outage
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		n := allocs.PerRun(200, func() {
			if d, err := l.Allow(t.Context(), "k"); err != nil || d.Degraded || d.Allowed != (c.quota > 1) {
				t.Error(d, err)
			}
		})
		if n > c.most && !testlen.Race {
			t.Errorf("%s: %v allocations a check, want at most %v", c.desc, n, c.most)
		}
	}
}
