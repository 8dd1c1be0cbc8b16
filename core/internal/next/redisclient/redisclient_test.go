package redisclient_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/next/redisclient"
)

// counting counts the ids of each key, and replies with how many there were before.
var counting = redisclient.NewScript(`
local reply = {}
for i, key in ipairs(KEYS) do
  local n = (#ARGV[i] - #ARGV[i] % 8) / 8
  reply[i] = redis.call('INCRBY', key, n) - n
end
return reply`)

func newPlan() *redisclient.Plan {
	return &redisclient.Plan{
		Script: counting, Group: 1024,
		Cut: func([]int64, int) int { return 1 },
	}
}

func TestManyCallers(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	c := redisclient.New(&redisclient.Package{Name: "test"}, client, redisclient.Options{Prefix: "sash"})
	p := newPlan()
	var all sync.WaitGroup
	seen := make([][1000]bool, 10)
	var mu sync.Mutex
	for i := range 10_000 {
		all.Go(func() {
			key := fmt.Sprintf("key:%d", i%10)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			q := redisclient.NewQuestion(key+fmt.Sprintf("%08d", i), len(key))
			if err := c.Do(ctx, p, q); err != nil {
				t.Error(err)
				return
			}
			n := int(q.Reply[0]) + q.Place
			q.Free()
			mu.Lock()
			defer mu.Unlock()
			if seen[i%10][n] {
				t.Errorf("two answers %d", n)
			}
			seen[i%10][n] = true
		})
	}
	all.Wait()
}
