package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/redisserver"
)

// A cluster, and clients as go-redis makes them: they do not look at deadlines.
func TestCluster(t *testing.T) {
	slow(t)
	c := redisserver.StartCluster(t, 3, "--cluster-node-timeout", "1000")
	nodeTimeout := func(ms string) {
		each(c, func(s *redisserver.Server) { do(t, s, "CONFIG", "SET", "cluster-node-timeout", ms) })
	}
	nodeTimeout("60000") // or nodes without CPU time miss each other
	slotMoves(t, c)
	nodeTimeout("1000")
	plainClientOfCluster(t, c)
	clusterHangsAtFirst(t, c)
	clusterHangs(t, c)
	oneNodeKilled(t, c)
	clusterDown(t, c)
	clusterKilled(t, c)
}

// beginSlowly is begin where several servers have to agree that all is well.
func beginSlowly(t *testing.T, fault, how string) *row {
	t.Helper()
	r := begin(t, fault, how)
	r.within = agreement
	return r
}

// logKey is the one key of Redis that has a log of this policy.
func logKey(t *testing.T, policy string, servers ...*redisserver.Server) string {
	t.Helper()
	for _, s := range servers {
		for _, key := range do(t, s, "KEYS", "sash:{"+policy+":*").([]any) {
			return key.(string)
		}
	}
	t.Fatalf("no key of %s", policy)
	return ""
}

func slotMoves(t *testing.T, c *redisserver.Cluster) {
	t.Helper()
	r := begin(t, "slot moves", "MIGRATE to each node in turn, under load")
	defer r.end()
	l := r.named("moves", core.PerHour(400), r.cluster(c.Addrs()), longTimeout)
	before := r.burst(l, "k", 20)
	key := logKey(t, "moves", c.Nodes()...)
	r.inject(func() {})
	wait := r.stream(l, 200, 4*time.Second, only("k"))
	for range 2 {
		for _, to := range c.Nodes() {
			if to == c.Owner(key) {
				continue
			}
			move := c.BeginMove(key, to)
			pass(100 * time.Millisecond)
			move.MoveKeys()
			pass(100 * time.Millisecond)
			move.End()
			pass(100 * time.Millisecond)
		}
	}
	during := wait()
	r.over()
	r.degraded(during, false)
	r.exactly("", before.admitted+during.admitted, 400)
	r.logged(l, "k", 400)
}

func plainClientOfCluster(t *testing.T, c *redisserver.Cluster) {
	t.Helper()
	r := begin(t, "MOVED", "redis.NewClient on a cluster")
	defer r.end()
	l := r.named("plain", core.PerHour(20), r.client(&redis.Options{Addr: c.Addrs()[0]}), longTimeout)
	key := ""
	for i := 0; key == ""; i++ { // one that another node has
		if d := r.ask(l, fmt.Sprint(i), new(tally)); d.Degraded {
			key = fmt.Sprint(i)
		}
	}
	r.inject(func() {})
	during := r.stream(l, 200, 300*time.Millisecond, only(key))()
	r.over()
	r.degraded(during, true)
	r.exactly("", 1+during.admitted, 20)
	r.says("MOVED", "NewClusterClient")
	r.unknown = 20
}

// A client that has never seen the cluster asks for its slots first.
func clusterHangsAtFirst(t *testing.T, c *redisserver.Cluster) {
	t.Helper()
	r := beginSlowly(t, "cluster hangs at first", "SIGSTOP to all before the first request")
	defer r.end()
	l := r.named("at-first", core.PerHour(20), r.cluster(c.Addrs()))
	resume := func() { each(c, (*redisserver.Server).Resume) }
	r.outage(l, 20, time.Second, func() { each(c, (*redisserver.Server).Pause) }, resume, 20)
	r.bounded()
}

func each(c *redisserver.Cluster, f func(*redisserver.Server)) {
	for _, s := range c.Nodes() {
		f(s)
	}
}

func clusterHangs(t *testing.T, c *redisserver.Cluster) {
	t.Helper()
	r := beginSlowly(t, "cluster hangs", "SIGSTOP to all under 200 requests/s, SIGCONT")
	defer r.end()
	l := r.named("hangs", core.PerHour(100_000), r.cluster(c.Addrs()))
	keys := func(i int) string { return string(rune('a' + i%10)) }
	wait := r.stream(l, 200, 8*time.Second, keys)
	pass(time.Second)
	r.inject(func() { each(c, (*redisserver.Server).Pause) })
	pass(3 * time.Second)
	r.lift(l, "a", func() { each(c, (*redisserver.Server).Resume) })
	all := wait()
	r.exactly("", all.admitted, all.asked)
	r.bounded()
	logged := 0
	eventually(10*time.Second, func() bool {
		logged = 0
		for i := range 10 {
			entries, _ := l.Log(context.Background(), keys(i))
			logged += units(entries)
		}
		return logged == all.asked
	})
	if logged != all.asked {
		r.errorf("the logs hold %d units of %d requests", logged, all.asked)
	}
}

