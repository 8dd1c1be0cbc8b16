// Package redistest runs real Redis servers for tests: one server, or a cluster.
//
//	server := redistest.Start(t)
//	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
//
// Each server is a redis-server process of its own, found on PATH, on a free port of 127.0.0.1, and keeps nothing on
// disk. It ends with the test, and on Linux also when the test process is killed. SASH_REDIS_SERVER in the environment
// names another binary, such as valkey-server or the path of another version.
//
// Where redis-server is missing the test is skipped, so that the rest can be tested without it. With
// SASH_REQUIRE_REDIS=1 in the environment the test fails instead, so that a build cannot pass by skipping.
//
// The package may change with any release.
package redistest

import (
	"testing"

	"github.com/sashlimit/sash/core/internal/redisserver"
)

// Server is a redis-server process: Addr and URL are where it listens, Do sends it a command, Kill and Restart crash it
// and bring it back, Pause and Resume let it hang for a while. Its methods fail the test when the process does not do
// as told. They belong to the goroutine of the test, except for Addr, URL and Do, which any may call.
type Server = redisserver.Server

// Start runs a redis-server with the given further arguments, such as "--maxmemory", "1mb", and returns when it
// answers.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return redisserver.Start(tb, args...)
}

// Cluster is a Redis Cluster of masters that share the slots evenly. Addrs are their addresses, and Nodes the servers,
// to be paused or killed one by one.
type Cluster = redisserver.Cluster

// StartCluster runs a cluster of so many masters and returns when every node knows all others and says that the cluster
// is well. That takes Redis at least 2 s. A node counts as failed after 1 s of silence.
func StartCluster(tb testing.TB, masters int) *Cluster {
	tb.Helper()
	return redisserver.StartCluster(tb, masters, "--cluster-node-timeout", "1000")
}

// Clock is time for scripts that ask the server for it: Advance moves it. A client that passes every script through its
// Script and the arguments through its Args, and answers [ErrNoScript] to EVALSHA, runs them at the clock's instant.
type Clock = redisserver.Clock

// NewClock returns a clock that stands still until it is moved.
func NewClock() *Clock { return redisserver.NewClock() }

// ErrNoScript is what a server says that has never seen a script.
const ErrNoScript = redisserver.ErrNoScript
