package redisstore_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// All mistakes in options are reported, each time that a limiter asks.
func TestOptionMistakes(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { client.Close() })
	s := redisstore.New(client, redisstore.WithPrefix("a"), nil, redisstore.WithPrefix("b"),
		redisstore.WithStream(), redisstore.WithStream())
	for range 2 {
		err := s.Validate(store.NewPlan(store.Plan{}))
		if err == nil {
			t.Fatal("no error")
		}
		for _, want := range []string{
			"redisstore.New(nil option)", "redisstore.WithPrefix(twice)", "redisstore.WithStream(twice)",
		} {
			if n := strings.Count(err.Error(), want); n != 1 {
				t.Errorf("%d of %q in: %v", n, want, err)
			}
		}
	}
}
