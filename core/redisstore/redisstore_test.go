package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
	"github.com/sashlimit/sash/core/store"
)

// start gives a client of an empty server, and looks at every key that the test leaves.
func start(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), ReadTimeout: 30 * time.Second})
	t.Cleanup(func() {
		checkKeys(t, rdb)
		rdb.Close()
	})
	return rdb
}

// startOnce returns a function that empties one server for each of several tests, which run one after the other.
func startOnce(t *testing.T) func(t *testing.T) *redis.Client {
	t.Helper()
	rdb := start(t)
	return func(t *testing.T) *redis.Client {
		t.Helper()
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { checkKeys(t, rdb) })
		return rdb
	}
}

// startCluster starts three masters that are not taken for failed when a busy machine delays their messages.
func startCluster(t *testing.T) *redistest.Cluster {
	t.Helper()
	cluster := redistest.StartCluster(t, 3)
	for _, node := range cluster.Nodes() {
		do(t, node, "CONFIG", "SET", "cluster-node-timeout", "15000")
	}
	return cluster
}

var keyPattern = regexp.MustCompile(`^[a-z0-9:._-]{1,128}$`)

// checkKeys: every key is well-formed and will leave by itself.
func checkKeys(t *testing.T, rdb *redis.Client) {
	t.Helper()
	const most = 365*24*time.Hour + time.Hour // which redistest.Clock adds
	ctx := context.Background()
	keys := rdb.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		if !keyPattern.MatchString(key) {
			t.Errorf("key %q does not match %v", key, keyPattern)
		}
		ttl := rdb.PTTL(ctx, key).Val()
		if ttl == -2 || ttl == 0 {
			continue // gone since, or in its last millisecond
		}
		longest := most
		if rdb.Type(ctx, key).Val() == "string" { // of a sliding counter, which stays for two windows, or a calendar
			longest *= 2
		}
		if ttl <= 0 || ttl > longest+time.Second {
			t.Errorf("key %q: PTTL %v", key, ttl)
		}
	}
	if err := keys.Err(); err != nil {
		t.Error(err)
	}
}

func newLimiter(t *testing.T, p core.Policy, store core.Store, opts ...core.Option) *core.Limiter {
	t.Helper()
	// These tests are about the store and must not time out, however slow it is under the race detector.
	opts = append([]core.Option{
		core.WithStore(store), core.WithDenyCache(0), core.WithTimeout(time.Minute), core.WithFailure(core.FailClosed),
	}, opts...)
	l, err := core.New(p, core.Global(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// only is the key that the server holds.
func only(t *testing.T, rdb redis.Cmdable) string {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys %v, %v; want one", keys, err)
	}
	return keys[0]
}

func TestStore(t *testing.T) {
	t.Parallel()
	testStore(t, false)
}

func TestStoreWhenEveryCommandIsSentTwice(t *testing.T) {
	testlen.SkipRace(t)
	t.Parallel()
	testStore(t, true)
}

func testStore(t *testing.T, repeats bool) {
	var p *paths
	var running string
	// A short test has a twentieth of these. Where commands are sent twice, half of the checks are as many commands.
	checks, least := testlen.Of(100_000, 50_000), maps.Clone(tracedPaths)
	if repeats {
		checks /= 2
	}
	for path, n := range least {
		n = n * checks / 100_000
		least[path] = testlen.Of(max(n/100, 1), n)
	}
	empty := startOnce(t)
	coretest.Store(t, coretest.StoreConfig{
		Repeats: repeats,
		Checks:  checks,
		New: func(t *testing.T) (core.Store, func(time.Duration)) {
			p = newPaths(newHashed(empty(t)))
			c := newClock(p)
			if repeats {
				c.processor = twice{processor: p, t: t}
			}
			s := newStore(c)
			if isJointCase(running) {
				s = redisstore.Single(s)
			}
			return s, c.Advance
		},
		Run: func(t *testing.T, name string, f func(*testing.T)) {
			running = name
			t.Run(name, func(t *testing.T) {
				f(t)
				if name == "Oracle" {
					p.want(t, least)
				}
			})
		},
	})
}

func isJointCase(name string) bool {
	return strings.HasPrefix(name, "Joint") || strings.HasPrefix(name, "Slots")
}

// The logs of a request are asked one after the other, as on several servers.
func TestJointStoreInTurn(t *testing.T) {
	t.Parallel()
	for _, repeats := range []bool{false, true} {
		t.Run(fmt.Sprint("repeats ", repeats), func(t *testing.T) {
			empty := startOnce(t)
			var running string
			coretest.Store(t, coretest.StoreConfig{
				Repeats: repeats,
				Checks:  6_000,
				New: func(t *testing.T) (core.Store, func(time.Duration)) {
					c := newClock(empty(t))
					if repeats {
						c.processor = twice{processor: c.processor, t: t, undone: !strings.HasSuffix(running, "Oracle")}
					}
					return newStore(c), c.Advance
				},
				Run: func(t *testing.T, name string, f func(*testing.T)) {
					if running = name; isJointCase(name) {
						t.Run(name, f)
					}
				},
			})
		})
	}
}

func TestRetryAfterAdmits(t *testing.T) {
	l := newLimiter(t, core.Limit{Quota: 3, Window: 80 * time.Millisecond}, redisstore.New(start(t)))
	denied := 0
	for n := 0; n < 60 || denied < 10; n++ { // a slow machine is seldom denied
		d, err := l.Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			continue
		}
		denied++
		<-time.After(d.RetryAfter)
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatalf("denied again after waiting exactly Retry-After: %+v, %v", d, err)
		}
	}
}

