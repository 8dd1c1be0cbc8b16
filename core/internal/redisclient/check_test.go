package redisclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/store"
)

// wantProblems: each problem says what is wanted of it, and there are no others.
func wantProblems(t *testing.T, err error, want ...[]string) {
	t.Helper()
	var found []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		found = joined.Unwrap()
	} else if err != nil {
		found = []error{err}
	}
	if len(found) != len(want) {
		t.Fatalf("%d problems, want %d:\n%v", len(found), len(want), err)
	}
	for i, err := range found {
		if !errors.As(err, new(*store.ConfigError)) && !errors.As(err, new(*store.StoreError)) {
			t.Errorf("%v is a %T", err, err)
		}
		for _, part := range want[i] {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v\n want %q in it", err, part)
			}
		}
	}
}

// try counts an id and removes it.
func try(ctx context.Context, c *redisclient.Conn, number int) error {
	key := "sash:check:" + strconv.Itoa(number)
	if _, err := ask(ctx, c, newPlan(), key); err != nil {
		return err
	}
	_, err := c.Run(ctx, unlink, []string{key})
	return err
}

var unlink = redisclient.NewScript("return {redis.call('UNLINK', KEYS[1])}")

func check(t *testing.T, client redisclient.Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return newConn(client).Check(ctx, try)
}

func TestCheckOfHealthyServer(t *testing.T) {
	rdb := plain(t, at(redisserver.Start(t)))
	for range 2 { // the second time the server knows the script
		if err := check(t, rdb); err != nil {
			t.Error(err)
		}
	}
	wantProblems(t, check(t, hidden{rdb}))
	if n := rdb.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

func TestCheckOfEvictionPolicy(t *testing.T) {
	rdb := plain(t, at(redisserver.Start(t)))
	for _, policy := range []string{
		"allkeys-lru", "allkeys-lfu", "allkeys-random",
		"volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
	} {
		rdb.ConfigSet(t.Context(), "maxmemory-policy", policy)
		want := []string{"sash: Redis(" + rdb.Options().Addr + ")", policy, "set it to noeviction"}
		wantProblems(t, check(t, rdb), want)
	}
	rdb.ConfigSet(t.Context(), "maxmemory-policy", "noeviction")
	wantProblems(t, check(t, rdb))
}

func TestCheckOfOneServer(t *testing.T) {
	for _, c := range []struct {
		fault  string
		client func(t *testing.T) redisclient.Client
		want   [][]string
	}{
		{"nobody there", func(t *testing.T) redisclient.Client {
			s := redisserver.Start(t)
			s.Kill()
			return plain(t, at(s))
		}, [][]string{{"refused", "start the server"}}},
		{"replica", func(t *testing.T) redisclient.Client {
			return plain(t, at(redisserver.StartReplica(t, redisserver.Start(t))))
		}, [][]string{{"read-only", "connect to the master"}}},
		{"TIME and ZADD renamed", func(t *testing.T) redisclient.Client {
			return plain(t, at(redisserver.Start(t, "--rename-command", "TIME", "", "--rename-command", "ZADD", "")))
		}, [][]string{{"script", "rename-command"}}},
		{"no cluster", func(t *testing.T) redisclient.Client {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{redisserver.Start(t).Addr()}})
		}, [][]string{{"cluster", "redis.NewClient"}}},
		{"nil", func(*testing.T) redisclient.Client { return nil }, [][]string{{"redistest.New(nil)"}}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			client := c.client(t)
			if c, ok := client.(io.Closer); ok {
				defer c.Close()
			}
			wantProblems(t, check(t, client), c.want...)
		})
	}
}

