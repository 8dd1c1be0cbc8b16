package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
)

type orgKey struct{}

// keysOfLimits are limits of a user, which is the limiter's key, of his organisation, and of everybody.
func keysOfLimits(user, org, all int) core.Limits {
	return core.Limits{
		core.PerHour(user), core.PerHour(org).By(core.ByValue(orgKey{})), core.PerHour(all).By(core.Global()),
	}
}

func clientsOfAllKinds(t *testing.T) map[string]func() redis.UniversalClient {
	server, cluster := redistest.Start(t), startCluster(t)
	return map[string]func() redis.UniversalClient{
		"one server": func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: server.Addr()}) },
		"cluster": func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		},
	}
}

// A user who is denied by his own limit takes nothing of his organisation's, and what a denied organisation asks is
// answered from memory, whichever of its users asks.
func TestDeniedUserTakesNothingOfTheOrganisation(t *testing.T) {
	t.Parallel()
	for name, connect := range clientsOfAllKinds(t) {
		t.Run(name, func(t *testing.T) {
			client := connect()
			t.Cleanup(func() { client.Close() })
			hook := new(keeper)
			client.AddHook(hook)
			user := core.By(func(context.Context) (string, error) { return "", nil })
			l, err := core.New(keysOfLimits(3, 100, 1000), user,
				core.WithStore(redisstore.New(client)), core.WithTimeout(time.Minute), core.WithName("burn"),
				core.WithDenyCache(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			ctx := context.WithValue(t.Context(), orgKey{}, "acme")
			admitted := 0
			for range 120 {
				d, err := l.Allow(ctx, "ann")
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					admitted++
				} else if strings.Join(d.Violated, " ") != "3-per-hour" || d.RetryAfter <= 0 {
					t.Fatalf("denied: %v", d)
				}
			}
			left, denied := 0, 0
			for n := range 300 {
				if denied == 1 {
					hook.reset()
				}
				d, err := l.Allow(ctx, fmt.Sprint("colleague", n))
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					left++
				} else if denied++; strings.Join(d.Violated, " ") != "100-per-hour" || d.RetryAfter <= 0 {
					t.Fatalf("denied: %v", d)
				}
			}
			if admitted != 3 || left != 97 {
				t.Errorf("%d of 3 for the user, %d of 97 left for the organisation", admitted, left)
			}
			if sent := hook.sent(); sent != 0 {
				t.Errorf("%d commands for %d users of a denied organisation, want none", sent, denied-1)
			}
			other := context.WithValue(t.Context(), orgKey{}, "other")
			if d, err := l.Peek(other, "eve"); err != nil || d.Remaining != 3 {
				t.Errorf("another organisation: %v, %v", d, err)
			}
		})
	}
}

func (k *keeper) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.args = nil
}

func (k *keeper) sent() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.args)
}

// Many requests at once from three processes: no quota is exceeded. On one server no unit of the organisation is lost
// to a request that was denied; on a cluster none is lost in the end.
func TestKeysOfLimitsOverThreeProcesses(t *testing.T) {
	t.Parallel()
	for name, connect := range clientsOfAllKinds(t) {
		t.Run(name, func(t *testing.T) {
			const users, userQuota, orgQuota = 16, 20, 200
			var limiters []*core.Limiter
			for range 3 {
				client := connect()
				t.Cleanup(func() { client.Close() })
				limiters = append(limiters, newLimiter(t, keysOfLimits(userQuota, orgQuota, 100_000),
					redisstore.New(client), core.WithName("three")))
			}
			ctx := context.WithValue(t.Context(), orgKey{}, "acme")
			var admitted [users]atomic.Int64
			allow := func(n, user int) bool {
				d, err := limiters[n%3].Allow(ctx, fmt.Sprint("user", user))
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					admitted[user].Add(1)
				}
				return d.Allowed
			}
			var wg sync.WaitGroup
			for n := range 64 {
				wg.Go(func() {
					for range 12 {
						allow(n, n%users)
					}
				})
			}
			wg.Wait()
			total := func() (all int) {
				for user := range users {
					got := int(admitted[user].Load())
					if all += got; got > userQuota {
						t.Errorf("user %d was admitted %d times, want %d at most", user, got, userQuota)
					}
				}
				return all
			}
			if name == "one server" && total() != orgQuota {
				t.Errorf("%d admitted, want %d", total(), orgQuota)
			}
			for user := range users {
				for allow(user, user) { // until the user or the organisation is denied
				}
			}
			if total() != orgQuota {
				t.Errorf("%d admitted in the end, want %d", total(), orgQuota)
			}
		})
	}
}