// The classic sequence in real time, ten times as fast. A second limit, which is never reached, keeps the log of it
// all: at each instant the log says whether a request was to be admitted, however late the ticks are.
func TestClassicSequenceInRealTime(t *testing.T) {
	t.Parallel()
	const quota, window = 5, time.Second
	l := newLimiter(t, core.Limits{{Quota: quota, Window: window}, core.PerHour(1000)}, redisstore.New(start(t)))
	tick := time.NewTicker(window / 10)
	defer tick.Stop()
	type span struct{ began, ended time.Time }
	var denied []span
	allowed, pattern := 0, ""
	for range 60 {
		began := time.Now()
		d, err := l.Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			allowed++
			pattern += "y"
		} else {
			denied = append(denied, span{began, time.Now()})
			pattern += "n"
		}
		<-tick.C
	}
	entries, err := l.Log(t.Context(), "k")
	if err != nil || len(entries) != allowed || allowed < 28 {
		t.Fatalf("%d of 60 allowed, %d entries, %v; want 30 or more: %s", allowed, len(entries), err, pattern)
	}
	coretest.Verify(t, entries, core.Limits{{Quota: quota, Window: window}})
	for _, s := range denied {
		used := 0
		for _, e := range entries { // the server's clock is ours, in whole microseconds
			if e.At.After(s.began.Add(-window-time.Microsecond)) && e.At.Before(s.ended) {
				used++
			}
		}
		if used < quota {
			t.Errorf("denied with %d of %d used: %s", used, quota, pattern)
		}
	}
}

func TestThousandOfThreeThousand(t *testing.T) {
	rdb := start(t)
	l := newLimiter(t, core.PerMinute(1000), redisstore.New(rdb))
	var admitted atomic.Int64
	var wg sync.WaitGroup
	ready := make(chan struct{})
	for range 3000 {
		wg.Go(func() {
			<-ready
			d, err := l.Allow(context.Background(), "k")
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				admitted.Add(1)
			}
		})
	}
	close(ready)
	wg.Wait()
	entries, err := rdb.ZRangeWithScores(t.Context(), only(t, rdb), 0, -1).Result()
	if err != nil || admitted.Load() != 1000 || len(entries) != 1000 {
		t.Fatalf("%d admitted, %d entries, %v; want 1000 of each", admitted.Load(), len(entries), err)
	}
	for _, e := range entries {
		if s := strconv.FormatFloat(e.Score, 'f', -1, 64); len(s) != 16 || strings.Trim(s, "0123456789") != "" {
			t.Fatalf("score %s is not 16 digits", s)
		}
		if member := e.Member.(string); len(member) != 8 {
			t.Fatalf("member %q is not 8 bytes", member)
		}
	}
}

func TestDenialWritesNothing(t *testing.T) {
	denialWritesNothing(t, inSets)
	denialWritesNothing(t, inStreams)
}

