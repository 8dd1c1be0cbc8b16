// Package recipes has what sash has no package for, to copy. README.md shows it; the tests run it.
package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// RueidisClient is a client of rueidis for redisstore.New.
type RueidisClient struct{ rueidis.Client }

// Eval runs a script by its text.
func (c RueidisClient) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return c.run(ctx, c.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(texts(args)...).Build())
}

// EvalSha runs a script by its hash.
func (c RueidisClient) EvalSha(ctx context.Context, hash string, keys []string, args ...any) *redis.Cmd {
	return c.run(ctx, c.B().Evalsha().Sha1(hash).Numkeys(int64(len(keys))).Key(keys...).Arg(texts(args)...).Build())
}

func (c RueidisClient) run(ctx context.Context, command rueidis.Completed) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	reply, err := c.Do(ctx, command).ToAny()
	var said *rueidis.RedisError
	switch {
	case err == nil:
		cmd.SetVal(reply)
	case rueidis.IsRedisNil(err):
		cmd.SetErr(redis.Nil)
	case errors.As(err, &said):
		cmd.SetErr(serverError(said.Error()))
	case errors.Is(err, rueidis.ErrClosing):
		cmd.SetErr(redis.ErrClosed)
	default: // of the network: the store knows these
		cmd.SetErr(err)
	}
	return cmd
}

func texts(args []any) []string {
	all := make([]string, len(args))
	for i, arg := range args {
		all[i] = fmt.Sprint(arg)
	}
	return all
}

// serverError is an error of the server, by which the store tells that it does not know a script, and what is wrong.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError marks it as the server's.
func (serverError) RedisError() {}