// Versions that this machine does not have are faked.
func TestCheckOfVersion(t *testing.T) {
	const noeviction = "maxmemory_policy:noeviction\r\n"
	for _, c := range []struct {
		info string
		want [][]string
	}{
		{"redis_version:5.0.14\r\n" + noeviction, [][]string{{"version is 5.0.14", "6.2"}}},
		{"redis_version:6.0.20\r\n" + noeviction, [][]string{{"version is 6.0.20", "6.2"}}},
		{"redis_version:6.2.0\r\n" + noeviction, nil},
		{"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.3\r\n" +
			"# Memory\r\n" + noeviction, nil},
		{"redis_version:255.255.255\r\n" + noeviction, nil},
		{"redis_version:6.2.14\r\n", [][]string{{"has no maxmemory-policy"}}},
	} {
		addr := redisserver.StartFake(t, func(command []string) string {
			switch command[0] {
			case "EVALSHA":
				return "*1\r\n:0\r\n"
			case "EVAL":
				return fmt.Sprintf("$%d\r\n%s\r\n", len(c.info), c.info)
			}
			return ""
		})
		wantProblems(t, check(t, plain(t, &redis.Options{Addr: addr})), c.want...)
	}
}

func TestCheckOfCluster(t *testing.T) {
	t.Parallel()
	c := redisserver.StartCluster(t, 3)
	for _, node := range c.Nodes() {
		wantProblems(t, check(t, plain(t, at(node))), []string{"redis.NewClusterClient"})
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer rdb.Close()
	wantProblems(t, check(t, rdb))

	second, third := c.Nodes()[1], c.Nodes()[2]
	for _, to := range []*redisserver.Server{second, third} {
		const asked = "sash:check:0" // try
		if to != c.Owner(asked) {
			move := c.BeginMove(asked, to)
			wantProblems(t, check(t, rdb))
			move.End()
			break
		}
	}
	do(t, second, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	wantProblems(t, check(t, rdb), []string{second.Addr(), "allkeys-lru"})
	do(t, third, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	want := [][]string{{second.Addr(), "allkeys-lru"}, {third.Addr(), "volatile-lru"}}
	if third.Addr() < second.Addr() {
		slices.Reverse(want)
	}
	wantProblems(t, check(t, rdb), want...)
	for _, node := range c.Nodes() {
		size, err := node.Do("DBSIZE")
		if err != nil || size != int64(0) {
			t.Errorf("%s has %v keys, %v", node.Addr(), size, err)
		}
		node.Kill()
	}
	if err := check(t, rdb); !strings.Contains(fmt.Sprint(err), "refused") {
		t.Errorf("a dead cluster: %v", err)
	}
}

func TestCheckOfRing(t *testing.T) {
	good, bad := redisserver.Start(t), redisserver.Start(t, "--maxmemory-policy", "allkeys-lru")
	rdb := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": good.Addr(), "b": bad.Addr()}, HeartbeatFrequency: time.Hour,
	})
	defer rdb.Close()
	wantProblems(t, check(t, rdb), []string{bad.Addr(), "allkeys-lru"})
	do(t, bad, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	wantProblems(t, check(t, rdb))
	good.Kill()
	wantProblems(t, check(t, rdb), []string{good.Addr(), "refused"})
	rdb.Close()
	if err := check(t, rdb); err == nil {
		t.Error("a closed Ring is fine")
	}
}

// Check ends with its context, also with a client that does not look at it.
func TestCheckEndsWithItsContext(t *testing.T) {
	s := redisserver.Start(t)
	rdb := plain(t, at(s))
	rdb.Ping(t.Context())
	s.Pause()
	defer s.Resume()
	const limit = 50 * time.Millisecond
	inTime(t, "Check", limit, func() {
		soon, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		wantProblems(t, newConn(rdb).Check(soon, try), []string{"timeout"})
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	wantProblems(t, newConn(rdb).Check(gone, try), []string{"canceled"})
}

// A server far away is logged, and no error: the program may have set a longer timeout.
func TestCheckOfDistance(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	proxy := redisserver.StartProxy(t, redisserver.Start(t).Addr())
	proxy.SetDelay(40 * time.Millisecond)
	wantProblems(t, check(t, plain(t, &redis.Options{Addr: proxy.Addr()})))
	if !strings.Contains(log.String(), "core.WithTimeout") || !strings.Contains(log.String(), proxy.Addr()) {
		t.Errorf("logged %s", &log)
	}
}
