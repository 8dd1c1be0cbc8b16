package redisclient_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/internal/timerlag"
	"github.com/sashlimit/sash/core/store"
)

// counting keeps the ids of each key, and replies with how many there were before.
//
//nolint:dupword // Lua
var counting = redisclient.NewScript(`
local reply, time = {}, redis.call('TIME')
for i, key in ipairs(KEYS) do
  reply[i] = redis.call('ZCARD', key)
  for at = 1, #ARGV[i] - #ARGV[i] % 8, 8 do redis.call('ZADD', key, time[1], ARGV[i]:sub(at, at + 7)) end
end
return reply`)

var pack = &redisclient.Package{Name: "redistest", Commands: []string{"TIME", "ZCARD", "ZADD", "UNLINK"}}

func newConn(client redisclient.Client) *redisclient.Conn {
	return redisclient.New(pack, client)
}

func newPlan() *redisclient.Plan {
	return &redisclient.Plan{
		Script: counting, Group: 1024,
		Cut: func(reply []int64, _ int) int {
			if len(reply) > 0 && reply[0] < 0 {
				return -1
			}
			return 1
		},
	}
}

var ids atomic.Uint64

func question(c *redisclient.Conn, key string) *redisclient.Question {
	text := binary.BigEndian.AppendUint64([]byte(key), ids.Add(1))
	return c.NewQuestion(string(text), len(key))
}

// ask counts a question of a key, and returns how many were counted before.
func ask(ctx context.Context, c *redisclient.Conn, p *redisclient.Plan, key string) (int, error) {
	q := question(c, key)
	if err := c.Do(ctx, p, q); err != nil {
		return 0, err
	}
	defer q.Free()
	return int(q.Reply[0]) + q.Place, nil
}

func askWithin(ctx context.Context, limit time.Duration, c *redisclient.Conn, p *redisclient.Plan, key string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := ask(ctx, c, p, key)
	return err
}

func at(s *redisserver.Server) *redis.Options { return &redis.Options{Addr: s.Addr()} }

// plain is a client that tries once.
func plain(t *testing.T, o *redis.Options) *redis.Client {
	t.Helper()
	o.MaxRetries = -1
	rdb := redis.NewClient(o)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// do tells a server something that must succeed.
func do(t *testing.T, s *redisserver.Server, args ...string) {
	t.Helper()
	if _, err := s.Do(args...); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
}

// hidden hides what kind of client it is.
type hidden struct{ redisclient.Client }

// Each question is counted once, and each of those that have become one finds its place.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	cluster := redisserver.StartCluster(t, 3)
	one, two := redisserver.Start(t), redisserver.Start(t)
	tlsServer := redisserver.StartTLS(t)
	for name, client := range map[string]redisclient.Client{
		"one server": redis.NewClient(at(one)),
		"RESP2":      redis.NewClient(&redis.Options{Addr: one.Addr(), Protocol: 2}),
		"TLS":        redis.NewClient(&redis.Options{Addr: tlsServer.Addr(), TLSConfig: tlsServer.TLSConfig()}),
		"cluster":    redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}),
		"Ring":       redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": one.Addr(), "b": two.Addr()}}),
		"unknown":    hidden{redis.NewClient(at(two))},
	} {
		t.Run(name, func(t *testing.T) {
			const callers, each, keys = 100, 30, 7
			c, p := newConn(client), newPlan()
			var mu sync.Mutex
			places := make([][]int, keys)
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for i := range each {
						n, err := ask(t.Context(), c, p, fmt.Sprint(name, i%keys))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						places[i%keys] = append(places[i%keys], n)
						mu.Unlock()
					}
				})
			}
			all.Wait()
			for k := range places {
				slices.Sort(places[k])
				for i, n := range places[k] {
					if i != n {
						t.Fatalf("key %d: number %d is %d", k, i, n)
					}
				}
			}
			if closer, ok := client.(io.Closer); ok {
				closer.Close()
			}
		})
	}
}

