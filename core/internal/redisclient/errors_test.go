package redisclient_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/store"
)

const (
	user     = "alice"
	password = "hunter2"
)

// taken is the key that take asks about.
const taken = "sash:taken"

func take(ctx context.Context, client redisclient.Client) error {
	_, err := ask(ctx, newConn(client), newPlan(), taken)
	return err
}

func wantClass(t *testing.T, err error, class, advice string) {
	t.Helper()
	var e *store.StoreError
	if !errors.As(err, &e) || e.Class != class || !strings.Contains(e.Advice, advice) {
		t.Fatalf("%v\n want class %q and advice with %q", err, class, advice)
	}
	if e.OneKey != (class == redisclient.ClassType) {
		t.Errorf("%v: OneKey %v", err, e.OneKey)
	}
	for _, secret := range []string{password, user, taken, "redis.call"} {
		if strings.Contains(e.Err.Error(), secret) {
			t.Errorf("%q is in %v", secret, err)
		}
	}
}

func TestErrorClasses(t *testing.T) {
	acl := func(rules ...string) func(t *testing.T) redisclient.Client {
		return func(t *testing.T) redisclient.Client {
			s := redisserver.Start(t)
			do(t, s, append([]string{"ACL", "SETUSER", user, "on", ">" + password, "~*", "+@all"}, rules...)...)
			return plain(t, &redis.Options{Addr: s.Addr(), Username: user, Password: password})
		}
	}
	started := func(args ...string) func(t *testing.T) redisclient.Client {
		return func(t *testing.T) redisclient.Client { return plain(t, at(redisserver.Start(t, args...))) }
	}
	login := func(o redis.Options, args ...string) func(t *testing.T) redisclient.Client {
		return func(t *testing.T) redisclient.Client {
			o.Addr = redisserver.Start(t, args...).Addr()
			return plain(t, &o)
		}
	}
	for _, c := range []struct {
		fault, class, advice string
		client               func(t *testing.T) redisclient.Client
	}{
		{"hang", redisclient.ClassTimeout, "slow", func(t *testing.T) redisclient.Client {
			s := redisserver.Start(t)
			rdb := plain(t, &redis.Options{Addr: s.Addr(), ReadTimeout: 50 * time.Millisecond})
			rdb.Ping(t.Context())
			s.Pause()
			return rdb
		}},
		{"TLS at a plain server", redisclient.ClassTimeout, "TLS", func(t *testing.T) redisclient.Client {
			limit := 50 * time.Millisecond
			return plain(t, &redis.Options{
				Addr: redisserver.Start(t).Addr(), TLSConfig: &tls.Config{}, DialTimeout: limit, ReadTimeout: limit,
			})
		}},
		{"nobody there", redisclient.ClassRefused, "start the server", func(t *testing.T) redisclient.Client {
			s := redisserver.Start(t)
			s.Kill()
			return plain(t, at(s))
		}},
		{"no such socket", redisclient.ClassRefused, "address", func(t *testing.T) redisclient.Client {
			return plain(t, &redis.Options{Addr: t.TempDir() + "/redis.sock"})
		}},
		{"reset in a reply", redisclient.ClassRefused, "maxclients", func(t *testing.T) redisclient.Client {
			p := redisserver.StartProxy(t, redisserver.Start(t).Addr())
			rdb := plain(t, &redis.Options{Addr: p.Addr()})
			rdb.Ping(t.Context())
			p.CutReply()
			return rdb
		}},
		{"too many clients", redisclient.ClassRefused, "maxclients", func(t *testing.T) redisclient.Client {
			s := redisserver.Start(t)
			do(t, s, "CONFIG", "SET", "maxclients", "1")
			holder := plain(t, at(s))
			for holder.Ping(t.Context()).Err() != nil { // until the server has seen that the connection of do is closed
				runtime.Gosched()
			}
			return plain(t, at(s))
		}},
		{"plain at a TLS server", redisclient.ClassRefused, "TLSConfig", func(t *testing.T) redisclient.Client {
			return plain(t, at(redisserver.StartTLS(t)))
		}},
		{"a cluster of none", redisclient.ClassRefused, "Addrs", func(*testing.T) redisclient.Client {
			return redis.NewClusterClient(&redis.ClusterOptions{})
		}},
		{"no Sentinel", redisclient.ClassRefused, "SentinelAddrs", func(t *testing.T) redisclient.Client {
			return redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: "m", SentinelAddrs: []string{redisserver.Start(t).Addr()},
			})
		}},
		{"a Ring of none", redisclient.ClassRefused, "Addrs", func(t *testing.T) redisclient.Client {
			s := redisserver.Start(t)
			s.Kill()
			ring := redis.NewRing(&redis.RingOptions{
				Addrs: map[string]string{"a": s.Addr()}, HeartbeatFrequency: time.Millisecond,
			})
			for ring.Len() > 0 {
				runtime.Gosched()
			}
			return ring
		}},
		{"pool of 1", redisclient.ClassPool, "PoolSize", func(t *testing.T) redisclient.Client {
			addr := redisserver.Start(t).Addr()
			rdb := plain(t, &redis.Options{Addr: addr, PoolSize: 1, PoolTimeout: time.Millisecond})
			held := rdb.Conn()
			t.Cleanup(func() { held.Close() })
			held.Ping(t.Context())
			return rdb
		}},
		{"closed client", redisclient.ClassPool, "close", func(t *testing.T) redisclient.Client {
			rdb := plain(t, at(redisserver.Start(t)))
			rdb.Close()
			return rdb
		}},
		{"NOAUTH", redisclient.ClassAuth, "Options.Password", started("--requirepass", "secret")},
		{"WRONGPASS", redisclient.ClassAuth, "Options.Username",
			login(redis.Options{Username: user, Password: password})},
		{"a password too many", redisclient.ClassAuth, "no password",
			login(redis.Options{Password: password}, "--rename-command", "HELLO", "")},
		{"no AUTH", redisclient.ClassAuth, "no AUTH",
			login(redis.Options{Username: user, Password: password},
				"--rename-command", "HELLO", "", "--rename-command", "AUTH", "")},
		{"NOPERM for scripts", redisclient.ClassAuth, "+evalsha", acl("-@scripting")},
		{"NOPERM for keys", redisclient.ClassAuth, "~sash:*", acl("resetkeys", "~other:*")},
		{"NOPERM in the script", redisclient.ClassAuth, "+zadd", acl("-zadd")},
		{"READONLY", redisclient.ClassReadOnly, "master", func(t *testing.T) redisclient.Client {
			return plain(t, at(redisserver.StartReplica(t, redisserver.Start(t))))
		}},
		{"MASTERDOWN", redisclient.ClassReadOnly, "master", func(t *testing.T) redisclient.Client {
			master := redisserver.Start(t)
			s := redisserver.StartReplica(t, master)
			do(t, s, "CONFIG", "SET", "replica-serve-stale-data", "no")
			master.Kill()
			for _, err := s.Do("GET", "k"); err == nil; _, err = s.Do("GET", "k") {
				runtime.Gosched()
			}
			return plain(t, at(s))
		}},
		{"MISCONF", redisclient.ClassReadOnly, "log", func(t *testing.T) redisclient.Client {
			s := redisserver.Start(t, "--save", "3600", "1")
			s.FailSaves(true)
			return plain(t, at(s))
		}},
		{"NOREPLICAS", redisclient.ClassReadOnly, "min-replicas-to-write", started("--min-replicas-to-write", "3")},
		{"cluster client at a plain server", redisclient.ClassCluster, "redis.NewClient",
			func(t *testing.T) redisclient.Client {
				return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{redisserver.Start(t).Addr()}})
			}},
		{"LOADING", redisclient.ClassBusy, "wait", func(t *testing.T) redisclient.Client {
			s := redisserver.Start(t)
			s.RestartLoading()
			return plain(t, at(s))
		}},
		{"BUSY", redisclient.ClassBusy, "SCRIPT KILL", func(t *testing.T) redisclient.Client {
			s := redisserver.Start(t)
			s.Busy()
			return plain(t, at(s))
		}},
		{"OOM", redisclient.ClassOOM, "maxmemory", func(t *testing.T) redisclient.Client {
			s := redisserver.Start(t, "--maxmemory", "3mb")
			do(t, s, "SETRANGE", "big", "3000000", "x")
			return plain(t, at(s))
		}},
		{"EVALSHA renamed", redisclient.ClassScript, "rename-command", started("--rename-command", "EVALSHA", "")},
		{"EVAL renamed", redisclient.ClassScript, "rename-command", started("--rename-command", "EVAL", "")},
		{"TIME renamed", redisclient.ClassScript, "rename-command", started("--rename-command", "TIME", "")},
		{"no such database", redisclient.ClassScript, "Options.DB", login(redis.Options{DB: 99})},
		{"WRONGTYPE", redisclient.ClassType, "WithPrefix", func(t *testing.T) redisclient.Client {
			s := redisserver.Start(t)
			do(t, s, "SET", taken, "x")
			return plain(t, at(s))
		}},
		{"the wrong authority", redisclient.ClassProtocol, "authority", func(t *testing.T) redisclient.Client {
			s, other := redisserver.StartTLS(t), redisserver.StartTLS(t)
			return plain(t, &redis.Options{Addr: s.Addr(), TLSConfig: other.TLSConfig()})
		}},
		{"no certificate", redisclient.ClassProtocol, "certificate", func(t *testing.T) redisclient.Client {
			s := redisserver.StartTLS(t)
			do(t, s, "CONFIG", "SET", "tls-auth-clients", "yes")
			config := s.TLSConfig()
			config.MaxVersion = tls.VersionTLS12 // in 1.3 the client may write before it is told
			return plain(t, &redis.Options{Addr: s.Addr(), TLSConfig: config})
		}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			client := c.client(t)
			defer client.(io.Closer).Close()
			wantClass(t, take(t.Context(), client), c.class, c.advice)
		})
	}
}

