// Package redisserver runs real Redis servers for tests: one server, a replica,
// a cluster, a failover, and a TCP proxy that spoils the connection to any of them.
//
//	server := redisserver.Start(t)
//	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
//
// Package redistest tells which binary runs, and what happens where there is none. It has what others need of this.
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
//   - CLUSTERDOWN: StartCluster with "--cluster-node-timeout", "1000", then [Cluster.Owner], killed for 2 s.
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
package redisserver
