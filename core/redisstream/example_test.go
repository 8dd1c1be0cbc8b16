package redisstream_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstream"
)

// A large quota for many customers: a stream holds it in a quarter of the memory.
func ExampleNew() { //nolint:testableexamples // it needs a server
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	limiter, err := core.New(core.PerDay(100_000), core.ByText(), core.WithStore(redisstream.New(client)))
	if err != nil {
		fmt.Println(err)
		return
	}
	decision, err := limiter.Allow(context.Background(), "customer 7")
	fmt.Println(decision.Allowed, err)
}
