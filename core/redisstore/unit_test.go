package redisstore_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
)

// Random requests over requests, tokens and images of one key are compared with sums, for as long as nothing leaves the
// windows: 300,000 decisions without -short.
func TestUnits(t *testing.T) {
	testlen.SkipRace(t)
	t.Parallel()
	for name, client := range map[string]func() redis.UniversalClient{
		"one server": func() redis.UniversalClient { return redis.NewClient(at(redistest.Start(t))) },
		"cluster": func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.StartCluster(t, 3).Addrs()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := client()
			defer rdb.Close()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			decisions := 0
			for decisions < testlen.Of(1500, 20_000) {
				decisions += unitSums(t, r, rdb, testlen.Of(100, 400))
			}
			t.Logf("%d decisions compared", decisions)
		})
	}
}

var units = []string{"requests", "tokens", "images"}

// unitSums compares one trace of a new key. It returns how many of its calls were decisions: the others are settled.
func unitSums(t *testing.T, r *rand.Rand, rdb redis.UniversalClient, calls int) (decisions int) {
	t.Helper()
	ctx := t.Context()
	quotas, limits := map[string]int{}, core.Limits{}
	for _, u := range units {
		quotas[u] = 5 + r.IntN(300)
		limits = append(limits, core.PerDay(quotas[u]).Of(u))
	}
	l, err := core.New(limits, core.Global(), core.WithStore(redisstore.New(rdb)), core.WithFailure(core.FailClosed),
		core.WithTimeout(10*time.Second), core.WithDenyCache(0))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	key := "key " + time.Now().String()
	sums := map[string]int{}
	type made struct {
		core.Decision

		costs map[string]int
	}
	var all []made
	for range calls {
		costs := core.Costs{}
		for _, u := range units {
			if r.IntN(3) > 0 {
				costs[u] = r.IntN(1 + r.IntN(20))
			}
		}
		if len(all) > 0 && r.IntN(4) == 0 {
			i := r.IntN(len(all))
			m := all[i]
			all = append(all[:i], all[i+1:]...)
			if r.IntN(2) == 0 {
				costs = core.Costs{"requests": 0, "tokens": 0, "images": 0}
				err = m.Undo(ctx)
			} else {
				err = m.SettleCosts(ctx, costs)
			}
			if err != nil {
				t.Fatal(err)
			}
			for u, cost := range costs {
				sums[u] += cost - m.costs[u]
			}
			continue
		}
		want, fits := map[string]int{"requests": 1}, true
		maps.Copy(want, costs)
		for u, cost := range want {
			fits = fits && (cost == 0 || sums[u]+cost <= quotas[u])
		}
		decisions++
		d, err := l.AllowCosts(ctx, key, costs)
		if errors.Is(err, core.ErrCostExceedsQuota) {
			err = nil
		}
		if err != nil || d.Allowed != fits {
			t.Fatalf("%v of %v, with %v used: %v, %v; want %v", costs, quotas, sums, d, err, fits)
		}
		for _, s := range d.Limits() {
			if s.Used != sums[s.Unit] {
				t.Fatalf("%v of %v: %d %s used, want %d", costs, quotas, s.Used, s.Unit, sums[s.Unit])
			}
		}
		if fits {
			for u, cost := range want {
				sums[u] += cost
			}
			all = append(all, made{d, want})
		}
	}
	return decisions
}

// Callers at the same time take no more of a unit than there is, and a request that is denied takes nothing of the
// others.
func TestUnitsInBatches(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(at(redistest.Start(t)))
	defer rdb.Close()
	newOne := func(opts ...core.Option) *core.Limiter {
		l, err := core.New(core.Limits{core.PerHour(2000), core.PerHour(5000).Of("tokens")}, core.Global(),
			append(opts, core.WithName("units"), core.WithStore(redisstore.New(rdb)),
				core.WithFailure(core.FailClosed), core.WithTimeout(10*time.Second))...)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := newOne()
	var taken [2]atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range testlen.Of(50, 500) {
				tokens := rand.IntN(9)
				d, err := l.AllowCosts(t.Context(), "k", core.Costs{"tokens": tokens})
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					taken[0].Add(1)
					taken[1].Add(int64(tokens))
				}
			}
		})
	}
	all.Wait()
	d, err := newOne(core.WithDenyCache(0)).Peek(t.Context(), "k") // a cached denial knows the state of tokens only
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range d.Limits() {
		if int64(s.Used) != taken[i].Load() || s.Used > s.Quota {
			t.Errorf("%d %s used of %d, %d were taken", s.Used, s.Unit, s.Quota, taken[i].Load())
		}
	}
	if left := d.Limits()[1].Quota - d.Limits()[1].Used; left > 8 && taken[0].Load() < 2000 {
		t.Errorf("%d tokens are left", left)
	}
}
