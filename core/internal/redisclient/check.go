package redisclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/store"
)

// Check reports what keeps the store from working on its server: see the Check of the store's package.
func (l *Logs) Check(ctx context.Context) error {
	if err := l.Validate(); err != nil {
		return err
	}
	done := make(chan error, 1)
	c := &checker{logs: l, found: make(map[string][]error)}
	go func() { done <- c.check(ctx, l.client) }()
	if err, ok := Await(ctx, done); ok {
		return err
	}
	return l.Failed(ctx.Err()) // many clients do not heed it
}

// probe is a script that replies with the output of INFO, then with name and error of each command that fails. INCRBY
// may be called if it refuses its argument, which is not an integer.
const probe = `
local reply = {''}
for i = 1, #ARGV do
  local words = {}
  for word in ARGV[i]:gmatch('%S+') do words[#words + 1] = word == 'key' and KEYS[1] or word end
  local said = redis.pcall(unpack(words))
  local failed = type(said) == 'table' and said.err
  if failed and failed:find('not an integer', 1, true) then failed = nil end
  if failed then reply[#reply + 1], reply[#reply + 2] = words[1], failed end
  reply[1] = words[1] == 'INFO' and not failed and said or reply[1]
end
return reply`

var probeHash = sha1Hex(probe)

// checker collects the problems of servers that are checked at the same time.
type checker struct {
	logs *Logs

	servers atomic.Int32

	mu    sync.Mutex
	found map[string][]error // by address
}

func (c *checker) check(ctx context.Context, client Client) error {
	var err error
	each := func(master bool) func(context.Context, *redis.Client) error {
		return func(ctx context.Context, one *redis.Client) error {
			c.server(ctx, one, master)
			return nil
		}
	}
	switch client := client.(type) {
	case interface {
		ForEachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error
	}:
		err = client.ForEachMaster(ctx, each(true))
	case interface {
		ForEachShard(ctx context.Context, f func(context.Context, *redis.Client) error) error
	}:
		err = client.ForEachShard(ctx, each(false))
	}
	if err != nil {
		return c.logs.Failed(err)
	}
	if c.servers.Load() == 0 { // also a Ring without a shard that is up
		c.server(ctx, client, false)
	}
	var all []error
	for _, addr := range slices.Sorted(maps.Keys(c.found)) {
		all = append(all, c.found[addr]...)
	}
	return errors.Join(all...)
}

// server checks one server. master tells that it is a master of a cluster.
func (c *checker) server(ctx context.Context, client Client, master bool) {
	addr := ""
	if o, ok := client.(interface{ Options() *redis.Options }); ok {
		addr = o.Options().Addr
	}
	c.servers.Add(1)
	key, err := c.findKey(ctx, client, master)
	if err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		if master && redis.HasErrorPrefix(err, "MOVED") {
			return // it has no slots, so no logs
		}
		c.add(addr, "", err)
		if !strings.Contains(strings.ToLower(err.Error()), "evalsha") {
			return // EVAL would fail for the same reason
		}
	}
	reply, err := client.Eval(ctx, probe, []string{key}, c.args()...).StringSlice()
	if err == nil && len(reply)%2 != 1 {
		err = fmt.Errorf("a reply of %d texts", len(reply))
	}
	if err != nil {
		c.add(addr, "", err)
		return
	}
	c.roundTrip(ctx, addr, client, key)
	c.commands(addr, reply[1:])
	if reply[0] != "" {
		_, plain := client.(*redis.Client)
		c.info(addr, reply[0], plain && !master)
	}
}

// keyTries is how many keys findKey tries, to find one whose slot a master has. One of a hundred masters has none of
// them once in 20,000 times.
const keyTries = 1000

// findKey returns a key that the server has, whose slot is not being moved, and the error of EVALSHA on it.
func (c *checker) findKey(ctx context.Context, client Client, master bool) (key string, err error) {
	for n := range keyTries {
		key = c.logs.prefix + ":check:" + strconv.Itoa(n)
		err = client.EvalSha(ctx, probeHash, []string{key}, c.args()...).Err()
		if !master || !redis.HasErrorPrefix(err, "MOVED") && !redis.HasErrorPrefix(err, "ASK") {
			break
		}
	}
	return key, err
}

