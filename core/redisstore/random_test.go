package redisstore_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
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

// TestMain runs twice as many tests at the same time as there are CPUs: half of the time they wait for servers.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// scripts are those on a clock, by the SHA-1 of the store's own texts.
var scripts sync.Map

// client runs scripts at the instant of a clock.
type client struct {
	redis.UniversalClient
	*redisserver.Clock

	twice bool         // each script is run twice, and replies what it does then
	ready func() error // is called before each script
	again atomic.Pointer[func() *redis.Cmd]
	older time.Duration // how much older keys are to be made
}

func newClient(rdb redis.UniversalClient) *client {
	return &client{UniversalClient: rdb, Clock: redisserver.NewClock(), ready: func() error { return nil }}
}

func (c *client) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	err := c.ready()
	script, known := scripts.Load(sha1)
	if err == nil && !known {
		err = redisserver.ErrNoScript
	}
	if err != nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	run := func() *redis.Cmd {
		return script.(*redis.Script).Run(ctx, c.UniversalClient, keys, c.Args(args)...)
	}
	c.again.Store(&run)
	if c.twice {
		run()
	}
	return run()
}

func (c *client) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	sha1 := redis.NewScript(text).Hash()
	scripts.LoadOrStore(sha1, redis.NewScript(c.Script(text)))
	return c.EvalSha(ctx, sha1, keys, args...)
}

// onServers calls f with each server of a client.
func onServers(t *testing.T, rdb redis.UniversalClient, f func(context.Context, *redis.Client) error) {
	t.Helper()
	var err error
	ctx := context.WithoutCancel(t.Context()) // at the end of a test, too
	switch rdb := rdb.(type) {
	case *redis.ClusterClient:
		err = rdb.ForEachMaster(ctx, f)
	case *redis.Client:
		err = f(ctx, rdb)
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

// withoutTTL returns the keys of a server that do not leave by themselves.
//
//nolint:dupword // Lua
const withoutTTL = `
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PTTL', key) == -1 then found[#found + 1] = key end
end
return found`

// advance moves the clock. Keys grow older by the minute.
func (c *client) advance(t *testing.T, by time.Duration) {
	t.Helper()
	c.Advance(by)
	if c.older += max(by, 0); c.older >= time.Minute {
		onServers(t, c.UniversalClient, func(ctx context.Context, rdb *redis.Client) error {
			err := rdb.Eval(ctx, older, nil, c.older.Milliseconds()).Err()
			if err != redis.Nil { //nolint:errorlint // it is
				return err
			}
			return nil
		})
		c.older = 0
	}
}

// start starts a server. Its socket and reading without deadlines cost a fifth less than TCP with them.
func start(t *testing.T) *redis.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	redisserver.Start(t, "--unixsocket", socket)
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, ReadTimeout: -2, WriteTimeout: -2})
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
	onServers(t, rdb, func(ctx context.Context, rdb *redis.Client) error {
		lasting, err := rdb.Eval(ctx, withoutTTL, nil).StringSlice()
		for _, key := range lasting {
			t.Errorf("key %q has no TTL", key)
		}
		return err
	})
}

func TestStore(t *testing.T) {
	t.Parallel()
	clocked := clocked(start(t), false, redisstore.WithOneServer())
	coretest.Store(t, coretest.StoreConfig{
		New:        func(t *testing.T) coretest.Clocked { return coretest.Clocked(clocked(t)) },
		Operations: testlen.Of(5_000, 30_000), Callers: 6, Again: true, ByID: true,
	})
}

// The answers to a command that was executed before are the same as the first ones.
func TestTwice(t *testing.T) {
	t.Parallel()
	c := definition.Config{
		New: clocked(start(t), true, redisstore.WithOneServer()), Operations: testlen.Of(3_000, 30_000), Callers: 6,
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
				New: clocked(start(t), twice, redisstore.WithOneServer()), Operations: testlen.Of(2_000, 30_000),
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
			n := testlen.Of(3_000, 30_000)
			if rdb == cluster {
				n = testlen.Of(1_000, 6_000)
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
		Operations: testlen.Of(5_000, 30_000), Callers: 6, Units: true,
	})
}

// The same where each command is sent twice.
func TestStreamsTwice(t *testing.T) {
	t.Parallel()
	rdb := start(t)
	c := definition.Config{New: streams(rdb, false), Operations: testlen.Of(2_000, 15_000), Units: true}
	definition.Bounds(t, c)
	c.New, c.Twice = streams(rdb, true), true
	definition.Random(t, c)
	definition.Bounds(t, c)
}