func denialWritesNothing(t *testing.T, newStore func(redisstore.Client) core.Store) {
	rdb := start(t)
	l := newLimiter(t, core.PerHour(2), newStore(rdb))
	for range 2 {
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	key := only(t, rdb)
	changes := func() string {
		info := rdb.Info(t.Context(), "persistence").Val()
		_, rest, _ := strings.Cut(info, "rdb_changes_since_last_save:")
		n, _, _ := strings.Cut(rest, "\r\n")
		return n
	}
	before, expires := changes(), expiresAt(t, rdb, key)
	for range 100 {
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed {
			t.Fatal(d, err)
		}
		if _, err := l.Peek(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if after := changes(); after != before {
		t.Errorf("200 denials and peeks made %s changes, %s before them", after, before)
	}
	if now := expiresAt(t, rdb, key); !now.Equal(expires) {
		t.Errorf("a denial renewed the key from %v to %v", expires, now)
	}
}

func TestTTL(t *testing.T) {
	rdb := start(t)
	windows := []time.Duration{
		time.Millisecond, 1001 * time.Microsecond, 1999 * time.Microsecond, time.Second, core.MaxWindow,
	}
	for i := 0; i < len(windows); i++ {
		window, begun := windows[i], time.Now()
		limits := core.Limits{{Quota: 5, Window: window}, {Quota: 1, Window: core.MinWindow, Name: "short"}}
		l := newLimiter(t, limits, redisstore.New(rdb))
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		keys := rdb.Keys(t.Context(), "*").Val()
		var ttl time.Duration
		if len(keys) == 1 {
			ttl = rdb.PTTL(t.Context(), keys[0]).Val()
		}
		if window < time.Hour && time.Since(begun) > window+time.Second {
			i-- // it has left, since the machine is slow
		} else if ttl <= 0 || ttl > window+time.Second {
			t.Errorf("window %v: keys %q, PTTL %v", window, keys, ttl)
		}
		rdb.FlushAll(t.Context())
	}
}

func TestScriptFlushIsInvisible(t *testing.T) {
	rdb := start(t)
	l := newLimiter(t, core.PerHour(300), redisstore.New(rdb))
	for i := range 500 {
		if i%7 == 0 {
			rdb.ScriptFlush(t.Context())
		}
		d, err := l.Allow(t.Context(), "k")
		if err != nil || d.Allowed != (i < 300) {
			t.Fatalf("request %d: %+v, %v", i, d, err)
		}
	}
	if err := l.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
}

// A reply that is lost with its connection makes go-redis send the command again. Where the connection stays, go-redis
// waits for the reply until its ReadTimeout, and does not try again if the next connection's handshake takes as long,
// as it may on a slow machine: the suite of faults has that.
func TestLostRepliesChargeOnce(t *testing.T) {
	lostReplies(t, inSets, func(rdb *redis.Client, key string) int64 { return rdb.ZCard(t.Context(), key).Val() })
}

// lostReplies is TestLostRepliesChargeOnce for a kind of store. size counts the entries of a log.
func lostReplies(
	t *testing.T, newStore func(redisstore.Client) core.Store, size func(*redis.Client, string) int64,
) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	direct := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer direct.Close()
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 1, ReadTimeout: 30 * time.Second})
	defer rdb.Close()
	l := newLimiter(t, core.PerHour(10), newStore(rdb))
	if _, err := l.Peek(t.Context(), "k"); err != nil { // the server knows the script, the pool a connection
		t.Fatal(err)
	}
	executions := func() (n int) {
		_, rest, _ := strings.Cut(direct.Info(context.Background(), "commandstats").Val(), "cmdstat_evalsha:calls=")
		fmt.Sscanf(rest, "%d,", &n)
		return n
	}
	first := executions()
	for i := range 15 {
		before := proxy.Dropped()
		proxy.DropReplies(true)
		done := make(chan struct{})
		go func() {
			defer close(done)
			d, err := l.Allow(context.Background(), "k")
			if err != nil || d.Allowed != (i < 10) {
				t.Errorf("request %d: %+v, %v", i, d, err)
			}
		}()
		for proxy.Dropped() == before {
			select {
			case <-done:
				t.Fatalf("request %d was answered without a reply", i)
			default:
				runtime.Gosched()
			}
		}
		proxy.DropReplies(false)
		proxy.Cut()
		<-done
	}
	if n := executions() - first; n < 30 {
		t.Fatalf("15 requests were executed %d times: no reply was lost, so the test proves nothing", n)
	}
	if n := size(direct, only(t, direct)); n != 10 {
		t.Errorf("%d entries after 15 requests of a quota of 10", n)
	}
}

