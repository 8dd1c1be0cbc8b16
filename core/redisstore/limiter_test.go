package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/allocs"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
	"github.com/sashlimit/sash/core/store"
)

// newLimiter makes a limiter that is closed when the test ends.
func newLimiter(t *testing.T, p core.Policy, s store.Store, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, core.ByText(), append([]core.Option{core.WithName("test"), core.WithStore(s)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// From Redis 7.2 on the user's name is in the server's replies. It must not appear in errors, in Check or in the log.
func TestUserNameIsNotTold(t *testing.T) {
	const user = "alice"
	addr := redisserver.StartFake(t, func(command []string) string {
		if command[0] == "EVALSHA" || command[0] == "EVAL" {
			name := strings.ToLower(command[0])
			return "-NOPERM User " + user + " has no permissions to run the '" + name + "' command\r\n"
		}
		return ""
	})
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer rdb.Close()
	l := newLimiter(t, core.PerMinute(5), redisstore.New(rdb), core.WithFailure(core.FailClosed))
	told := ""
	log := logged(t, func() {
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			told += err.Error()
		}
	})
	if !strings.Contains(log, "NOPERM") || !strings.Contains(told, "NOPERM") {
		t.Fatalf("nothing is told: %s\n%s", told, log)
	}
	if err := redisstore.Check(t.Context(), rdb); err == nil || !strings.Contains(err.Error(), "+evalsha") {
		t.Error(err)
	} else {
		told += err.Error()
	}
	if all := told + log; strings.Contains(all, user) {
		t.Errorf("the user's name is told:\n%s", all)
	}
}

// logged returns what is logged while f runs.
func logged(t *testing.T, f func()) string {
	t.Helper()
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	f()
	return log.String()
}

// Two stores of one client, package and prefix hold the same logs, and limiters on them are warned of as on one store.
func TestWarnsOfLogsSharedByTwoStores(t *testing.T) {
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer one.Close()
	other := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer other.Close()
	limit := core.PerMinute(1 + rand.IntN(core.MaxQuota)) // a process warns once of each
	limited := func(s store.Store) {
		if _, err := core.New(limit, core.ByIP(), core.WithStore(s)); err != nil {
			t.Fatal(err)
		}
	}
	if log := logged(t, func() {
		limited(redisstore.New(one))
		limited(redisstore.New(other))
		limited(redisstore.New(one, redisstore.WithPrefix("api")))
		limited(redisstream.New(one))
	}); log != "" {
		t.Errorf("different logs, and there is a warning:\n%s", log)
	}
	log := logged(t, func() { limited(redisstore.New(one)) })
	if strings.Count(log, "two limiters share a store and a name") != 1 {
		t.Errorf("want one warning:\n%s", log)
	}
	runtime.KeepAlive(one)
}

// counted counts commands, and hides what kind of client it is.
type counted struct {
	redisstore.Client

	sent int
}

func (c *counted) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	c.sent++
	return c.Client.EvalSha(ctx, sha1, keys, args...)
}

// The keys of a client whose type is not known are taken to be on several servers, which the log says, once for each
// type. With WithOneServer a request over several keys is one command, and so is one over several limits of a key.
func TestCommandsOfARequest(t *testing.T) {
	rdb := start(t)
	limits := core.Limits{core.PerHour(9), core.PerDay(9)}
	keys := core.Limits{core.PerHour(9), core.PerDay(9).By(core.Global())}
	sends := func(n int, policy core.Policy, opts ...redisstore.Option) string {
		client := &counted{Client: rdb}
		return logged(t, func() {
			l := newLimiter(t, policy, redisstore.New(client, opts...), core.WithTimeout(time.Minute))
			for i := range 3 {
				client.sent = 0
				if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed || d.Degraded {
					t.Errorf("%+v, %v", d, err)
				}
				if client.sent != n && i > 0 { // the first one may make the script known
					t.Errorf("%d commands for a request over %v, want %d", client.sent, policy, n)
				}
			}
			must(t, l.Close())
		})
	}
	if log := sends(1, keys, redisstore.WithOneServer()); log != "" {
		t.Errorf("logged %s", log)
	}
	log := sends(2, keys) + sends(1, limits)
	if warned.CompareAndSwap(false, true) && (strings.Count(log, "type=*redisstore_test.counted ") != 1 ||
		!strings.Contains(log, "redisstore.WithOneServer()")) {
		t.Errorf("want one warning: %s", log)
	}
}

// warned tells that this process has logged the warning of TestCommandsOfARequest, which is logged once.
var warned atomic.Bool

// Of those of a request, go-redis makes half.
func TestAllocations(t *testing.T) {
	rdb := start(t)
	for quota, most := range map[int]float64{100_000: 13, 1: 0} { // admitted, and denied from memory
		l := newLimiter(t, core.PerHour(quota), redisstore.New(rdb), core.WithTimeout(time.Minute),
			core.WithName("allocs-"+strconv.Itoa(quota)))
		for range 2 {
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		n := allocs.PerRun(200, func() {
			if d, err := l.Allow(t.Context(), "k"); err != nil || d.Degraded || d.Allowed != (quota > 1) {
				t.Error(d, err)
			}
		})
		if n > most && !testlen.Race {
			t.Errorf("a quota of %d: %v allocations a request, want at most %v", quota, n, most)
		}
	}
}

// Whatever a key is, each client of go-redis counts it exactly, by its own limits and by one that all share.
func TestEveryClient(t *testing.T) {
	t.Parallel()
	cluster := redisserver.StartCluster(t, 3).Addrs()
	server := redisserver.Start(t).Addr()
	shards := map[string]string{"a": redisserver.Start(t).Addr(), "b": server}
	for name, client := range map[string]redis.UniversalClient{
		"client":    redis.NewClient(&redis.Options{Addr: server}),
		"cluster":   redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster}),
		"ring":      redis.NewRing(&redis.RingOptions{Addrs: shards}),
		"universal": redis.NewUniversalClient(&redis.UniversalOptions{Addrs: cluster}),
	} {
		t.Run(name, func(t *testing.T) {
			keys := []string{"a", "b", "c", "d", "}", "{}x", "{a}b", "\x00", "\r\n"}
			limits := core.Limits{core.PerMinute(5), core.PerHour(7), core.PerDay(5*len(keys) - 2).By(core.Global())}
			l := newLimiter(t, limits, redisstore.New(client), core.WithName(name), core.WithTimeout(time.Minute))
			for i, key := range keys {
				want := 5
				if i == len(keys)-1 {
					want = 3
				}
				for n := range 10 {
					if d, err := l.Allow(t.Context(), key); err != nil || d.Degraded || d.Allowed != (n < want) {
						t.Fatalf("key %q: request %d: %+v, %v", key, n+1, d, err)
					}
				}
				if err := l.Reset(t.Context(), key); err != nil && i == 0 {
					t.Errorf("key %q: reset: %v", key, err)
				}
			}
			l.Close()
			client.Close()
		})
	}
}

