package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/internal/timerlag"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// keysOf returns keys of one policy.
func keysOf(t *testing.T, n int, name string) []store.Key {
	t.Helper()
	keys := make([]store.Key, n)
	for i := range keys {
		keys[i] = store.NewKey(name, fmt.Sprint("key ", i))
	}
	return keys
}

// A batch that finds that most entries of its first log have left the window removes nothing from another log that is
// kept for longer.
func TestBatchLeavesVariedLogs(t *testing.T) {
	c := newClock(start(t))
	logs := newStore(c)
	keys := keysOf(t, 3, "p")
	hour := core.Limits{core.PerHour(100)}
	varied := store.Take{Key: keys[1], Plan: planOf(hour, store.Plan{Keep: time.Hour, Varies: true}), Cost: 1}
	take := func(takes ...store.Take) (answers []store.Answer) {
		t.Helper()
		for i := range takes {
			takes[i].ID = rand.Uint64()
		}
		answers, err := redisstore.TakeTogether(t.Context(), logs, true, takes)
		if err != nil {
			t.Fatal(err)
		}
		return answers
	}
	plain := func(k int) store.Take {
		return store.Take{
			Key: keys[k], Plan: planOf(core.Limits{core.PerSecond(10)}, store.Plan{Keep: time.Second}), Cost: 1,
		}
	}
	for range 5 {
		take(varied)
	}
	for round := range 3 {
		take(plain(0), plain(2))
		c.Advance(2 * time.Second)
		got := take(plain(0), plain(1), plain(2))
		for i, a := range got {
			if want := (store.State{Used: 0, Reset: time.Second}); !a.Allowed || a.State[0] != want {
				t.Errorf("round %d, log %d: %+v, want %+v", round, i, a.State[0], want)
			}
		}
	}
	varied.Mode = store.ModePeek
	if used := take(varied)[0].State[0].Used; used != 8 {
		t.Errorf("%d units in the hour, want 5 and 3", used)
	}
	entries, err := full(logs).Log(t.Context(), keys[1], time.Hour)
	if err != nil || len(entries) != 8 || entries[7].At.Sub(entries[0].At) != 6*time.Second ||
		entries[0].At.Year() != 2025 {
		t.Errorf("%v, %v", entries, err)
	}
}

