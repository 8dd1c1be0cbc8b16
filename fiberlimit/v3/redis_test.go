package fiberlimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
)

// Alternating keys of equal length on connections that are kept alive. fasthttp uses a
// request's memory again, and here a key outlives its request twice: on its way to Redis and
// with the observer. One that was not copied would turn into another.
func TestIdentitiesOverRedis(t *testing.T) {
	const connections, rounds, keys, quota = 64, 12, 6, 100
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { rdb.Close() })
	var mu sync.Mutex
	var kept []string
	l, err := core.New(core.PerHour(quota), core.ByHeader("X-API-Key", core.Unverified),
		core.WithStore(redisstore.New(rdb)), core.WithTimeout(time.Minute), // a slow machine is no outage
		core.WithObserver(func(_ context.Context, e core.Event) {
			mu.Lock()
			defer mu.Unlock()
			kept = append(kept, e.Key)
		}))
	if err != nil {
		t.Fatal(err)
	}
	send := onListener.Serve(t, func() string { return "served" }, l)
	admitted := map[string]int{}
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() {
			for round := range rounds {
				key := fmt.Sprintf("key-%c", 'A'+(i+round)%keys)
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("X-Api-Key", key)
				status := send(r).StatusCode
				mu.Lock()
				switch status {
				case http.StatusOK:
					admitted[key]++
				case http.StatusTooManyRequests:
				default:
					t.Errorf("%s: status %d", key, status)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, key := range kept { // long after the requests that they came with
		seen[key]++
	}
	for i := range keys {
		key := fmt.Sprintf("key-%c", 'A'+i)
		d, err := l.Peek(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if admitted[key] != quota || d.Used != quota || seen[key] != connections*rounds/keys {
			t.Errorf("%s: %d admitted, %d in Redis, %d observed; want %d, %d, %d",
				key, admitted[key], d.Used, seen[key], quota, quota, connections*rounds/keys)
		}
	}
	if len(seen) != keys {
		t.Errorf("the observer saw %d identities, want %d: %v", len(seen), keys, seen)
	}
	if logs, err := rdb.DBSize(t.Context()).Result(); logs != keys || err != nil {
		t.Errorf("%d logs in Redis, %v; want %d", logs, err, keys)
	}
}
