package redisstore

import (
	"context"
	"runtime"
	"sync"
	"weak"

	"github.com/redis/go-redis/v9"
)

// detour is a hook for clients whose clones do not keep hooks. It is the last hook of the client, and passes to the
// clone the commands that all other hooks have seen.
type detour struct{}

// detoured is a command for a clone.
type detoured struct {
	redis.Cmder

	to   *redis.Client
	dial dialCtx
}

// detours has the clients with a detour.
var detours sync.Map

// addDetour adds a detour to a client that has none.
func addDetour(client *redis.Client) {
	key := weak.Make(client)
	if _, has := detours.LoadOrStore(key, struct{}{}); !has {
		runtime.AddCleanup(client, func(key weak.Pointer[redis.Client]) { detours.Delete(key) }, key)
		client.AddHook(detour{})
	}
}

func (detour) DialHook(next redis.DialHook) redis.DialHook { return next }

func (detour) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (detour) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d, ok := cmd.(*detoured); ok {
			return d.dial.process(ctx, d.to, d.Cmder)
		}
		return next(ctx, cmd)
	}
}
