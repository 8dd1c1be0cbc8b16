package redisstream

import "context"

// Check tells whether a store of the same client and options can work on its server, as [redisstore.Check] does.
//
// [redisstore.Check]: https://pkg.go.dev/github.com/sashlimit/sash/core/redisstore#Check
func Check(ctx context.Context, client Client, opts ...Option) error {
	return newLogs(client, opts).Check(ctx)
}