func TestClockSteps(t *testing.T) { clockSteps(t, newStore) }

func clockSteps(t *testing.T, newStore func(processor) core.Store) {
	const quota, window = 5, time.Minute
	for _, step := range []time.Duration{-time.Second, -window / 2, -window, -time.Hour, -24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			c := newClock(start(t))
			l := newLimiter(t, core.Limit{Quota: quota, Window: window}, newStore(c))
			take := func() core.Decision {
				d, err := l.Allow(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if d.RetryAfter < 0 || d.RetryAfter > window+store.LongestLease ||
					d.ResetAfter > window+store.LongestLease {
					t.Errorf("after the step: retry %v, reset %v", d.RetryAfter, d.ResetAfter)
				}
				return d
			}
			for range quota {
				take()
			}
			c.Advance(step)
			for range 3 {
				if d := take(); d.Allowed {
					t.Error("a step back gave a second quota")
				}
			}
			c.Advance(window + store.LongestLease)
			admitted := 0
			for range 2 * quota {
				if take().Allowed {
					admitted++
				}
			}
			if admitted != quota {
				t.Errorf("one window after the step %d are admitted, want %d", admitted, quota)
			}
		})
	}
}

// A step back while there is room left must not cost more than a window either.
func TestClockStepsBackInHalfFullWindow(t *testing.T) {
	c := newClock(start(t))
	l := newLimiter(t, core.Limit{Quota: 5, Window: time.Minute}, newStore(c))
	allowed := func() (n int) {
		for range 8 {
			if d, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			} else if d.Allowed {
				n++
			}
		}
		return n
	}
	if d, err := l.AllowN(t.Context(), "k", 4); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	c.Advance(-time.Hour)
	if n := allowed(); n != 1 {
		t.Errorf("%d allowed after the step, want the 1 that was left", n)
	}
	c.Advance(time.Minute + store.LongestLease)
	if n := allowed(); n != 5 {
		t.Errorf("%d allowed a window later, want 5", n)
	}
}

// Once the clock has stepped back, an admission repairs the log as well as a denial.
func TestClockStepsBackForALoneClient(t *testing.T) {
	c := newClock(start(t))
	l := newLimiter(t, core.Limit{Quota: 5, Window: time.Minute}, newStore(c))
	if _, err := l.AllowN(t.Context(), "k", 4); err != nil {
		t.Fatal(err)
	}
	c.Advance(-time.Hour)
	for i := range 5 {
		d, err := l.Allow(t.Context(), "k")
		if err != nil || !d.Allowed || i > 0 && d.Remaining != 4 {
			t.Errorf("request %d after the step: allowed %v, remaining %d, %v", i+1, d.Allowed, d.Remaining, err)
		}
		c.Advance(61 * time.Second)
	}
}