// If the rest of the cluster goes on, so do the keys on its nodes.
func oneNodeKilled(t *testing.T, c *redisserver.Cluster) {
	t.Helper()
	each(c, func(s *redisserver.Server) { do(t, s, "CONFIG", "SET", "cluster-require-full-coverage", "no") })
	r := beginSlowly(t, "one node of three killed", "kill -9; cluster-require-full-coverage no")
	defer r.end()
	rdb := r.cluster(c.Addrs())
	l := r.named("one", core.PerHour(40), rdb)
	finder := r.named("one", core.PerHour(40), rdb, longTimeout)
	dies := c.Nodes()[0]
	var lost, kept []string // keys
	for i := range 30 {
		key := fmt.Sprint(i)
		r.ask(finder, key, new(tally))
		if len(do(t, dies, "KEYS", "sash:{one:*").([]any)) > 0 {
			lost = append(lost, key)
		} else {
			kept = append(kept, key)
		}
		if err := finder.Reset(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	r.warm(l, kept[0], 1)
	r.inject(dies.Kill)
	chance := rand.New(rand.NewPCG(1, 2))
	r.stream(l, 200, 5*time.Second, func(int) string {
		if chance.IntN(3) == 0 {
			return lost[chance.IntN(len(lost))]
		}
		return kept[chance.IntN(len(kept))]
	})()
	// The limiter has one breaker for all nodes. It opens after five failures in a row, of which answers by other nodes
	// are in between.
	var others tally
	for _, key := range kept {
		others.asked += r.keys[key].asked
		others.degraded += r.keys[key].degraded
	}
	r.tellf("other nodes' keys: %d of %d degraded", others.degraded, others.asked)
	if others.degraded > others.asked/10+int(200*clock.Slack().Seconds()) {
		r.errorf("%d of %d decisions about keys of the nodes that are there are degraded",
			others.degraded, others.asked)
	}
	r.lift(l, lost[0], dies.Restart)
	each(c, func(s *redisserver.Server) { do(t, s, "CONFIG", "SET", "cluster-require-full-coverage", "yes") })
	well(t, c)
}

// well waits until each node says so.
func well(t *testing.T, c *redisserver.Cluster) {
	t.Helper()
	each(c, func(s *redisserver.Server) {
		if !eventually(20*time.Second, func() bool {
			info, err := s.Do("CLUSTER", "INFO")
			return err == nil && strings.Contains(info.(string), "cluster_state:ok")
		}) {
			t.Fatal("the cluster is down")
		}
	})
}

func clusterDown(t *testing.T, c *redisserver.Cluster) {
	t.Helper()
	r := beginSlowly(t, "cluster down", "kill -9 to one node of three, which has no replica")
	defer r.end()
	l := r.named("down", core.PerHour(20), r.cluster(c.Addrs()))
	r.warm(l, "k", 5)
	key := logKey(t, "down", c.Nodes()...)
	var killed *redisserver.Server
	kill := func() {
		for _, s := range c.Nodes() {
			if s != c.Owner(key) {
				killed = s
			}
		}
		killed.Kill()
		if !eventually(20*time.Second, func() bool {
			info, err := c.Owner(key).Do("CLUSTER", "INFO")
			return err == nil && strings.Contains(info.(string), "cluster_state:fail")
		}) {
			t.Fatal("the cluster does not notice")
		}
	}
	r.outage(l, 20, time.Second, kill, func() { killed.Restart() }, 25, "CLUSTERDOWN")
}

func clusterKilled(t *testing.T, c *redisserver.Cluster) {
	t.Helper()
	r := beginSlowly(t, "cluster killed", "kill -9 to all, started again after 1 s")
	defer r.end()
	l := r.named("killed", core.PerHour(quota), r.cluster(c.Addrs()))
	r.warm(l, "k", quota-20)
	restart := func() { each(c, (*redisserver.Server).Restart) }
	r.outage(l, quota, time.Second, func() { each(c, (*redisserver.Server).Kill) }, restart, quota)
}

// The writes that the master had not replicated are lost, and no more than those is admitted again.
func TestFailover(t *testing.T) {
	slow(t)
	for _, failure := range []core.Failure{core.FailClosed, core.FailLocal} {
		func() {
			f := redisserver.StartFailover(t, 1)
			r := beginSlowly(t, "failover", "master killed with 10 writes unsent, Sentinel; "+failure.String())
			defer r.end()
			rdb := redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: redisserver.MasterName, SentinelAddrs: f.SentinelAddrs(),
			})
			r.closers = append(r.closers, rdb.Close)
			l := r.limiter(core.PerHour(40), rdb, core.WithFailure(failure), longTimeout)
			admitted := r.warm(l, "k", 15).admitted
			replicated(t, f, 15)
			r.inject(func() {
				// A large write stops the way to the replica up, so that what comes after it stays in the master.
				f.Replica.Pause()
				do(t, f.Master, "EVAL", "redis.call('SET', 'large', string.rep('x', 20000000))", "0")
				admitted += r.burst(l, "k", 10).admitted
				f.Master.Kill()
				f.Replica.Resume()
			})
			during := r.stream(l, 100, 2*time.Second, only("k"))()
			r.lift(l, "k", func() {})
			after := r.burst(l, "k", 100)
			admitted += during.admitted + after.admitted
			most := 40 + 10 // what was lost may be admitted again
			if failure == core.FailLocal {
				most = 2 * 40 // while there is no master this process decides
			}
			if admitted < 40+10 {
				r.errorf("only %d admitted: nothing was lost, so the test proves nothing", admitted)
			}
			r.atMost("", admitted, most)
		}()
	}
}