// A server that has forgotten the script is sent it again, also in a pipeline.
func TestScriptFlush(t *testing.T) {
	server := redisserver.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr()}})
	for _, client := range []redisclient.Client{plain(t, at(server)), ring} {
		c, p := newConn(client), newPlan()
		var all sync.WaitGroup
		for i := range 50 {
			if i%10 == 0 {
				do(t, server, "SCRIPT", "FLUSH")
			}
			all.Go(func() {
				if _, err := ask(t.Context(), c, p, fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	ring.Close()
}

// A key of another type makes the questions of that key fail, and none of those that are sent with them.
func TestOtherTypeInABatch(t *testing.T) {
	server := redisserver.Start(t)
	do(t, server, "SET", "odd", "x")
	rdb := plain(t, at(server))
	for name, client := range map[string]redisclient.Client{"known": rdb, "unknown": hidden{rdb}} {
		c := redisclient.New(pack, client, func(o *redisclient.Options) { o.OneServer = true })
		p := newPlan()
		var all sync.WaitGroup
		for i := range 40 {
			key := fmt.Sprint(name, i)
			if i%4 == 0 {
				key = "odd"
			}
			all.Go(func() {
				for n := range 20 {
					got, err := ask(t.Context(), c, p, key)
					var failed *store.StoreError
					switch {
					case key != "odd" && err != nil:
						t.Errorf("of another key: %v", err)
					case key != "odd" && got < n:
						t.Errorf("%s: %d before, want %d or more", key, got, n)
					case key == "odd" && (!errors.As(err, &failed) || !failed.OneKey):
						t.Errorf("of the key itself: %v", err)
					}
				}
			})
		}
		all.Wait()
	}
}

// keeper is a hook that keeps the arguments of commands, as one may that reports them later, and their text of that
// time.
type keeper struct {
	mu    sync.Mutex
	args  [][]any
	texts []string
}

func (*keeper) DialHook(next redis.DialHook) redis.DialHook { return next }

func (k *keeper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		k.keep(cmd)
		return next(ctx, cmd)
	}
}

func (k *keeper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			k.keep(cmd)
		}
		return next(ctx, cmds)
	}
}

func (k *keeper) keep(cmd redis.Cmder) {
	if cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.args = append(k.args, cmd.Args())
	k.texts = append(k.texts, fmt.Sprintf("%T %[1]v", cmd.Args()))
}

// Hooks see commands with their keys as texts, and may keep them. One that is added later sees them as well.
func TestHooks(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redisserver.StartCluster(t, 3).Addrs()})
	defer cluster.Close()
	for name, client := range map[string]redis.UniversalClient{
		"one server": plain(t, at(redisserver.Start(t))), "cluster": cluster,
	} {
		c, p, k := newConn(client), newPlan(), new(keeper)
		if _, err := ask(t.Context(), c, p, "before"); err != nil {
			t.Fatal(err)
		}
		client.AddHook(k)
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				for j := range 10 {
					if _, err := ask(t.Context(), c, p, fmt.Sprintf("key-%d-%d", i, j%5)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		seen := make(map[string]bool)
		for i, args := range k.args {
			if now := fmt.Sprintf("%T %[1]v", args); now != k.texts[i] {
				t.Errorf("%s: command %d was\n%q\nand is now\n%q", name, i, k.texts[i], now)
			}
			for _, arg := range args[3 : 3+args[2].(int)] {
				seen[arg.(string)] = true
			}
		}
		if len(seen) != 200 {
			t.Errorf("%s: the hook has seen %d keys of 200", name, len(seen))
		}
	}
}

// inTime fails if each of five calls that must end within a limit took 25 ms more, or what timers were late. On a busy
// machine one may wait for its turn for that long, while timers do not.
func inTime(t *testing.T, name string, limit time.Duration, f func()) {
	t.Helper()
	var took [5]time.Duration
	for i := range took {
		clock := timerlag.Watch()
		begun := time.Now()
		f()
		took[i] = time.Since(begun)
		clock.Stop()
		if took[i] <= limit+25*time.Millisecond+clock.Slack() {
			return
		}
	}
	t.Errorf("%s: %v with a limit of %v", name, took, limit)
}

// A caller returns in time whatever its client is set to, and whatever functions the client has.
func TestInTimeWithAnyClient(t *testing.T) {
	server, paused := redisserver.Start(t), redisserver.Start(t)
	paused.Pause()
	defer paused.Resume()
	hung := make(chan struct{})
	hang := func(context.Context, string, string) (net.Conn, error) { <-hung; return nil, net.ErrClosed }
	clients := map[string]redis.UniversalClient{
		"without deadlines": redis.NewClient(&redis.Options{Addr: paused.Addr(), ReadTimeout: -2}),
		"TLS":               redis.NewClient(&redis.Options{Addr: paused.Addr(), TLSConfig: &tls.Config{}}),
		"a dialer":          redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: hang}),
		"context timeout":   redis.NewClient(&redis.Options{Addr: paused.Addr(), ContextTimeoutEnabled: true}),
		"Sentinel": redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "m", SentinelAddrs: []string{paused.Addr()},
		}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{server.Addr()}, MaxRedirects: -1,
			CredentialsProvider: func() (user, password string) { <-hung; return "", "" },
		}),
		"Ring": redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": server.Addr()}, HeartbeatFrequency: time.Hour,
			NewClient: func(o *redis.Options) *redis.Client {
				o.OnConnect = func(context.Context, *redis.Conn) error { <-hung; return nil }
				return redis.NewClient(o)
			},
		}),
	}
	for name, client := range clients {
		c, p := newConn(client), newPlan()
		for range 3 {
			const limit = 50 * time.Millisecond
			inTime(t, name, limit, func() {
				wantClass(t, askWithin(t.Context(), limit, c, p, "k"), redisclient.ClassTimeout, "slow")
			})
		}
	}
	close(hung)
	for _, client := range clients {
		client.Close()
	}
}

