package faults_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/redisstore"
)

func do(t *testing.T, s *redisserver.Server, args ...string) any {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// command is a fault, or the end of one, that takes one command.
func command(args ...string) func(*testing.T, *redisserver.Server) {
	return func(t *testing.T, s *redisserver.Server) {
		t.Helper()
		do(t, s, args...)
	}
}

// If a server refuses takes, the process decides alone, adds its takes to the server's log afterwards, and passes the
// server's error to the observer.
func TestRefusals(t *testing.T) {
	const password = "correct-horse-battery"
	for _, c := range []struct {
		fault, how   string
		args         []string
		inject, lift func(*testing.T, *redisserver.Server)
		says         []string
	}{
		{
			"out of memory", "noeviction, maxmemory reached", []string{"--maxmemory", "3mb"},
			command("SETRANGE", "big", "3000000", "x"), command("DEL", "big"), []string{"OOM", redisstore.ClassOOM},
		},
		{
			"no password", "requirepass, connections cut", nil,
			func(t *testing.T, s *redisserver.Server) {
				do(t, s, "CONFIG", "SET", "requirepass", password)
				s.Password = password
				do(t, s, "CLIENT", "KILL", "TYPE", "normal")
			},
			command("CONFIG", "SET", "requirepass", ""), []string{"NOAUTH", redisstore.ClassAuth},
		},
		{
			"no scripts", "ACL -@scripting", nil, command("ACL", "SETUSER", "default", "-@scripting"),
			command("ACL", "SETUSER", "default", "+@all"), []string{"NOPERM", redisstore.ClassAuth},
		},
		{
			"no ZADD", "ACL -zadd", nil, command("ACL", "SETUSER", "default", "-zadd"),
			command("ACL", "SETUSER", "default", "+@all"), []string{"+zadd", redisstore.ClassAuth},
		},
		{
			"other keys", "ACL keys app:*", nil, command("ACL", "SETUSER", "default", "resetkeys", "~app:*"),
			command("ACL", "SETUSER", "default", "~*"), []string{"NOPERM", redisstore.ClassAuth},
		},
		{
			"saves fail", "--save, BGSAVE onto a directory", []string{"--save", "3600", "1"},
			func(_ *testing.T, s *redisserver.Server) { s.FailSaves(true) },
			func(_ *testing.T, s *redisserver.Server) { s.FailSaves(false) },
			[]string{"MISCONF", redisstore.ClassReadOnly},
		},
		{
			"no replicas", "min-replicas-to-write 3", nil,
			command("CONFIG", "SET", "min-replicas-to-write", "3"),
			command("CONFIG", "SET", "min-replicas-to-write", "0"),
			[]string{"NOREPLICAS", redisstore.ClassReadOnly},
		},
		{
			"busy", "EVAL that does not end", nil,
			func(_ *testing.T, s *redisserver.Server) { s.Busy() }, command("SCRIPT", "KILL"),
			[]string{"BUSY", redisstore.ClassBusy},
		},
	} {
		func() {
			server := redisserver.Start(t, c.args...)
			r := begin(t, c.fault, c.how)
			defer r.end()
			l := r.limiter(core.PerHour(20), r.client(&redis.Options{Addr: server.Addr()}), longTimeout)
			r.warm(l, "k", 5)
			inject, lift := func() { c.inject(t, server) }, func() { c.lift(t, server) }
			r.outage(l, 20, 300*time.Millisecond, inject, lift, 25, c.says...)
			after := r.burst(l, "new", 30)
			r.degraded(after, false)
			if after.admitted != 20 {
				r.errorf("%d admitted afterwards, want 20", after.admitted)
			}
		}()
	}
	if strings.Contains(logs.String(), password) {
		t.Error("the password is in the log")
	}
}

func TestReplica(t *testing.T) {
	master := redisserver.Start(t)
	replica := redisserver.StartReplica(t, master)
	r := begin(t, "read-only", "a client of a replica")
	defer r.end()
	l := r.limiter(core.PerHour(20), r.client(&redis.Options{Addr: replica.Addr()}), longTimeout)
	r.outage(l, 20, 300*time.Millisecond, func() {}, replica.Promote, 20, "READONLY", redisstore.ClassReadOnly)
}

func TestLoading(t *testing.T) {
	slow(t)
	server := redisserver.Start(t)
	r := begin(t, "loading", "restarted with data that it loads for 1 s")
	defer r.end()
	l := r.limiter(core.PerHour(20), r.client(&redis.Options{Addr: server.Addr()}), longTimeout)
	r.warm(l, "k", 5)
	// Redis 6 answers twice a second meanwhile, and go-redis asks it several times for a new connection.
	if info := do(t, server, "INFO", "server").(string); strings.Contains(info, "redis_version:6.") {
		r.timeout = 10 * time.Second
	}
	r.outage(l, 20, time.Second, server.RestartLoading, server.FinishLoading, 25, "LOADING", redisstore.ClassBusy)
}

// One key's trouble is that key's alone.
func TestWrongType(t *testing.T) {
	server := redisserver.Start(t)
	r := begin(t, "wrong type", "SET on the key of a log")
	defer r.end()
	l := r.limiter(core.PerHour(20), r.client(&redis.Options{Addr: server.Addr()}), longTimeout)
	r.burst(l, "odd", 1)
	key := do(t, server, "KEYS", "*").([]any)[0].(string)
	r.inject(func() { do(t, server, "SET", key, "x") })
	odd := r.burst(l, "odd", 30)
	r.degraded(odd, true)
	r.exactly("", odd.admitted, 20)
	others := 0
	for _, other := range []string{"a", "b", "c"} {
		of := r.burst(l, other, 30)
		r.degraded(of, false)
		if of.admitted != 20 {
			r.errorf("%d admitted of another key, want 20", of.admitted)
		}
		others += of.admitted
	}
	r.exactly("three others ", others, 60)
	r.says("WRONGTYPE", redisstore.ClassType)
	r.lift(l, "odd", func() { do(t, server, "DEL", key) })
	r.logged(l, "odd", 20)
}

func TestFlushes(t *testing.T) {
	server := redisserver.Start(t)
	func() {
		r := begin(t, "scripts flushed", "SCRIPT FLUSH every ms")
		defer r.end()
		n := 2000
		if !testing.Short() {
			n = 10_000
		}
		l := r.limiter(core.PerHour(n/2), r.client(&redis.Options{Addr: server.Addr()}), longTimeout)
		rdb := r.client(&redis.Options{Addr: server.Addr()})
		stop, stopped := make(chan struct{}), make(chan struct{})
		flushes := 0
		r.inject(func() {
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						rdb.ScriptFlush(context.Background())
						flushes++
					}
				}
			}()
		})
		during := r.burst(l, "k", n)
		r.over()
		close(stop)
		<-stopped
		r.degraded(during, false)
		r.exactly("", during.admitted, n/2)
		r.how = fmt.Sprintf("SCRIPT FLUSH, a ms, SCRIPT FLUSH ...: %d", flushes)
	}()
	r := begin(t, "data flushed", "FLUSHALL, once")
	defer r.end()
	l := r.named("data", core.PerHour(20), r.client(&redis.Options{Addr: server.Addr()}), longTimeout)
	before := r.burst(l, "k", 30)
	r.inject(func() { do(t, server, "FLUSHALL") })
	during := r.burst(l, "k", 30)
	r.degraded(during, false)
	r.exactly("two quotas: ", before.admitted+during.admitted, 2*20)
}