// What was recorded beyond a quota that is counted, and what an override lets pass, was refused by the script. That was
// taken for an outage, in which each process decides about all keys by itself.
func TestBeyondTheQuotaOfCounters(t *testing.T) {
	s := redisstore.New(start(t))
	for name, limit := range map[string]core.Limit{
		"calendar": core.PerYear(3),
		"window":   core.PerDay(3).With(core.FixedWindow),
		"counter":  core.PerDay(3).With(core.SlidingCounter),
		"bucket":   core.TokenBucket(core.PerDay(3), 3), // which has 3 units at most
	} {
		l := newLimiter(t, limit, s, core.WithName(name), core.WithTimeout(time.Minute), core.WithOverrides())
		must(t, l.Override(t.Context(), "ann", core.Override{Unlimited: true, Until: time.Now().Add(time.Hour)}))
		for n := range 4 {
			d, err := l.Allow(t.Context(), "ann")
			if recorded, err := l.Record(t.Context(), "bob", 2); err != nil || recorded.Degraded {
				t.Fatalf("%s: record %d: %+v, %v", name, n+1, recorded, err)
			}
			if err != nil || d.Degraded || !d.Allowed {
				t.Fatalf("%s: request %d: %+v, %v", name, n+1, d, err)
			}
		}
		must(t, l.RemoveOverride(t.Context(), "ann"))
		for key, units := range map[string]int{"ann": 4, "bob": 8} {
			if name == "bucket" {
				units = 3
			}
			if d, err := l.Allow(t.Context(), key); err != nil || d.Degraded || d.Allowed || d.Used != units {
				t.Errorf("%s: %s afterwards: %+v, %v; want a denial, of %d used", name, key, d, err, units)
			}
		}
	}
}

