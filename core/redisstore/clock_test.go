package redisstore_test

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
)

// clock runs the store's scripts at an instant of its own.
type clock struct {
	redisstore.Client
	*redistest.Clock
}

func newClock(c redisstore.Client) clock { return clock{c, redistest.NewClock()} }

func (c clock) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redistest.ErrNoScript)
	return cmd
}

func (c clock) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	text, keys = c.Script(text, keys)
	return c.Client.Eval(ctx, text, keys, args...)
}

// twice executes every command twice, as a client does that has lost a reply,
// and goes on with the second answer. The verdict must be the same; that the numbers are
// right is for the suite to find out, where nobody comes in between.
type twice struct {
	redisstore.Client
	t *testing.T
}

func (c twice) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	first, err := c.Client.Eval(ctx, text, keys, args...).Int64Slice()
	cmd := c.Client.Eval(ctx, text, keys, args...)
	if err != nil {
		return cmd // not a take
	}
	if again, err := cmd.Int64Slice(); err != nil || !slices.Equal(first[:min(1, len(first))], again[:min(1, len(again))]) {
		c.t.Errorf("the same command answered %v, then %v, %v", first, again, err)
	}
	return cmd
}