// A reset deletes a log when the clock has stepped back as well: only bookings are kept.
func TestResetAfterClockStepsBack(t *testing.T) {
	for _, c := range []struct {
		cost     int
		repaired bool // which a log with weights is not here: for a second, its entries are where bookings are
	}{{1, false}, {1, true}, {3, false}} {
		clock := newClock(start(t))
		l := newLimiter(t, core.PerMinute(3), newStore(clock))
		allow := func(cost int, want bool) {
			t.Helper()
			if d, err := l.AllowN(t.Context(), "k", cost); err != nil || d.Allowed != want {
				t.Fatalf("%+v: %v, %v; want allowed %v", c, d, err, want)
			}
		}
		for range 3 / c.cost {
			allow(c.cost, true)
		}
		clock.Advance(-time.Hour)
		if c.repaired {
			allow(1, false)
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		allow(3, true)
	}
}

// Two processes, of which one has only seen the short window so far.
func TestProcessesWithDifferentWindows(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	policy := func(l core.Limit) core.Policy {
		return core.LimitBy(func(context.Context) core.Limits { return core.Limits{l} })
	}
	hour := newLimiter(t, policy(core.PerHour(5)), newStore(c))
	short := newLimiter(t, policy(core.Limit{Quota: 100, Window: 50 * time.Millisecond}), newStore(c))
	admitted := 0
	for range 40 {
		d, err := hour.Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			admitted++
		}
		for range 2 {
			c.Advance(60 * time.Millisecond)
			if d, err := short.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
	}
	// The first of the hour's requests, then four of the others fill its quota.
	if admitted != 2 {
		t.Errorf("%d admitted within an hour, want 2", admitted)
	}
	if ttl := rdb.PTTL(t.Context(), only(t, rdb)).Val(); ttl < time.Hour {
		t.Errorf("PTTL %v, although an hour is asked about", ttl)
	}
}

// A policy of the same name with fixed limits has left entries of another form.
func TestFixedLimitsBecomeVaried(t *testing.T) {
	c := newClock(start(t))
	name := core.WithName("plan")
	fixed := newLimiter(t, core.PerHour(10_000), newStore(c), name)
	fill(t, newStore(c), store.NewKey("plan", "k"), 5000)
	for _, limit := range []core.Limit{
		core.PerSecond(10_000), core.PerDay(10_000), core.PerSecond(10_000), core.PerHour(10_000),
	} {
		policy := core.LimitBy(func(context.Context) core.Limits { return core.Limits{limit} })
		varied := newLimiter(t, policy, newStore(c), name)
		if d, err := varied.AllowN(t.Context(), "k", 3); err != nil || !d.Allowed {
			t.Errorf("%v: %+v, %v", limit, d, err)
		}
		c.Advance(time.Millisecond)
	}
	d, err := fixed.Peek(t.Context(), "k")
	if err != nil || d.Used != 5012 {
		t.Errorf("used %d, %v; want 5012", d.Used, err)
	}
}

// A user without a permission is refused, and leaves no key without an expiry.
func TestMissingPermission(t *testing.T) {
	rdb := start(t)
	ctx := t.Context()
	all := []string{
		"eval", "evalsha", "time", "pexpire", "pttl", "unlink",
		"zadd", "zcard", "zcount", "zrange", "zrangebyscore", "zremrangebyscore", "zscore",
	}
	for i, missing := range append([]string{"none"}, all...) {
		user := fmt.Sprintf("user%d", i)
		rules := []any{"ACL", "SETUSER", user, "on", "nopass", "~sash:*", "-@all", "+ping", "+hello"}
		for _, command := range all {
			if command != missing {
				rules = append(rules, "+"+command)
			}
		}
		if err := rdb.Do(ctx, rules...).Err(); err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr, Username: user, Password: "any"})
		l := newLimiter(t, core.Limits{core.PerSecond(3), core.PerHour(5)}, redisstore.New(client))
		failed := false
		for range 8 {
			if _, err := l.Allow(ctx, user); err != nil {
				failed = true
			}
		}
		// So many calls take longer than this window, so something has to be removed.
		short := newLimiter(t, core.Limit{Quota: 3, Window: time.Millisecond}, redisstore.New(client))
		for range 100 {
			if _, err := short.Allow(ctx, user); err != nil {
				failed = true
			}
		}
		if (missing == "none" || missing == "zrangebyscore" || missing == "unlink" || missing == "eval") == failed {
			t.Errorf("without %s: failed %v", missing, failed)
		}
		client.Close()
	} // and checkKeys looks for what has no TTL
}

func TestWhatNewRefuses(t *testing.T) {
	var typedNil *redis.Client
	good := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer good.Close()
	for _, c := range []struct {
		desc  string
		store core.Store
		limit core.Policy
		want  []string
	}{
		{"nil client", redisstore.New(nil), core.PerSecond(1), []string{"redisstore.New(nil)"}},
		{"typed nil client", redisstore.New(typedNil), core.PerSecond(1), []string{"redisstore.New(nil)"}},
		{"nil option", redisstore.New(good, nil), core.PerSecond(1), []string{"nil option"}},
		{"empty prefix", redisstore.New(good, redisstore.WithPrefix("")), core.PerSecond(1),
			[]string{`redisstore.WithPrefix("")`}},
		{"all at once", redisstore.New(nil, redisstore.WithPrefix("{a}")), core.PerSecond(0),
			[]string{"redisstore.New(nil)", `redisstore.WithPrefix("{a}")`, "limits(0/second)"}},
	} {
		_, err := core.New(c.limit, core.ByIP(), core.WithStore(c.store))
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one that says %q", c.desc, err, want)
			}
		}
	}
	store := redisstore.New(good, redisstore.WithPrefix("my-app"))
	if _, err := core.New(core.PerSecond(core.MaxQuota), core.ByIP(), core.WithStore(store)); err != nil {
		t.Errorf("a good configuration, and no server to be reached: %v", err)
	}
}

