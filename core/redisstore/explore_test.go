package redisstore_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
)

// explore runs small worlds on a server, and all of them if SASH_EXPLORE is "all".
func explore(t *testing.T, worlds int, c coretest.ExploreConfig, newStore func(*testing.T, clock) core.Store) {
	c.Callers, c.Worlds = 32, worlds
	c.Worlds = testlen.Of(worlds/20, worlds)
	if testlen.Race {
		c.Worlds = min(c.Worlds, worlds/10)
	}
	if os.Getenv("SASH_EXPLORE") == "all" {
		c.Worlds = 0
	}
	empty := startOnce(t)
	c.New = func(t *testing.T) (core.Store, func(time.Duration)) {
		c := newClock(empty(t))
		return newStore(t, c), c.Advance
	}
	coretest.Explore(t, c)
}

// The logs of a request are asked in one script. Takes are also executed again after other operations.
func TestExplore(t *testing.T) {
	t.Parallel()
	explore(t, 2000, coretest.ExploreConfig{Repeats: true}, func(_ *testing.T, c clock) core.Store {
		return redisstore.Single(newStore(c))
	})
}

// The first reply is as if the script had been executed once, and the second execution leaves the logs as they are.
func TestExploreWhenEveryCommandIsSentTwice(t *testing.T) {
	testlen.SkipRace(t)
	t.Parallel()
	explore(t, 800, coretest.ExploreConfig{Repeats: true}, func(t *testing.T, c clock) core.Store {
		c.processor = firstOfTwo{c.processor, t}
		return redisstore.Single(newStore(c))
	})
}

// firstOfTwo executes every command twice and gives the first reply. The verdicts must be the same.
type firstOfTwo struct {
	processor
	t *testing.T
}

func (c firstOfTwo) Process(ctx context.Context, cmd redis.Cmder) error {
	if err := c.processor.Process(ctx, cmd); err != nil {
		return err
	}
	first := cmd.(*redis.IntSliceCmd).Val()
	err := c.processor.Process(ctx, cmd)
	second := cmd.(*redis.IntSliceCmd).Val()
	if err == nil && len(first) > 0 && verdict(cmd, first) != verdict(cmd, second) {
		c.t.Errorf("the same command answered %v, then %v", first, second)
	}
	cmd.(*redis.IntSliceCmd).SetVal(first)
	return err
}

// The logs of a request are asked one after the other, as on several servers.
func TestExploreInTurn(t *testing.T) {
	testlen.SkipRace(t)
	t.Parallel()
	explore(t, 700, coretest.ExploreConfig{}, func(_ *testing.T, c clock) core.Store { return newStore(c) })
}
