package redisstore

import "context"

// Check tells whether a store of the same client and options can work on its server, for example when a program
// starts. It returns all problems that it finds, each with a remedy: a server that cannot be reached, is too old,
// evicts keys, is a read-only replica, or is part of a cluster behind a plain client; commands that are renamed, that
// scripts may not call, or that the user may not run. Of a cluster it checks every master, of a Ring every shard that
// is up.
//
// Check measures the round trip as well. If the round trips that a decision needs on a new connection do not fit into
// the default of [core.WithTimeout], it returns a [store.ConfigError] with the Option "core.WithTimeout" that tells
// which timeout to set; if you have set one, ignore this error.
//
// Check changes nothing and ends with ctx. An eviction policy is a problem even if maxmemory is 0, because maxmemory
// can be changed while the server runs. To see the policy, the user must be allowed to run INFO, which the store
// itself does not need.
func Check(ctx context.Context, client Client, opts ...Option) error {
	return newLogs(client, opts).Check(ctx)
}