// Redis evicts a log as it is configured to. No take can notice that; only the check at the start of a program can.
func TestEviction(t *testing.T) {
	slow(t)
	for _, policy := range []string{"allkeys-lru", "volatile-ttl"} {
		func() {
			server := redisserver.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", policy)
			r := begin(t, "evicted", policy+", flooded with other keys")
			defer r.end()
			rdb := r.client(&redis.Options{Addr: server.Addr()})
			l := r.limiter(core.PerHour(20), rdb, longTimeout)
			before := r.burst(l, "k", 30)
			key := do(t, server, "KEYS", "*").([]any)[0].(string)
			r.inject(func() {
				for i := range 100 {
					pipe := rdb.Pipeline()
					for j := range 1000 {
						other := fmt.Sprintf("flood:%d:%d", i, j)
						pipe.Set(context.Background(), other, strings.Repeat("x", 100), 24*time.Hour)
					}
					if _, err := pipe.Exec(context.Background()); err != nil {
						t.Fatal(err)
					}
					if rdb.Exists(context.Background(), key).Val() == 0 {
						return
					}
				}
				t.Fatal("the log has not been evicted: the test proves nothing")
			})
			// Otherwise the new log might be evicted as well, and there would be a third quota.
			do(t, server, "CONFIG", "SET", "maxmemory", "0")
			during := r.burst(l, "k", 30)
			r.degraded(during, false)
			r.exactly("two quotas: ", before.admitted+during.admitted, 2*20)
			err := redisstore.Check(t.Context(), rdb)
			if err == nil || !strings.Contains(err.Error(), "maxmemory-policy is "+policy) {
				r.errorf("Check says %v", err)
			}
			r.tellf("Check tells")
		}()
	}
}