// tooMuch is a cost that the store does not record. On 32 bits there is none, and the test is skipped.
func tooMuch(t *testing.T) int {
	t.Helper()
	if math.MaxInt == math.MaxInt32 {
		t.Skip("no int is too large")
	}
	most := math.MaxInt32
	return most + 1 // not a constant, which 32 bits have no room for
}

func TestCostAboveWhatIsRecordedAtOnce(t *testing.T) {
	logs := full(redisstore.New(start(t)))
	take := store.Take{
		Key: store.NewKey("p", "k"), Plan: planOf(core.Limits{core.PerHour(core.MaxQuota)}, store.Plan{}), ID: 1,
	}
	for cost, wrong := range map[int]bool{core.MaxQuota: false, core.MaxQuota + 1: false, tooMuch(t): true} {
		take.Cost = cost
		_, err := coretest.Take(t.Context(), logs, take)
		settled := logs.Settle(t.Context(), store.Settlement{Key: take.Key, ID: 1, Cost: cost})
		for _, err := range []error{err, settled} {
			if errors.As(err, new(*core.ConfigError)) != wrong || errors.As(err, new(*core.StoreError)) {
				t.Errorf("a cost of %d: %v; want a ConfigError %v, since the store works", cost, err, wrong)
			}
		}
	}
}

// odd is a server that answers something else.
type odd struct{ reply any }

func (o odd) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	if err, ok := o.reply.(error); ok {
		cmd.SetErr(err)
	} else {
		cmd.SetVal(o.reply)
	}
	return cmd
}

func (o odd) Eval(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	return o.EvalSha(ctx, "", keys, args...)
}

func numbers(all ...int64) (reply []any) {
	for _, n := range all {
		reply = append(reply, n)
	}
	return reply
}

func TestOddReplies(t *testing.T) {
	for _, reply := range []any{
		nil, "OK", int64(1), []any{}, []any{int64(0)}, numbers(1, 0, 0), numbers(1, 0, 0, 0, 0),
		[]any{"1", "x", "0", "0"}, []any{nil, nil, nil, nil}, []any{[]any{}, int64(0), int64(0), int64(0)},
		numbers(2, 0, 0, 0), numbers(-1, 5, 5, 5), numbers(0, 0, 0, 0), numbers(1, 1, 0, 0), numbers(0, -2, 5, 5),
		numbers(0, 5, 0, 0), numbers(1, 0, -1, 0), numbers(1, 0, 0, -5), numbers(1, 0, 1<<31, 0),
		numbers(0, 2_000_000, 5, 5),
		numbers(1<<62, 0, 0, 0), numbers(0, 1<<62, 5, 5), numbers(1, 0, 1<<62, 0), numbers(1, 0, 0, 1<<62),
		map[any]any{"a": 1}, true, 1.5, errors.New("ERR broken"), redis.Nil,
	} {
		for _, logs := range []core.Store{redisstore.New(odd{reply}), redisstream.New(odd{reply})} {
			l := newLimiter(t, core.PerSecond(5), logs)
			d, err := l.Allow(t.Context(), "k")
			var store *core.StoreError
			if !errors.As(err, &store) || d.Allowed {
				t.Errorf("reply %v, %T: %+v, %v; want a StoreError", reply, logs, d, err)
			}
		}
	}
}

func TestEveryClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cluster := startCluster(t)
	ring := map[string]string{"a": redistest.Start(t).Addr(), "b": server.Addr()}
	for name, client := range map[string]redis.UniversalClient{
		"Client":        redis.NewClient(&redis.Options{Addr: server.Addr()}),
		"ClusterClient": redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}),
		"Ring":          redis.NewRing(&redis.RingOptions{Addrs: ring}),
		"Universal":     redis.NewUniversalClient(&redis.UniversalOptions{Addrs: cluster.Addrs()}),
	} {
		t.Run(name, func(t *testing.T) {
			defer client.Close()
			limits := core.Limits{core.PerMinute(5), core.PerHour(7)}
			l := newLimiter(t, limits, redisstore.New(client), core.WithName(strings.ToLower(name)))
			for _, key := range []string{"a", "b", "c", "d", "}", "{}x", "{a}b", "\x00", "\r\n"} {
				admitted := 0
				for range 10 {
					d, err := l.Allow(t.Context(), key)
					if err != nil {
						t.Fatalf("key %q: %v", key, err)
					}
					if d.Allowed {
						admitted++
					}
				}
				if admitted != 5 {
					t.Errorf("key %q: %d admitted, want 5", key, admitted)
				}
				if err := l.Reset(t.Context(), key); err != nil {
					t.Errorf("key %q: reset: %v", key, err)
				}
			}
		})
	}
	failover := &redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}}
	var _ redisstore.Client = redis.NewFailoverClient(failover)
	var _ redisstore.Client = redis.NewFailoverClusterClient(failover)
}

const (
	processes  = 3
	goroutines = 100
	rounds     = 20
	quota      = 50
)

// TestProcessesShareOneQuota runs this test binary three times more; each sends
// a hundred requests a round at an instant that all agree on.
func TestProcessesShareOneQuota(t *testing.T) {
	rdb := start(t)
	var outputs [processes]strings.Builder
	commands := make([]*exec.Cmd, processes)
	for i := range commands {
		c := exec.Command(os.Args[0], "-test.run=^TestHelperProcess$")
		c.Env = append(os.Environ(), "SASH_HELPER_REDIS="+rdb.Options().Addr)
		c.Stdout = &outputs[i]
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		commands[i] = c
	}
	var total [rounds]int
	for i, c := range commands {
		if err := c.Wait(); err != nil {
			t.Fatalf("process %d: %v\n%s", i, err, outputs[i].String())
		}
		for line := range strings.Lines(outputs[i].String()) {
			var round, n int
			if k, _ := fmt.Sscanf(line, "round %d admitted %d", &round, &n); k == 2 {
				total[round] += n
			}
		}
	}
	exact := 0
	for round, n := range total {
		if n != quota {
			t.Errorf("round %d: %d admitted, want %d", round, n, quota)
			continue
		}
		exact++
	}
	t.Logf("%d of %d rounds admit exactly %d of %d", exact, rounds, quota, processes*goroutines)
}

func TestHelperProcess(t *testing.T) {
	addr := os.Getenv("SASH_HELPER_REDIS")
	if addr == "" {
		return // only as a part of TestProcessesShareOneQuota
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: goroutines})
	defer rdb.Close()
	l := newLimiter(t, core.PerMinute(quota), redisstore.New(rdb))
	for round := range rounds {
		rdb.Incr(t.Context(), fmt.Sprintf("ready.%d", round))
		rdb.Expire(t.Context(), fmt.Sprintf("ready.%d", round), time.Minute)
		for rdb.Get(t.Context(), fmt.Sprintf("ready.%d", round)).Val() != strconv.Itoa(processes) {
			runtime.Gosched()
		}
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				d, err := l.Allow(context.Background(), fmt.Sprintf("round %d", round))
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					admitted.Add(1)
				}
			})
		}
		wg.Wait()
		fmt.Printf("round %d admitted %d\n", round, admitted.Load())
	}
}

// seer is a hook that notes what it sees.
type seer struct {
	mu   sync.Mutex
	seen []string
}

func (*seer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*seer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *seer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, cmd.Name()+": "+fmt.Sprint(err))
		return err
	}
}

// TestHooks checks that hooks see the store's commands. The module of the benchmarks does so for the newest go-redis.
func TestHooks(t *testing.T) {
	rdb := start(t)
	rdb.ScriptFlush(t.Context())
	s := new(seer)
	rdb.AddHook(s)
	l := newLimiter(t, core.PerHour(1), redisstore.New(rdb))
	for i := range 2 {
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Degraded || d.Allowed != (i == 0) {
			t.Fatal(d, err)
		}
	}
	rdb.Ping(t.Context())
	// Engines word the rest of an error differently.
	want := []string{"evalsha: NOSCRIPT ", "eval: <nil>", "evalsha: <nil>", "ping: <nil>"}
	if !slices.EqualFunc(s.seen, want, strings.HasPrefix) {
		t.Errorf("hooks see %q, want %q", s.seen, want)
	}
}
