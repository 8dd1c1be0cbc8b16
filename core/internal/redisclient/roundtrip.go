package redisclient

import (
	"context"
	"fmt"
	"time"

	"github.com/sashlimit/sash/core/store"
)

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
		Remedy: fmt.Sprintf("set core.WithTimeout(%v), or use a server that is nearer; if it is set, ignore this",
			enough),
	})
}
