package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/timerlag"
	"github.com/sashlimit/sash/core/redisstore"
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
		if !errors.As(err, new(*core.ConfigError)) && !errors.As(err, new(*core.StoreError)) {
			t.Errorf("%v is a %T", err, err)
		}
		for _, part := range want[i] {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v\n want %q in it", err, part)
			}
		}
	}
}

func check(t *testing.T, client redisstore.Client, opts ...redisstore.Option) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return redisstore.Check(ctx, client, opts...)
}

func TestCheckOfHealthyServer(t *testing.T) {
	rdb := start(t)
	writes := func() string {
		_, rest, _ := strings.Cut(rdb.Info(t.Context(), "persistence").Val(), "rdb_changes_since_last_save:")
		n, _, _ := strings.Cut(rest, "\r\n")
		return n
	}
	for range 2 { // the second time the server knows the script
		if err := check(t, rdb); err != nil {
			t.Error(err)
		}
	}
	if n := rdb.DBSize(t.Context()).Val(); n != 0 || writes() != "0" {
		t.Errorf("%d keys and %s writes", n, writes())
	}
}

// scriptCommands are the commands in the Lua files of a package, and the one that resets logs.
func scriptCommands(t *testing.T, dir string) (names []string) {
	t.Helper()
	names = append(names, "UNLINK")
	files, err := filepath.Glob(filepath.Join(dir, "lua/*.lua"))
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range regexp.MustCompile(`'([A-Z]{3,})'`).FindAllStringSubmatch(string(text), -1) {
			option := slices.Contains([]string{"WITHSCORES", "LIMIT", "BYSCORE", "REV",
				"COUNT", "MINID", "MAXLEN", "WEIGHTS"}, word[1])
			if name := word[1]; !option && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func TestCheckOfPermissions(t *testing.T) {
	s := redistest.Start(t)
	needed := append([]string{"EVAL", "EVALSHA"}, scriptCommands(t, ".")...)
	client := func(name string, rules ...string) *redis.Client {
		all := []string{"ACL", "SETUSER", name, "reset", "on", "nopass", "~sash:*"}
		for _, command := range needed {
			all = append(all, "+"+command)
		}
		do(t, s, append(all, rules...)...)
		return plain(t, &redis.Options{Addr: s.Addr(), Username: name, Password: password})
	}
	wantProblems(t, check(t, client("enough", "+info")))
	wantProblems(t, check(t, client("shop", "+info", "resetkeys", "~shop:*"), redisstore.WithPrefix("shop")))
	for _, command := range needed {
		wantProblems(t, check(t, client("no-"+command, "+info", "-"+command)),
			[]string{"sash: store (auth): ", s.Addr(), "ACL SETUSER <user> +" + strings.ToLower(command)})
	}
	wantProblems(t, check(t, client("several", "+info", "-zadd", "-time", "-eval")),
		[]string{"+eval", "auth"})
	wantProblems(t, check(t, client("two", "+info", "-zadd", "-time")),
		[]string{"TIME, ZADD in a script", "+time +zadd"})
	wantProblems(t, check(t, client("unscripted", "-@scripting")), []string{"+evalsha"}, []string{"+eval"})
	wantProblems(t, check(t, client("elsewhere", "+info", "resetkeys", "~shop:*")), []string{"~sash:*"})
	wantProblems(t, check(t, client("blind")), []string{"sash: Redis(" + s.Addr() + ")", "maxmemory-policy", "+info"})
	wantProblems(t, check(t, client("blind", "-zadd")),
		[]string{"maxmemory-policy", "+info"}, []string{"ZADD", "+zadd"})
}

func TestCheckOfEvictionPolicy(t *testing.T) {
	rdb := start(t)
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
		client func(t *testing.T) redisstore.Client
		want   [][]string
	}{
		{"nobody there", func(t *testing.T) redisstore.Client {
			s := redistest.Start(t)
			s.Kill()
			return plain(t, at(s))
		}, [][]string{{"refused", "start the server"}}},
		{"another login", func(t *testing.T) redisstore.Client {
			return plain(t, &redis.Options{Addr: redistest.Start(t).Addr(), Username: user, Password: password})
		}, [][]string{{"WRONGPASS", "Options.Username"}}},
		{"no login", func(t *testing.T) redisstore.Client {
			return plain(t, at(redistest.Start(t, "--requirepass", "secret")))
		}, [][]string{{"auth", "Options.Password"}}},
		{"replica", func(t *testing.T) redisstore.Client {
			return plain(t, at(redistest.StartReplica(t, redistest.Start(t))))
		}, [][]string{{"ZADD, ZREM", "UNLINK", "read-only", "connect to the master"}}},
		{"no memory", func(t *testing.T) redisstore.Client {
			s := redistest.Start(t, "--maxmemory", "3mb")
			do(t, s, "SETRANGE", "big", "3000000", "x")
			return plain(t, at(s))
		}, [][]string{{"ZADD in a script", "oom", "maxmemory"}}},
		{"loading", func(t *testing.T) redisstore.Client {
			s := redistest.Start(t)
			s.RestartLoading()
			return plain(t, at(s))
		}, [][]string{{"busy", "wait"}}},
		{"EVALSHA renamed", func(t *testing.T) redisstore.Client {
			return plain(t, at(redistest.Start(t, "--rename-command", "EVALSHA", "")))
		}, [][]string{{"unknown command", "evalsha", "rename-command"}}},
		{"EVAL renamed", func(t *testing.T) redisstore.Client {
			return plain(t, at(redistest.Start(t, "--rename-command", "EVAL", "")))
		}, [][]string{{"unknown command", "eval", "rename-command"}}},
		{"TIME and ZADD renamed", func(t *testing.T) redisstore.Client {
			return plain(t, at(redistest.Start(t, "--rename-command", "TIME", "", "--rename-command", "ZADD", "")))
		}, [][]string{{"TIME, ZADD in a script", "rename-command"}}},
		{"several", func(t *testing.T) redisstore.Client {
			s := redistest.Start(t, "--rename-command", "TIME", "", "--maxmemory-policy", "volatile-ttl")
			return plain(t, at(s))
		}, [][]string{{"TIME"}, {"volatile-ttl"}}},
		{"TLS", func(t *testing.T) redisstore.Client {
			return plain(t, at(redistest.StartTLS(t)))
		}, [][]string{{"TLSConfig"}}},
		{"no cluster", func(t *testing.T) redisstore.Client {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{redistest.Start(t).Addr()}})
		}, [][]string{{"cluster", "redis.NewClient"}}},
		{"nil", func(*testing.T) redisstore.Client { return nil }, [][]string{{"redisstore.New(nil)"}}},
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
	wantProblems(t, check(t, nil, redisstore.WithPrefix("{")),
		[]string{"redisstore.New(nil)"}, []string{"redisstore.WithPrefix"})
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
		addr := redistest.StartFake(t, func(command []string) string {
			switch command[0] {
			case "EVALSHA":
				return "-NOSCRIPT No matching script. Please use EVAL.\r\n"
			case "EVAL":
				return fmt.Sprintf("*1\r\n$%d\r\n%s\r\n", len(c.info), c.info)
			}
			return ""
		})
		wantProblems(t, check(t, plain(t, &redis.Options{Addr: addr})), c.want...)
	}
	for _, reply := range []string{":1", "*0", "*2\r\n$0\r\n\r\n+TIME", "$-1"} {
		addr := redistest.StartFake(t, func(command []string) string {
			if command[0] == "EVAL" || command[0] == "EVALSHA" {
				return reply + "\r\n"
			}
			return ""
		})
		err := check(t, plain(t, &redis.Options{Addr: addr}))
		if reply == "$-1" {
			wantProblems(t, err, []string{"protocol"})
		} else {
			wantProblems(t, err, []string{"protocol", addr})
		}
	}
}

func TestCheckOfCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for _, node := range c.Nodes() {
		wantProblems(t, check(t, plain(t, at(node))), []string{"redis.NewClusterClient"})
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer rdb.Close()
	wantProblems(t, check(t, rdb))

	second, third := c.Nodes()[1], c.Nodes()[2]
	for _, to := range []*redistest.Server{second, third} {
		const asked = "sash:check:0"
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
	good, bad := redistest.Start(t), redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
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

// With a client that does not look at its context.
func TestCheckEndsWithItsContext(t *testing.T) {
	s := redistest.Start(t)
	rdb := redis.NewClient(at(s))
	defer rdb.Close()
	rdb.Ping(t.Context())
	s.Pause()
	defer s.Resume()
	clock := timerlag.Watch()
	defer clock.Stop()
	begun := time.Now()
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantProblems(t, redisstore.Check(soon, rdb), []string{"timeout"})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	wantProblems(t, redisstore.Check(gone, rdb), []string{"canceled"})
	if took := time.Since(begun); took > 2*time.Second+clock.Slack() {
		t.Errorf("both took %v", took)
	}
}
