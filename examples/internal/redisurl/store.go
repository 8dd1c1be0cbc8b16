// Package redisurl has the store of examples that share a Redis.
package redisurl

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
)

// Store returns a store on the Redis of the environment variable REDIS_URL, or one in memory if it is empty. Problems
// of the server are looked for during up to 2 seconds and logged. They are no error, because limiters start without
// Redis and use it as soon as it answers.
func Store() (core.Store, error) {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		return core.NewMemoryStore(), nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w; write it as redis://localhost:6379", err)
	}
	client := redis.NewClient(options)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := redisstore.Check(ctx, client); err != nil {
		slog.Error("the Redis of REDIS_URL has problems; starting nevertheless", "error", err)
	}
	return redisstore.New(client), nil
}