// replicated waits until the replica has so many units of the one log.
func replicated(t *testing.T, f *redisserver.Failover, units int64) {
	t.Helper()
	if !eventually(10*time.Second, func() bool {
		key := do(t, f.Replica, "KEYS", "*").([]any)
		return len(key) == 1 && do(t, f.Replica, "ZCARD", key[0].(string)).(int64) == units
	}) {
		t.Fatal("the replica does not follow")
	}
}

// A client that asks a hanging Sentinel for the master waits no longer than for a server.
func TestSentinelHangs(t *testing.T) {
	slow(t)
	f := redisserver.StartFailover(t, 1)
	r := beginSlowly(t, "Sentinel hangs", "SIGSTOP to it, kill -9 to the master")
	defer r.end()
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: redisserver.MasterName, SentinelAddrs: f.SentinelAddrs(),
	})
	r.closers = append(r.closers, rdb.Close)
	l := r.limiter(core.PerHour(40), rdb)
	r.warm(l, "k", 5)
	replicated(t, f, 5)
	inject := func() {
		f.Sentinels[0].Pause()
		f.Master.Kill()
	}
	// After 2 s the Sentinel would trust its clock no more, for 30 s.
	r.outage(l, 40, time.Second, inject, f.Sentinels[0].Resume, 45)
}

// A replica whose clock differs becomes the master, which has the same effect as shifting the log's instants.
func TestClockSkew(t *testing.T) {
	slow(t)
	const quota, window = 10, 500 * time.Millisecond
	const shift = `
for _, m in ipairs(redis.call('ZRANGE', KEYS[1], '0', '-1')) do redis.call('ZINCRBY', KEYS[1], ARGV[1], m) end
redis.call('PEXPIRE', KEYS[1], math.max(1, redis.call('PTTL', KEYS[1]) + ARGV[1] / 1000))`
	server := redisserver.Start(t)
	for _, skew := range []time.Duration{-window / 2, window / 2, -time.Hour, time.Hour} {
		func() {
			r := begin(t, "clock skew", fmt.Sprintf("ZINCRBY %v on the log, window %v", skew, window))
			defer r.end()
			name := "skew" + fmt.Sprint(skew.Microseconds())
			limit := core.Limit{Quota: quota, Window: window}
			l := r.named(name, limit, r.client(&redis.Options{Addr: server.Addr()}), longTimeout)
			before := r.stream(l, 100, 2*window+window/3, only("k"))()
			key := logKey(t, name, server)
			r.inject(func() { do(t, server, "EVAL", shift, "1", key, fmt.Sprint(skew.Microseconds())) })
			during := r.stream(l, 100, window+time.Second, only("k"))()
			r.over()
			r.degraded(during, false)
			after := r.stream(l, 100, 2*window, only("k"))()
			r.atMost("", fullest(slices.Concat(before.spans, during.spans, after.spans), window), 2*quota)
			r.atMost("then ", fullest(after.spans, window), quota)
			missed := int(quota * clock.Slack() / window) // by requests that were late
			if after.admitted < 2*quota-1-missed {
				r.errorf("%d admitted in the two windows after those, want %d", after.admitted, 2*quota)
			}
			if d := r.ask(l, "k", new(tally)); d.RetryAfter > window {
				r.errorf("Retry-After %v", d.RetryAfter)
			}
		}()
	}
}

// fullest is how many of these units were in one window for sure: the server has decided about each at some instant
// between its request and its answer.
func fullest(all []span, window time.Duration) (most int) {
	for _, first := range all {
		n := 0
		for _, s := range all {
			if !s.began.Before(first.began) && s.ended.Sub(first.began) < window {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