// args returns the arguments of the probe.
func (c *checker) args() []any {
	args := make([]any, len(c.logs.kind.Needed))
	for i := range c.logs.kind.Needed {
		args[i] = c.logs.kind.Needed[i]
	}
	return args
}

// commands reports the commands that failed, in one error for each class.
func (c *checker) commands(addr string, failures []string) {
	var classes []string
	names, errs := map[string][]string{}, map[string]error{}
	for pair := range slices.Chunk(failures, 2) {
		name, err := pair[0], replyError(pair[1])
		if name == "INFO" {
			c.fault(addr, "INFO, which returns version and maxmemory-policy, is refused",
				grant(name)+", or make sure that it is Redis 6.2 or later with noeviction")
			continue
		}
		class := c.logs.kind.diagnose(err).Class
		if names[class] == nil {
			classes = append(classes, class)
			errs[class] = err
		}
		names[class] = append(names[class], name)
	}
	for _, class := range classes {
		c.add(addr, strings.Join(names[class], ", "), errs[class])
	}
}

// info reports problems that the output of INFO shows.
func (c *checker) info(addr, info string, plain bool) {
	field := func(name string) string {
		_, rest, _ := strings.Cut("\n"+info, "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(value)
	}
	switch policy := field("maxmemory_policy"); policy {
	case "noeviction":
	case "":
		c.fault(addr, "INFO has no maxmemory-policy",
			"make sure that the server evicts no keys, because an evicted log is a fresh quota")
	default:
		c.fault(addr, "its maxmemory-policy is "+policy+", which evicts logs when memory is short, "+
			"and an evicted log is a fresh quota",
			"set it to noeviction, if necessary on a server that is used only for logs")
	}
	version := field("redis_version")
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && (major < 6 || major == 6 && minor < 2) {
		c.fault(addr, "its version is "+version, "use Redis 6.2 or later, or Valkey")
	}
	if plain && field("cluster_enabled") == "1" {
		c.fault(addr, "the server is part of a cluster", "use redis.NewClusterClient")
	}
}

// add reports an error of the client, or of the named commands in a script.
func (c *checker) add(addr, names string, err error) {
	d := c.logs.kind.diagnose(err)
	if names != "" {
		if d.Class == ClassAuth {
			d.Advice = grant(strings.Split(names, ", ")...)
		}
		d.Err = fmt.Errorf("%s in a script: %w", names, d.Err)
	}
	if addr != "" && !strings.Contains(d.Err.Error(), addr) {
		d.Err = fmt.Errorf("%s: %w", addr, d.Err)
	}
	c.report(addr, d)
}

// fault reports a wrong configuration.
func (c *checker) fault(addr, problem, remedy string) {
	c.report(addr, &store.ConfigError{Option: "Redis", Value: addr, Problem: problem, Remedy: remedy})
}

func (c *checker) report(addr string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found[addr] = append(c.found[addr], err)
}

const (
	defaultTimeout = 100 * time.Millisecond // of core.WithTimeout
	tripsToDecide  = 4                      // of a decision on a new connection: TCP, HELLO, CLIENT SETINFO, the take
	measuredTrips  = 10                     // at most: on a busy machine some take longer
)

// roundTrip reports a server that is too far away for a decision on a new connection within the default timeout. It
// measures on a connection that is open.
func (c *checker) roundTrip(ctx context.Context, addr string, client Client, key string) {
	shortest := time.Duration(0)
	for range measuredTrips {
		began := time.Now()
		if err := client.Eval(ctx, "return 0", []string{key}).Err(); err != nil {
			return // which was reported, or is new
		}
		if trip := time.Since(began); shortest == 0 || trip < shortest {
			shortest = trip
		}
		if tripsToDecide*shortest <= defaultTimeout {
			return
		}
	}
	enough := (2 * tripsToDecide * shortest).Truncate(50*time.Millisecond) + 50*time.Millisecond
	c.report(addr, &store.ConfigError{
		Option: "core.WithTimeout", Value: "default " + defaultTimeout.String(),
		Problem: fmt.Sprintf("a round trip to %s takes %v, and a decision on a new connection %d of them",
			addr, shortest.Round(time.Millisecond), tripsToDecide),
		Remedy: fmt.Sprintf("set core.WithTimeout(%v), or use a nearer server; if you have set it already, ignore this",
			enough),
	})
}
