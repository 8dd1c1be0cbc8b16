// Package redistest runs real Redis servers for tests: one server, a replica,
// a cluster, a failover, and a TCP proxy that spoils the connection to any of them.
//
//	server := redistest.Start(t)
//	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
//
// Each server is a redis-server process of its own, found on PATH, on a free
// port of 127.0.0.1, and keeps nothing on disk. It ends with the test, and on
// Linux also when the test process is killed.
//
// SASH_REDIS_SERVER in the environment names another binary, such as
// valkey-server or the path of another version.
//
// Where redis-server is missing the test is skipped, so that the rest can be
// tested without it. With SASH_REQUIRE_REDIS=1 in the environment the test
// fails instead, so that a build cannot pass by skipping.
//
// # Faults
//
// These make what can happen to a client happen:
//
//   - The server is gone: [Server.Kill], then [Server.Restart].
//   - It hangs: [Server.Pause], then [Server.Resume].
//   - It is slow: [Proxy.SetDelay], [Proxy.Trickle].
//   - The network fails: [Proxy.CutReply], [Proxy.DropReplies], [Proxy.BlackHole].
//   - Another is the master: [Server.Promote], or [StartFailover].
//   - READONLY: the server of [StartReplica].
//   - MOVED, CROSSSLOT: [StartCluster].
//   - ASK, TRYAGAIN: [Cluster.BeginMove].
//   - CLUSTERDOWN: [Cluster.Owner], killed for a second or two.
//   - LOADING: [Server.RestartLoading], then [Server.FinishLoading].
//   - BUSY: [Server.Busy], then Do("SCRIPT", "KILL").
//   - MISCONF: [Start] with "--save", "3600", "1", then [Server.FailSaves].
//   - OOM: Start with "--maxmemory", "3mb", then Do("SETRANGE", "big", "3000000", "x").
//   - NOREPLICAS: Do("CONFIG", "SET", "min-replicas-to-write", "3").
//   - NOAUTH: Do("CONFIG", "SET", "requirepass", "secret"), then [Server.Password].
//   - NOPERM: Do("ACL", "SETUSER", "default", "-@scripting").
//   - Too many clients: Do("CONFIG", "SET", "maxclients", "1").
//   - An unknown command: Start with "--rename-command", "EVALSHA", "".
//   - TLS, and the wrong authority: [StartTLS].
//   - A reply that makes no sense: [StartFake].
//
// The package uses the standard library alone: [Server.Do] is a client that is
// just large enough for a test to look behind the back of the client it tests.
package redistest