func TestErrorClassOfContext(t *testing.T) {
	rdb := plain(t, at(redisserver.Start(t)))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	wantClass(t, take(gone, rdb), redisclient.ClassCanceled, "cancelled")
	hang := func(context.Context, string, string) (net.Conn, error) { select {} }
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	err := take(late, plain(t, &redis.Options{Dialer: hang}))
	wantClass(t, err, redisclient.ClassTimeout, "slow")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not the context's error any more", err)
	}
}

func TestErrorClassesOfCluster(t *testing.T) {
	t.Parallel()
	c := redisserver.StartCluster(t, 3)
	owner := c.Owner(taken)
	var other *redisserver.Server
	for _, node := range c.Nodes() {
		if node != owner {
			other = node
		}
	}
	wantClass(t, take(t.Context(), plain(t, at(other))), redisclient.ClassCluster, "redis.NewClusterClient")
	elsewhere := plain(t, &redis.Options{Addr: owner.Addr(), DB: 1})
	wantClass(t, take(t.Context(), elsewhere), classOfDatabase(t, owner), "database 0")
	c.BeginMove(taken, other)
	wantClass(t, take(t.Context(), plain(t, at(owner))), redisclient.ClassCluster, "redis.NewClusterClient")
	for _, node := range c.Nodes() {
		do(t, node, "CONFIG", "SET", "cluster-node-timeout", "1000")
	}
	owner.Kill()
	for says := "MOVED"; strings.HasPrefix(says, "MOVED"); {
		if _, err := other.Do("GET", taken); err != nil {
			says = err.Error()
		}
	}
	wantClass(t, take(t.Context(), plain(t, at(other))), redisclient.ClassCluster, "CLUSTER INFO")
}