func TestPoolOfOne(t *testing.T) {
	server := redisserver.Start(t)
	r := begin(t, "pool of 1", "its connection is in BLPOP")
	defer r.end()
	rdb := r.client(&redis.Options{Addr: server.Addr(), PoolSize: 1})
	l := r.limiter(core.PerHour(20), rdb)
	r.warm(l, "k", 5)
	popped := make(chan error, 1)
	pop := func() {
		go func() { popped <- rdb.BLPop(context.Background(), 0, "list").Err() }()
		if !eventually(10*time.Second, func() bool {
			return strings.Contains(fmt.Sprint(do(t, server, "CLIENT", "LIST")), "cmd=blpop")
		}) {
			t.Fatal("nobody waits for the list")
		}
	}
	r.outage(l, 20, 500*time.Millisecond, pop, func() { do(t, server, "RPUSH", "list", "x") }, 25)
	if err := <-popped; err != nil {
		t.Error(err)
	}
}

func TestTooManyClients(t *testing.T) {
	server := redisserver.Start(t)
	r := begin(t, "too many clients", "maxclients 1, and another has it")
	r.timeout = 10 * time.Second // since go-redis tries again, for up to a second
	defer r.end()
	l := r.limiter(core.PerHour(20), r.client(&redis.Options{Addr: server.Addr()}), longTimeout)
	r.warm(l, "k", 5)
	var other net.Conn
	occupy := func() {
		do(t, server, "CLIENT", "KILL", "TYPE", "normal")
		var err error
		if other, err = net.Dial("tcp", server.Addr()); err != nil {
			t.Fatal(err)
		}
		do(t, server, "CONFIG", "SET", "maxclients", "1")
		if !eventually(10*time.Second, func() bool {
			_, err := server.Do("PING")
			return err != nil && strings.Contains(err.Error(), "max number of clients")
		}) {
			t.Fatal("there is room for another client")
		}
	}
	leave := func() {
		other.Close()
		if !eventually(10*time.Second, func() bool {
			_, err := server.Do("CONFIG", "SET", "maxclients", "10000")
			return err == nil
		}) {
			t.Fatal("the server does not take more clients")
		}
	}
	// It is heard in the advice, as the server may close the connection before its error is read.
	r.outage(l, 20, 300*time.Millisecond, occupy, leave, 25, "maxclients")
}

// Clients that are configured wrongly never recover, but their errors name the cause.
func TestWrongClients(t *testing.T) {
	secure, other := redisserver.StartTLS(t), redisserver.StartTLS(t)
	plain := redisserver.Start(t, "--rename-command", "EVALSHA", "")
	locked := redisserver.Start(t, "--requirepass", "correct")
	for _, c := range []struct {
		fault, how string
		opt        redis.Options
		says       string
	}{
		{"TLS", "a server that speaks nothing else",
			redis.Options{Addr: secure.Addr(), TLSConfig: secure.TLSConfig()}, ""},
		{"TLS, wrong CA", "another server's authority",
			redis.Options{Addr: secure.Addr(), TLSConfig: other.TLSConfig()}, "certificate"},
		{"TLS, plain client", "no TLSConfig", redis.Options{Addr: secure.Addr()}, ""},
		{"no TLS, TLS client", "TLSConfig for a plain server",
			// Each of them waits for a handshake, and newer versions of go-redis dial five times.
			redis.Options{Addr: plain.Addr(), TLSConfig: secure.TLSConfig(), DialTimeout: time.Second}, ""},
		{"no EVALSHA", "--rename-command EVALSHA ''", redis.Options{Addr: plain.Addr()}, "unknown command"},
		{"wrong password", "requirepass, another Password",
			redis.Options{Addr: locked.Addr(), Password: "wrong-horse-battery"}, "WRONGPASS"},
	} {
		func() {
			r := begin(t, c.fault, c.how)
			defer r.end()
			var opts []core.Option
			if c.fault == "TLS" { // which works
				opts = append(opts, longTimeout)
			}
			l := r.limiter(core.PerHour(20), r.client(&c.opt), opts...)
			r.inject(func() {})
			during := r.stream(l, 200, 300*time.Millisecond, only("k"))()
			r.degraded(during, c.fault != "TLS")
			r.exactly("", during.admitted, 20)
			r.says(c.says)
			if c.fault == "TLS" {
				r.logged(l, "k", 20)
			} else {
				r.unknown = 20
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			for text := range r.heard {
				if strings.Contains(text, "wrong-horse-battery") {
					t.Errorf("the observer was told a password: %s", text)
				}
			}
		}()
	}
	if strings.Contains(logs.String(), "wrong-horse-battery") {
		t.Error("the password is in the log")
	}
}