// A bucket forgot what it had given when a plan with a much smaller one was asked, in memory, or settled, in Redis.
func TestBucketsOfTwoSizes(t *testing.T) {
	type size struct{}
	limits := core.LimitBy(func(ctx context.Context) core.Limits {
		n, _ := ctx.Value(size{}).(int)
		return core.Limits{core.TokenBucket(core.PerDay(1), n)}
	})
	large, small := context.WithValue(t.Context(), size{}, 30), context.WithValue(t.Context(), size{}, 1)
	for _, s := range []store.Store{core.NewMemoryStore(), redisstore.New(start(t))} {
		l := newLimiter(t, limits, s, core.WithTimeout(time.Minute))
		_, err := l.AllowN(large, "k", 25)
		must(t, err)
		d, err := l.Record(small, "k", 1)
		must(t, err)
		must(t, d.Settle(small, 2))
		if d, err = l.Peek(large, "k"); err != nil || d.Used != 25 {
			t.Errorf("%T: %+v, %v; want 25 used", s, d, err)
		}
	}
}

// Where Redis has lost the overrides, a process that has read them learns that there are none.
func TestLostOverrides(t *testing.T) {
	rdb := start(t)
	s, _ := redisstore.New(rdb).(store.Overrider)
	o := store.Override{Name: "a", Value: "v", Until: time.Now().Add(time.Hour)}
	must(t, s.SetOverride(t.Context(), "p", o))
	known, all, err := s.Overrides(t.Context(), "p", "")
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	flush(t, rdb)
	if now, all, err := s.Overrides(t.Context(), "p", known); err != nil || now == known || len(all) > 0 {
		t.Errorf("version %q after %q: %v, %v; want another version and none", now, known, all, err)
	}
}

// The script counts overrides apart from pauses, and those that have ended only until it needs their places.
func TestTooManyOverrides(t *testing.T) {
	rdb := start(t)
	s, _ := redisstore.New(rdb).(store.Overrider)
	until := time.Now().Add(time.Hour)
	field := func(until time.Time) string { return fmt.Sprint(until.UnixMilli(), " v") }
	all := []any{"", "version 1", "pause", fmt.Sprint(until.UnixMilli(), "e v"), "ended", field(time.Now())}
	for i := range store.MaxOverrides - 1 {
		all = append(all, strconv.Itoa(i), field(until))
	}
	must(t, rdb.HSet(t.Context(), "sash:overrides:p", all...).Err())
	for _, c := range []struct {
		name, value string
		extend, ok  bool
	}{
		{"in place of what has ended", "v", false, true},
		{"one too many", "v", false, false},
		{"7", "it is there already", false, true},
		{"another pause", "v", true, true},
		{"8", "", false, true},
		{"in place of what was removed", "v", false, true},
		{"again one too many", "v", false, false},
	} {
		o := store.Override{Name: c.name, Value: c.value, Until: until, Extend: c.extend}
		err := s.SetOverride(t.Context(), "p", o)
		if c.ok && err != nil || !c.ok && !errors.As(err, new(*store.ConfigError)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// With late replies, one fault made a process decide alone for good: the replay and the request that found Redis back
// shared one deadline.
func TestRecoveryWhereRepliesAreLate(t *testing.T) {
	t.Parallel()
	for name, newStore := range map[string]func(redisstore.Client) store.Store{"set": inSets, "stream": inStreams} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redisserver.StartProxy(t, redisserver.Start(t).Addr())
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
			defer rdb.Close()
			l := newLimiter(t, core.PerHour(100_000), newStore(rdb), core.WithTimeout(500*time.Millisecond),
				core.WithName(name))
			var inRow, admitted atomic.Int64 // decisions of the store; units
			var all sync.WaitGroup
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for began := time.Now(); inRow.Load() < 20 || time.Since(began) < 1500*time.Millisecond; <-tick.C {
				switch since := time.Since(began); {
				case since > time.Minute:
					t.Fatal("a minute after a glitch of 0.75 s the store does not decide yet")
				case since > 250*time.Millisecond && since < time.Second:
					proxy.SetDelay(750 * time.Millisecond)
					inRow.Store(0)
				default:
					proxy.SetDelay(160 * time.Millisecond)
				}
				all.Go(func() {
					d, err := l.Allow(context.Background(), "k")
					if inRow.Add(1); err != nil || d.Degraded {
						inRow.Store(0)
					}
					if err == nil && d.Allowed {
						admitted.Add(1)
					}
				})
			}
			all.Wait()
			proxy.SetDelay(0)
			must(t, l.Close())
			d, err := l.Peek(context.Background(), "k")
			if err != nil || d.Degraded || int64(d.Used) != admitted.Load() {
				t.Errorf("%d units in the store, %d were admitted; %+v, %v", d.Used, admitted.Load(), d, err)
			}
		})
	}
}
