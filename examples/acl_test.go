package examples_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
)

// patient is for a busy machine.
var patient = core.WithTimeout(10 * time.Second)

// redisUser returns what docs/operating.md says of the Redis user: the page, and the lines that make the user.
func redisUser(t *testing.T) (page string, lines []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text), regexp.MustCompile(`(?m)^ACL SETUSER sash .*$`).FindAllString(string(text), -1)
}

// The Redis user of docs/operating.md may do what the stores need, and without one of its lines Check reports that.
func TestUserOfRedis(t *testing.T) {
	text, lines := redisUser(t)
	stream := regexp.MustCompile("`(\\+xadd [a-z +]+)`").FindStringSubmatch(text)
	if len(lines) != 4 || stream == nil {
		t.Fatalf("docs/operating.md has the lines %q, and for streams %q", lines, stream)
	}
	server := redistest.Start(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })

	// user returns a client of a user that has the permissions of these lines alone.
	user := func(lines ...string) *redis.Client {
		lines = append([]string{"ACL SETUSER sash reset", "ACL SETUSER sash on"}, lines...)
		for _, line := range lines {
			var args []any
			for word := range strings.FieldsSeq(line) {
				args = append(args, word)
			}
			if err := admin.Do(t.Context(), args...).Err(); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "sash", Password: "password"})
		t.Cleanup(func() { rdb.Close() })
		return rdb
	}
	decides := func(store core.Store, limit core.Limit) {
		t.Helper()
		l, err := core.New(limit, core.ByText(), core.WithStore(store), core.WithFailure(core.FailClosed),
			patient)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed != (i == 0) {
				t.Errorf("%v, take %d: allowed %v, %v", limit, i+1, d.Allowed, err)
			}
		}
	}

	rdb := user(lines...)
	if err := redisstore.Check(t.Context(), rdb); err != nil {
		t.Errorf("Check of a user with all lines: %v", err)
	}
	decides(redisstore.New(rdb), core.PerHour(1))
	decides(redisstore.New(rdb), core.PerHour(1).With(core.FixedWindow))

	overrides := func(store core.Store) error {
		l, err := core.New(core.PerHour(1), core.ByText(), core.WithStore(store), core.WithName("o"),
			core.WithOverrides(), patient)
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(time.Hour)
		for _, key := range []string{"a", "b"} {
			err = errors.Join(err, l.Override(t.Context(), key, core.Override{Denied: true, Until: until}))
		}
		_, listed := l.Overrides(t.Context())
		return errors.Join(err, listed, l.RemoveOverride(t.Context(), "a"))
	}
	if err := overrides(redisstore.New(rdb)); err != nil {
		t.Errorf("overrides of a user with all lines: %v", err)
	}
	err := overrides(redisstore.New(user(lines[:3]...)))
	if err == nil || !strings.Contains(err.Error(), "+hget") {
		t.Errorf("overrides of a user without the last line: %v", err)
	}

	rdb = user(lines[0], lines[3], "ACL SETUSER sash "+stream[1])
	if err := overrides(redisstream.New(rdb)); err != nil {
		t.Errorf("overrides of a user for streams: %v", err)
	}
	rdb = user(lines[0], "ACL SETUSER sash "+stream[1])
	if err := redisstream.Check(t.Context(), rdb); err != nil {
		t.Errorf("Check of a user for streams: %v", err)
	}
	decides(redisstream.New(rdb), core.PerHour(1))

	logs := redisstore.New(user(lines[0], lines[1])) // without what other algorithms need
	decides(logs, core.PerDay(1))
	l, err := core.New(core.PerDay(9), core.ByText(), core.WithStore(logs), core.WithFailure(core.FailClosed), patient)
	if err != nil {
		t.Fatal(err)
	}
	for cost := range 2 { // the second one gives the log weights
		if d, err := l.AllowN(t.Context(), "k", 1+cost); err != nil || !d.Allowed {
			t.Errorf("cost %d: allowed %v, %v", 1+cost, d.Allowed, err)
		}
	}
	err = redisstore.Check(t.Context(), user(lines[0], lines[2]))
	if err == nil || !strings.Contains(err.Error(), "+zadd") {
		t.Errorf("Check of a user without the second line: %v", err)
	}
}

// Such a user may also do what go-redis needs for a cluster and a Ring.
func TestUserOfSeveralServers(t *testing.T) {
	t.Parallel()
	text, lines := redisUser(t)
	more := regexp.MustCompile("itself needs `([^`]+)` for a cluster, `([^`]+)` for a Ring").FindStringSubmatch(text)
	if more == nil {
		t.Fatal("docs/operating.md does not have what go-redis itself needs")
	}
	cluster, server := redistest.StartCluster(t, 2), redistest.Start(t)
	grant := func(server *redistest.Server, more string) {
		for _, line := range append(slices.Clip(lines), "ACL SETUSER sash "+more) {
			if _, err := server.Do(strings.Fields(line)...); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	allows := func(client redisstore.Client) {
		t.Helper()
		l, err := core.New(core.PerHour(9), core.ByText(), core.WithName("acl"), core.WithStore(redisstore.New(client)),
			core.WithFailure(core.FailClosed), patient)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatalf("%T: allowed %v, %v", client, d.Allowed, err)
		}
	}
	for _, node := range cluster.Nodes() {
		if _, err := node.Do("CONFIG", "SET", "cluster-node-timeout", "60000"); err != nil { // for want of CPU time
			t.Fatal(err)
		}
		grant(node, more[1])
	}
	nodes := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(), Username: "sash", Password: "password",
	})
	defer nodes.Close()
	allows(nodes)
	from, to := cluster.Nodes()[0], cluster.Nodes()[1]
	keys, err := from.Do("KEYS", "*")
	if err == nil && len(keys.([]any)) == 0 {
		from, to = to, from
		keys, err = from.Do("KEYS", "*")
	}
	if err != nil {
		t.Fatal(err)
	}
	move := cluster.BeginMove(keys.([]any)[0].(string), to)
	move.MoveKeys()
	allows(nodes) // which is told to ask the other node

	grant(server, more[2])
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": server.Addr()}, Username: "sash", Password: "password",
		HeartbeatFrequency: time.Millisecond,
	})
	defer ring.Close()
	for pings := 0; pings < 10 && ring.Len() > 0; { // after three that fail it has no shard
		stats, err := server.Do("INFO", "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(stats.(string), "cmdstat_ping:calls=")
		fmt.Sscanf(rest, "%d", &pings)
	}
	allows(ring)
}