// A refused connection is told from silence, also where the client dials again for longer than callers wait, but not of
// a Ring, whose shards are in use from the beginning.
func TestRefused(t *testing.T) {
	server := redisserver.Start(t)
	used := redis.NewClient(at(server))
	defer used.Close()
	c, p := newConn(used), newPlan()
	if err := askWithin(t.Context(), time.Minute, c, p, "k"); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	unused := redis.NewClient(at(server))
	defer unused.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	defer cluster.Close()
	for name, c := range map[string]*redisclient.Conn{
		"used": c, "unused": newConn(unused), "cluster": newConn(cluster),
	} {
		for range 5 {
			begun := time.Now()
			err := askWithin(t.Context(), 100*time.Millisecond, c, p, "k")
			t.Logf("%s: %v after %v", name, err, time.Since(begun).Round(time.Millisecond))
			wantClass(t, err, redisclient.ClassRefused, "start the server")
		}
	}
}

// One node of a cluster that hangs, or one shard of a Ring, does not hold up the others.
func TestOneServerHangs(t *testing.T) {
	t.Parallel()
	cluster := redisserver.StartCluster(t, 3)
	shards := []*redisserver.Server{redisserver.Start(t), redisserver.Start(t)}
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:              map[string]string{"a": shards[0].Addr(), "b": shards[1].Addr()},
		HeartbeatFrequency: time.Hour, ReadTimeout: time.Minute,
	})
	clients := map[string]struct {
		client  redis.UniversalClient
		hanging *redisserver.Server
	}{
		"cluster": {redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: cluster.Addrs(), ReadTimeout: time.Minute,
		}), cluster.Nodes()[1]},
		"Ring": {ring, shards[1]},
	}
	for name, of := range clients {
		t.Run(name, func(t *testing.T) {
			defer of.client.Close()
			if _, tells := of.client.(interface {
				GetShardClientForKey(key string) (*redis.Client, error)
			}); !tells && name == "Ring" {
				t.Skip("this go-redis does not tell which shard has a key")
			}
			c, p := newConn(of.client), newPlan()
			const limit = 20 * time.Second // until whoever is held up fails
			var there, elsewhere []string
			for i := range 40 {
				key := fmt.Sprint(name, i)
				if err := askWithin(t.Context(), time.Minute, c, p, key); err != nil {
					t.Fatal(err)
				}
				// A node of a cluster that has not the slot has an error.
				if n, err := of.hanging.Do("EXISTS", key); err == nil && n == int64(1) {
					there = append(there, key)
				} else {
					elsewhere = append(elsewhere, key)
				}
			}
			of.hanging.Pause()
			defer of.hanging.Resume()
			ctx, stop := context.WithCancel(t.Context())
			var flood, all sync.WaitGroup
			for i := range 50 {
				leaves := limit // which keeps its batch in flight, while others leave calls behind
				if i%2 == 0 {
					leaves = 50 * time.Millisecond
				}
				flood.Go(func() {
					for ctx.Err() == nil {
						if askWithin(ctx, leaves, c, p, there[i%len(there)]) == nil {
							t.Error("answered by a server that hangs")
						}
					}
				})
			}
			for i := range 20 {
				all.Go(func() {
					for range 40 {
						if err := askWithin(ctx, limit, c, p, elsewhere[i%len(elsewhere)]); err != nil {
							t.Errorf("of another server: %v", err)
							return
						}
					}
				})
			}
			all.Wait()
			stop()
			flood.Wait()
		})
	}
}

func TestOptionMistakes(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for _, c := range []struct {
		client redisclient.Client
		o      redisclient.Options
		want   []string
	}{
		{plain(t, &redis.Options{}), redisclient.Options{Prefix: "shop-1_a.b"}, nil},
		{plain(t, &redis.Options{}), redisclient.Options{Prefix: ""}, []string{`redistest.WithPrefix("")`}},
		{nil, redisclient.Options{Prefix: "a:b"}, []string{`redistest.New(nil)`, `redistest.WithPrefix("a:b")`}},
		{(*redis.Client)(nil), redisclient.Options{Prefix: "sash"}, []string{`redistest.New(nil)`}},
		{ring, redisclient.Options{Prefix: strings.Repeat("a", 17), OneServer: true},
			[]string{`redistest.WithPrefix("aaaaaaaaaaaaaaaaa")`, `redistest.WithOneServer(*redis.Ring)`}},
	} {
		err := redisclient.New(pack, c.client, func(o *redisclient.Options) { *o = c.o }, nil).Validate()
		for _, want := range c.want {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%+v: %v\n want %q in it", c.o, err, want)
			}
		}
		if c.want == nil && err != nil {
			t.Error(err)
		}
	}
}
