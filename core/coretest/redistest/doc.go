// Package redistest runs real Redis servers for tests: one server, a replica,
// a cluster, and a TCP proxy that spoils the connection to any of them.
//
//	server := redistest.Start(t)
//	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
//
// Each server is a redis-server process of its own, found on PATH, on a free
// port of 127.0.0.1, and keeps nothing on disk. It ends with the test, and on
// Linux also when the test process is killed.
//
// Where redis-server is missing the test is skipped, so that the rest can be
// tested without it. With SASH_REQUIRE_REDIS=1 in the environment the test
// fails instead, so that a build cannot pass by skipping.
//
// The package uses the standard library alone: [Server.Do] is a client that is
// just large enough for a test to look behind the back of the client it tests.
package redistest
