package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
	"github.com/sashlimit/sash/core/store"
)

// client runs scripts at the instant of a clock.
type client struct {
	redis.UniversalClient
	*redisserver.Clock

	twice bool // each script is run twice, and replies what it does then

	mu      sync.Mutex
	scripts map[string]*redis.Script
	again   func() // runs the latest script again
}

func newClient(rdb redis.UniversalClient) *client {
	return &client{
		UniversalClient: rdb, Clock: redisserver.NewClock(), scripts: make(map[string]*redis.Script),
	}
}

func (c *client) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redisserver.ErrNoScript)
	return cmd
}

func (c *client) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	if _, ok := c.UniversalClient.(*redis.ClusterClient); ok { // the clock's keys would be on other nodes
		return c.UniversalClient.Eval(ctx, c.Fixed(text), keys, args...)
	}
	timed, keys := c.Script(text, keys)
	c.mu.Lock()
	script := c.scripts[timed]
	if script == nil {
		script = redis.NewScript(timed)
		c.scripts[timed] = script
	}
	c.again = func() {
		_, keys := c.Script(text, keys[:len(keys)-2])
		script.Run(ctx, c.UniversalClient, keys, args...)
	}
	c.mu.Unlock()
	if c.twice {
		script.Run(ctx, c.UniversalClient, keys, args...)
	}
	return script.Run(ctx, c.UniversalClient, keys, args...)
}

// onServers calls f with each server of a client.
func onServers(t *testing.T, rdb redis.UniversalClient, f func(context.Context, *redis.Client) error) {
	t.Helper()
	var err error
	switch rdb := rdb.(type) {
	case *redis.ClusterClient:
		err = rdb.ForEachMaster(t.Context(), f)
	case *redis.Client:
		err = f(t.Context(), rdb)
	}
	must(t, err)
}

// flush empties the servers of a client.
func flush(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	onServers(t, rdb, func(ctx context.Context, rdb *redis.Client) error { return rdb.FlushAll(ctx).Err() })
}

// older makes the keys of a server so many milliseconds older. Those go whose TTL, without the hour more that
// [redisserver.Clock] gives them, has ended ten minutes ago, since minutes may pass while the clock stands still.
//
//nolint:dupword // Lua
const older = `
for _, key in ipairs(redis.call('KEYS', '*')) do
  local ttl = redis.call('PTTL', key) - ARGV[1]
  if ttl > 50 * 60000 then redis.call('PEXPIRE', key, ttl) else redis.call('DEL', key) end
end`

// advance moves the clock. In a second and more, keys grow older.
func (c *client) advance(t *testing.T, by time.Duration) {
	t.Helper()
	if c.Advance(by); by >= time.Second {
		onServers(t, c.UniversalClient, func(ctx context.Context, rdb *redis.Client) error {
			if err := rdb.Eval(ctx, older, nil, by.Milliseconds()).Err(); err != redis.Nil { //nolint:errorlint // it is
				return err
			}
			return nil
		})
	}
}

// start starts a server.
func start(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: redisserver.Start(t).Addr(), ReadTimeout: 30 * time.Second})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// clocked returns a function that makes a store on a server that it empties. In the end it looks at all keys.
func clocked(rdb redis.UniversalClient, twice bool, opts ...redisstore.Option) func(*testing.T) definition.Clocked {
	return clockedBy(rdb, twice, func(c *client) store.Store { return redisstore.New(c, opts...) })
}

// streams is clocked for package redisstream, whose logs have the same properties.
func streams(rdb redis.UniversalClient, twice bool) func(*testing.T) definition.Clocked {
	return clockedBy(rdb, twice, func(c *client) store.Store { return redisstream.New(c, redisstream.WithOneServer()) })
}

func clockedBy(
	rdb redis.UniversalClient, twice bool, newStore func(*client) store.Store,
) func(*testing.T) definition.Clocked {
	return func(t *testing.T) definition.Clocked {
		t.Helper()
		flush(t, rdb)
		t.Cleanup(func() { checkKeys(t, rdb) })
		c := newClient(rdb)
		c.twice = twice
		return definition.Clocked{Store: newStore(c), Now: c.Now, Advance: func(by time.Duration) { c.advance(t, by) }}
	}
}

// checkKeys: every key will leave by itself.
func checkKeys(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	ctx := context.Background()
	keys := rdb.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		if ttl := rdb.PTTL(ctx, keys.Val()).Val(); ttl == -1 {
			t.Errorf("key %q has no TTL", keys.Val())
		}
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	clocked := clocked(start(t), false, redisstore.WithOneServer())
	coretest.Store(t, coretest.StoreConfig{
		New:        func(t *testing.T) coretest.Clocked { return coretest.Clocked(clocked(t)) },
		Operations: testlen.Of(10_000, 30_000), Callers: 6, Again: true, ByID: true,
	})
}

// The answers to a command that was executed before are the same as the first ones.
func TestTwice(t *testing.T) {
	t.Parallel()
	c := definition.Config{
		New: clocked(start(t), true, redisstore.WithOneServer()), Operations: testlen.Of(10_000, 30_000), Callers: 6,
		Twice: true, Again: true, ByID: true,
	}
	definition.Random(t, c)
	definition.Explore(t, c, 3, c.Operations/20)
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for _, twice := range []bool{false, true} {
		t.Run(fmt.Sprint("twice ", twice), func(t *testing.T) {
			t.Parallel()
			definition.Bounds(t, definition.Config{
				New: clocked(start(t), twice, redisstore.WithOneServer()), Operations: testlen.Of(10_000, 30_000),
				Callers: 6, Twice: twice, ByID: true,
			})
		})
	}
}

// On a cluster, the logs of a key are on one node, and keys are asked in turn.
func TestInTurn(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, node := range redisserver.StartCluster(t, 3).Nodes() {
		addrs = append(addrs, node.Addr())
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ReadTimeout: 30 * time.Second})
	t.Cleanup(func() { cluster.Close() })
	for name, rdb := range map[string]redis.UniversalClient{"server": start(t), "cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			n := testlen.Of(5_000, 30_000)
			if rdb == cluster {
				n = testlen.Of(1_000, 6_000) // each script has another text
			}
			definition.Random(t, definition.Config{
				New: clocked(rdb, false), Operations: n, Callers: 6, Again: true, ByID: true, InTurn: true,
			})
		})
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	rdb := start(t)
	clocked := streams(rdb, false)
	coretest.Store(t, coretest.StoreConfig{
		New:        func(t *testing.T) coretest.Clocked { return coretest.Clocked(clocked(t)) },
		Operations: testlen.Of(10_000, 30_000), Callers: 6, Units: true,
	})
	for _, twice := range []bool{false, true} {
		c := definition.Config{
			New: streams(rdb, twice), Operations: testlen.Of(5_000, 15_000), Twice: twice, Units: true,
		}
		definition.Random(t, c)
		definition.Bounds(t, c)
	}
}