// The same holds where an outage's entries were merged, whether windows varied before or not.
func TestMergedLogsVary(t *testing.T) {
	c := newClock(start(t))
	logs := newStore(c)
	keys := keysOf(t, 3, "p")
	hour, second := core.Limits{core.PerHour(100)}, core.Limits{core.PerSecond(10)}
	for k, varies := range []bool{false, true} {
		plan := planOf(second, store.Plan{Keep: time.Second, Varies: varies})
		first := store.Take{Key: keys[k], Plan: plan, Cost: 1, ID: 1}
		if _, err := coretest.Take(t.Context(), logs, first); err != nil {
			t.Fatal(err)
		}
		m := store.MergeRequest{
			Key: keys[k], Keep: time.Hour, Varies: true,
			Entries: []store.Entry{{ID: 2, Age: time.Minute, Cost: 3}, {ID: 3, Age: 0, Cost: 1}},
		}
		if err := full(logs).Merge(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	plain := func(k int, id uint64) store.Take {
		return store.Take{Key: keys[k], Plan: planOf(second, store.Plan{Keep: time.Second}), Cost: 1, ID: id}
	}
	if _, err := coretest.Take(t.Context(), logs, plain(2, 4)); err != nil {
		t.Fatal(err)
	}
	c.Advance(2 * time.Second)
	batch := []store.Take{plain(2, 5), plain(0, 6), plain(1, 7)}
	if _, err := redisstore.TakeTogether(t.Context(), logs, true, batch); err != nil {
		t.Fatal(err)
	}
	for k := range 2 {
		plan := planOf(hour, store.Plan{Keep: time.Hour, Varies: true})
		peek := store.Take{Key: keys[k], Plan: plan, Cost: 1, ID: 8, Mode: store.ModePeek}
		a, err := coretest.Take(t.Context(), logs, peek)
		if err != nil || a.State[0].Used != 6 || a.State[0].Reset != time.Hour-62*time.Second {
			t.Errorf("log %d: %+v, %v; want the first unit, four merged and one of now", k, a.State[0], err)
		}
		entries, err := full(logs).Log(t.Context(), keys[k], time.Hour)
		if err != nil || len(entries) != 4 || entries[3].At.Sub(entries[0].At) != 62*time.Second {
			t.Errorf("log %d: %v, %v", k, entries, err)
		}
	}
}

// The same holds where a log with entries from the future begins to vary, next to logs of either form.
func TestLogsBecomeVariedTogether(t *testing.T) {
	c := newClock(start(t))
	logs := newStore(c)
	keys := keysOf(t, 4, "p")
	plain := func(k int, id uint64) store.Take {
		plan := planOf(core.Limits{core.PerSecond(10)}, store.Plan{Keep: time.Second})
		return store.Take{Key: keys[k], Plan: plan, Cost: 1, ID: id}
	}
	varied := func(k int, id uint64) store.Take {
		plan := planOf(core.Limits{core.PerHour(100)}, store.Plan{Keep: time.Hour, Varies: true})
		return store.Take{Key: keys[k], Plan: plan, Cost: 1, ID: id}
	}
	together := func(takes ...store.Take) []store.Answer {
		t.Helper()
		answers, err := redisstore.TakeTogether(t.Context(), logs, true, takes)
		if err != nil {
			t.Fatal(err)
		}
		return answers
	}
	together(plain(0, 1), plain(1, 2), plain(3, 3))
	together(varied(2, 4))
	c.Advance(-time.Millisecond)
	for k, a := range together(varied(0, 10), varied(2, 12), varied(1, 11)) {
		if !a.Allowed || a.State[0].Used != 1 {
			t.Errorf("take %d: %+v", k, a.State[0])
		}
	}
	c.Advance(2 * time.Second)
	together(plain(3, 20), plain(0, 21), plain(1, 22), plain(2, 23))
	for k := range 3 {
		peek := varied(k, 0)
		peek.Mode = store.ModePeek
		if a := together(peek)[0]; a.State[0] != (store.State{Used: 3, Reset: time.Hour - 2*time.Second}) {
			t.Errorf("log %d: %+v", k, a.State[0])
		}
	}
}

// Everything at once through batches: exact, on one server, a cluster and a ring.
func TestBatchesAreExact(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	one, two := redistest.Start(t), redistest.Start(t)
	for name, client := range map[string]redisstore.Client{
		"single":  redis.NewClient(&redis.Options{Addr: one.Addr()}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}),
		"ring":    redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": one.Addr(), "b": two.Addr()}}),
	} {
		t.Run(name, func(t *testing.T) {
			const callers, each, keys, quota = 100, 60, 7, 200
			l := newLimiter(t, core.PerHour(quota), redisstore.New(client), core.WithName(name))
			var admitted [keys]atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for i := range each {
						d, err := l.Allow(context.Background(), fmt.Sprint("key ", i%keys))
						if err != nil {
							t.Error(err)
							return
						}
						if d.Allowed {
							admitted[i%keys].Add(1)
						}
					}
				})
			}
			wg.Wait()
			for k := range admitted {
				entries, err := l.Log(t.Context(), fmt.Sprint("key ", k))
				if n := admitted[k].Load(); n != quota || len(entries) != quota || err != nil {
					t.Errorf("key %d: %d admitted, %d entries, %v; want %d", k, n, len(entries), err, quota)
				}
			}
			client.(interface{ Close() error }).Close()
		})
	}
}

// A caller returns at its own deadline, whatever it waits for.
func TestEachCallersDeadlineHolds(t *testing.T) {
	server := redistest.Start(t)
	for name, hide := range map[string]bool{"prompt": false, "not prompt": true} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer rdb.Close()
			client := redisstore.Client(rdb)
			if hide {
				client = anyClient{rdb}
			}
			l := newLimiter(t, core.PerHour(10_000), redisstore.New(client), core.WithName(name[:3]))
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			logs := full(redisstore.New(client))
			key := keysOf(t, 1, "k")[0]
			plan := planOf(core.Limits{core.PerHour(5)}, store.Plan{Keep: time.Hour})
			clock := timerlag.Watch()
			server.Pause()
			var wg sync.WaitGroup
			var worst atomic.Int64
			for i := range 200 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
					defer cancel()
					begin := time.Now()
					_, err := coretest.Take(ctx, logs, store.Take{Key: key, Plan: plan, Cost: 1, ID: uint64(i + 1)})
					if err == nil {
						t.Error("answered by a paused server")
					}
					for took := int64(time.Since(begin)); ; {
						if before := worst.Load(); took <= before || worst.CompareAndSwap(before, took) {
							return
						}
					}
				})
			}
			wg.Wait()
			server.Resume()
			clock.Stop()
			if worst := time.Duration(worst.Load()); worst > time.Second+clock.Slack() {
				t.Errorf("a caller with 50ms waited for %v, and a timer was late by up to %v", worst, clock.Worst())
			}
		})
	}
}

// anyClient hides what kind of client it is.
type anyClient struct{ redisstore.Client }

