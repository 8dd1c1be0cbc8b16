package redisclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/store"
)

// Try uses the scripts of a store on the scratch key with that number, and leaves nothing there.
type Try func(ctx context.Context, one *Conn, number int) error

// Check reports what keeps a store from working on each of its servers. It ends with ctx.
func (c *Conn) Check(ctx context.Context, try Try) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return c.until(ctx, func() error { return c.check(ctx, try) })
}

func (c *Conn) check(ctx context.Context, try Try) error {
	var mu sync.Mutex
	found := make(map[string]error) // by address
	each := func(ctx context.Context, client *redis.Client) error {
		one, addr := newConn(c.of, client, c.prefix), client.Options().Addr
		one.known, one.one, one.member, one.dial = client, true, true, c.dial
		err := one.checkOne(ctx, addr, try)
		mu.Lock()
		defer mu.Unlock()
		found[addr] = err
		return nil
	}
	var err error
	addr := ""
	switch client := c.client.(type) {
	case *redis.Client:
		addr = client.Options().Addr
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, each)
	case *redis.Ring:
		err = client.ForEachShard(ctx, each)
	}
	if err != nil {
		return err
	}
	if len(found) == 0 { // also of a Ring without a shard that is up
		return c.checkOne(ctx, addr, try)
	}
	var all []error
	for _, addr := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[addr])
	}
	return errors.Join(all...)
}

// mostTries bounds the search for a scratch key whose slot a master has. One of a hundred masters has none of so many
// once in 20,000 times.
const mostTries = 1000

// moved matches errors about slots that another server has, or gets.
var moved = regexp.MustCompile(`^(MOVED|ASK|TRYAGAIN) `)

func (c *Conn) checkOne(ctx context.Context, addr string, try Try) error {
	err := try(ctx, c, 0)
	var failed *store.StoreError
	for n := 1; c.member && errors.As(err, &failed) && moved.MatchString(failed.Err.Error()); n++ {
		if n == mostTries {
			return nil // it has no slots, so no logs
		}
		err = try(ctx, c, n)
	}
	if err != nil {
		return at(addr, err)
	}
	begun := time.Now()
	if err := c.client.Eval(ctx, "return 0", nil).Err(); err != nil {
		return at(addr, c.Failed(err))
	}
	warnOfDistance(addr, time.Since(begun))
	info, err := c.client.Eval(ctx, "return redis.call('INFO')", nil).Text()
	if err != nil {
		return fault(addr, "INFO, which returns version and maxmemory-policy, is refused",
			grant("INFO")+", or make sure that it is Redis 6.2 or later with noeviction")
	}
	_, plain := c.client.(*redis.Client)
	return checkInfo(addr, info, plain && !c.member)
}

// at adds the address of a server to an error.
func at(addr string, err error) error {
	var failed *store.StoreError
	if !errors.As(err, &failed) || strings.Contains(failed.Err.Error(), addr) {
		return err
	}
	there := *failed
	there.Err = fmt.Errorf("%s: %w", addr, failed.Err)
	return &there
}

// fault returns an error for a wrong configuration.
func fault(addr, problem, remedy string) error {
	return &store.ConfigError{Option: "Redis", Value: addr, Problem: problem, Remedy: remedy}
}

// checkInfo reports problems that the output of INFO shows.
func checkInfo(addr, info string, plain bool) error {
	field := func(name string) string {
		_, rest, _ := strings.Cut("\n"+info, "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(value)
	}
	var found []error
	switch policy := field("maxmemory_policy"); policy {
	case "noeviction":
	case "":
		found = append(found, fault(addr, "INFO has no maxmemory-policy",
			"make sure that the server evicts no keys, because an evicted log is a fresh quota"))
	default:
		found = append(found, fault(addr,
			"its maxmemory-policy is "+policy+", which evicts logs when memory is short, "+
				"and an evicted log is a fresh quota",
			"set it to noeviction, if necessary on a server that is used only for logs"))
	}
	version := field("redis_version")
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && (major < 6 || major == 6 && minor < 2) {
		found = append(found, fault(addr, "its version is "+version, "use Redis 6.2 or later, or Valkey"))
	}
	if plain && field("cluster_enabled") == "1" {
		found = append(found, fault(addr, "the server is part of a cluster", "use redis.NewClusterClient"))
	}
	return errors.Join(found...)
}

const (
	defaultTimeout = 100 * time.Millisecond // of core.WithTimeout
	tripsToDecide  = 4                      // of a decision on a new connection: TCP, HELLO, CLIENT SETINFO, the take
)

// warnOfDistance logs that a server is too far away for a decision on a new connection within the default timeout.
// Check does not know whether the program has set another one.
func warnOfDistance(addr string, trip time.Duration) {
	if tripsToDecide*trip <= defaultTimeout {
		return
	}
	enough := (2 * tripsToDecide * trip).Truncate(50*time.Millisecond) + 50*time.Millisecond
	slog.Warn("sash: the Redis server is far away, or slow", slog.String("addr", addr),
		slog.Duration("round trip", trip),
		slog.String("remedy", fmt.Sprintf("a timeout of %v or more (core.WithTimeout), or a nearer server", enough)))
}