// classOfDatabase is that of another database than 0 in a cluster. Valkey 9 can have several there, and says no more
// than that it has not this one.
func classOfDatabase(t *testing.T, node *redisserver.Server) string {
	t.Helper()
	several, err := node.Do("CONFIG", "GET", "cluster-databases")
	if err != nil {
		t.Fatal(err)
	}
	if len(several.([]any)) > 0 {
		return redisclient.ClassScript
	}
	return redisclient.ClassCluster
}

// Replies of all engines, of which a machine has one, and of commands with several keys. The user is alice.
func TestErrorClassesOfReplies(t *testing.T) {
	const (
		inRedis6  = "-ERR Error running script (call to f_0a1b): @user_script:9: "
		inCommand = inRedis6 + "@user_script: 9: "
		inScript  = " script: 0a1b, on @user_script:9."

		noPermission = "-NOPERM this user has no permissions to "
		failure      = "-ERR ACL failure in script: "
	)
	for _, c := range []struct{ reply, class, advice string }{
		// Redis 6.2
		{inRedis6 + "WRONGTYPE Operation against a key holding the wrong kind of value",
			redisclient.ClassType, "WithPrefix"},
		{inCommand + "-READONLY You can't write against a read only replica.", redisclient.ClassReadOnly, "master"},
		{inCommand + "-OOM command not allowed when used memory > 'maxmemory'.", redisclient.ClassOOM, "maxmemory"},
		{"-@user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.",
			redisclient.ClassOOM, "maxmemory"},
		{inCommand + "The user executing the script can't run this command or subcommand",
			redisclient.ClassAuth, "+zadd"},
		{inCommand + "This Redis command is not allowed from scripts", redisclient.ClassScript, "6.2"},
		{"-ERR unknown command `auth`, with args beginning with: `" + password + "`, ",
			redisclient.ClassAuth, "no AUTH"},
		{"-ERR unknown command `evalsha`, with args beginning with: `0a1b`, `1`, `" + taken + "`, ",
			redisclient.ClassScript, "rename-command"},
		{noPermission + "run the 'evalsha' command or its subcommand", redisclient.ClassAuth, "+evalsha"},
		{noPermission + "access one of the keys used as arguments", redisclient.ClassAuth, "~sash:*"},
		{"-ERR DB index is out of range", redisclient.ClassScript, "Options.DB"},
		// Redis 7.0
		{noPermission + "run the 'evalsha' command", redisclient.ClassAuth, "+evalsha"},
		{"-ERR The user executing the script can't run this command or subcommand" + inScript,
			redisclient.ClassAuth, "+zadd"},
		// Redis 7.2 and Valkey
		{"-NOPERM User alice has no permissions to run the 'evalsha' command", redisclient.ClassAuth, "+evalsha"},
		{"-NOPERM User alice'has(no)permissions has no permissions to run the 'evalsha' command",
			redisclient.ClassAuth, "+evalsha"},
		{"-NOPERM No permissions to access a key", redisclient.ClassAuth, "~sash:*"},
		{
			failure + "User alice has no permissions to run the 'zadd' command" + inScript, redisclient.ClassAuth,
			"+zadd",
		},
		{failure + "No permissions to access a key" + inScript, redisclient.ClassAuth, "~sash:*"},
		{"-ERR This command is not allowed from script" + inScript, redisclient.ClassScript, "Valkey"},
		{"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to " +
			"disk. Commands that may modify the data set are disabled", redisclient.ClassReadOnly, "log"},
		// Redis 8.0, Valkey 8 and 9
		{"-ERR Unknown Redis command called from script" + inScript, redisclient.ClassScript, "rename-command"},
		{"-ERR Unknown command called from script" + inScript, redisclient.ClassScript, "rename-command"},
		{failure + "User alice has no permissions to run the 'zadd' command script: on @user_script:48.",
			redisclient.ClassAuth, "+zadd"},
		{"-WRONGTYPE Operation against a key holding the wrong kind of value script: on @user_script:48.",
			redisclient.ClassType, "WithPrefix"},
		// from another host, or with several keys
		{"-DENIED Redis is running in protected mode because protected mode is enabled",
			redisclient.ClassAuth, "protected mode"},
		{"-ERR max number of clients reached", redisclient.ClassRefused, "maxclients"},
		{"-ERR max number of clients + cluster connections reached", redisclient.ClassRefused, "maxclients"},
		{"-CROSSSLOT Keys in request don't hash to the same slot", redisclient.ClassCluster, "redis.NewClusterClient"},
		{"-TRYAGAIN Multiple keys request during rehashing of slot", redisclient.ClassCluster, "wait"},
		{"-ERR Script attempted to access a slot not served" + inScript, redisclient.ClassCluster, "CLUSTER INFO"},
		{"-ERR Can not execute the command on a stale replica" + inScript, redisclient.ClassReadOnly, "master"},
		// not from Redis
		{"-ERR Protocol error: invalid bulk length", redisclient.ClassProtocol, "address"},
		{"-nonsense", redisclient.ClassScript, "6.2"},
		{"HTTP/1.1 400 Bad Request", redisclient.ClassProtocol, "address"},
		{"$-1", redisclient.ClassProtocol, "address"},
		{"+OK", redisclient.ClassProtocol, "address"},
		{"*3\r\n:1\r\n:1\r\n:1", redisclient.ClassProtocol, "address"},
		{"*1\r\n:-5", redisclient.ClassProtocol, "address"},
	} {
		addr := redisserver.StartFake(t, func(command []string) string {
			if command[0] == "EVALSHA" {
				return c.reply + "\r\n"
			}
			return ""
		})
		t.Run(c.reply, func(t *testing.T) {
			wantClass(t, take(t.Context(), plain(t, &redis.Options{Addr: addr})), c.class, c.advice)
		})
	}
}