// A single take behaves as without batches, and waiting takes are served in the order of arrival.
func TestBatchesDoNotStarve(t *testing.T) {
	rdb := start(t)
	l := newLimiter(t, core.PerHour(100_000), redisstore.New(rdb))
	slow := newLimiter(t, core.PerHour(100_000), redisstore.New(rdb), core.WithName("slow"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 8 { // a policy whose takes are as heavy as can be
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					slow.AllowN(context.Background(), fmt.Sprint(i), 5000)
				}
			}
		})
	}
	var took []time.Duration
	for i := range 200 {
		begin := time.Now()
		if _, err := l.Allow(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	close(stop)
	wg.Wait()
	slices.Sort(took)
	t.Logf("median %v, worst %v beside a heavy policy", took[len(took)/2], took[len(took)-1])
}

// Takes that are sent again are recognized behind another of their log.
func TestTakesSentAgainBehindAnother(t *testing.T) {
	for name, newLogs := range map[string]func(redisstore.Client) core.Store{"sets": inSets, "streams": inStreams} {
		t.Run(name, func(t *testing.T) {
			logs, key := newLogs(start(t)), keysOf(t, 1, "again")[0]
			plan := planOf(core.Limits{core.PerHour(3)}, store.Plan{})
			ask := func(ctx context.Context, ids ...uint64) (allowed []bool) {
				t.Helper()
				var takes []store.Take
				for _, id := range ids {
					takes = append(takes, store.Take{Key: key, Plan: plan, Cost: 1, ID: id})
				}
				answers, err := redisstore.TakeTogether(ctx, logs, true, takes)
				if err != nil {
					t.Fatal(err)
				}
				for _, a := range answers {
					allowed = append(allowed, a.Allowed)
				}
				return allowed
			}
			ask(t.Context(), 1, 2)
			again := deadline.New(time.Minute, nil).Again(t.Context(), time.Now())
			for i, admits := range []bool{true, false} { // there is room for one more
				if got := ask(again, uint64(10+i), 1, 2); !slices.Equal(got, []bool{admits, true, true}) {
					t.Errorf("another take and both, %d: allowed %v, want %v and both", i, got, admits)
				}
			}
		})
	}
}

// A key of another type makes the takes and settlements of that key fail, and none of those that are sent with them.
func TestOtherTypeInABatch(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]core.Limits{
		"one log": {core.PerHour(1000)}, "several limits": {core.PerHour(1000), core.PerMinute(1000)},
	} {
		t.Run(name, func(t *testing.T) {
			rdb, ctx := start(t), t.Context()
			s, plan, keys := redisstore.New(rdb), planOf(limits, store.Plan{}), keysOf(t, 32, "types")
			var ids atomic.Uint64
			take := func(key store.Key, mode store.Mode) (store.Answer, uint64, error) {
				take := store.Take{Key: key, Plan: plan, Cost: 1, ID: ids.Add(1), Mode: mode}
				answer, err := coretest.Take(ctx, s, take)
				return answer, take.ID, err
			}
			if _, _, err := take(keys[0], store.ModeCharge); err != nil {
				t.Fatal(err)
			}
			odd := rdb.Keys(ctx, "*").Val()[0]
			rdb.Set(ctx, odd, "x", time.Minute)
			const each = 30
			var wg sync.WaitGroup
			var want atomic.Int64
			for _, key := range keys[1:] {
				wg.Go(func() {
					for range each {
						want.Add(1)
						_, id, err := take(key, store.ModeCharge)
						if id%3 == 0 && err == nil {
							want.Add(1)
							err = s.(store.Settler).Settle(ctx, store.Settlement{Key: key, ID: id, Cost: 2})
						}
						if err != nil {
							t.Errorf("of another key: %v", err)
						}
					}
				})
			}
			for range 10 * each {
				_, id, err := take(keys[0], store.ModeCharge)
				again := s.(store.Settler).Settle(ctx, store.Settlement{Key: keys[0], ID: id, Cost: 2})
				for _, err := range []error{err, again} {
					var failed *store.StoreError
					if !errors.As(err, &failed) || !failed.OneKey {
						t.Errorf("of the key itself: %v", err)
					}
				}
			}
			wg.Wait()
			used := 0
			for _, key := range keys[1:] {
				a, _, err := take(key, store.ModePeek)
				if err != nil {
					t.Fatal(err)
				}
				used += a.State[0].Used
			}
			if int64(used) != want.Load() {
				t.Errorf("%d units, want %d", used, want.Load())
			}
			rdb.Del(ctx, odd)
		})
	}
}

// Takes that go together to a shard of a Ring that is down tell so.
func TestBatchToADeadShard(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": server.Addr()}, HeartbeatFrequency: time.Hour, MaxRetries: -1,
	})
	t.Cleanup(func() { ring.Close() })
	plan := planOf(core.Limits{core.PerHour(5)}, store.Plan{})
	var takes []store.Take
	for i, key := range keysOf(t, 3, "shard") {
		takes = append(takes, store.Take{Key: key, Plan: plan, Cost: 1, ID: uint64(i + 1)})
	}
	_, err := redisstore.TakeTogether(t.Context(), redisstore.New(ring), false, takes)
	if dial := new(net.OpError); classOf(err) != redisstore.ClassRefused && !errors.As(err, &dial) {
		t.Errorf("%v; want that there is no connection", err)
	}
}
