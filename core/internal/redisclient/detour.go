package redisclient

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/redis/go-redis/v9"
)

// detour is a hook for clients whose clones do not keep hooks. As the last hook of the client, it passes to the clone
// the commands that all other hooks have seen.
type detour struct {
	of *detours

	usual    uintptr     // code of the client's own function, which only the last hook calls
	followed atomic.Bool // whether another hook was added after this one
}

// detours has the newest detour of a client.
type detours struct {
	mu     sync.Mutex
	newest atomic.Pointer[detour]
}

// detoured is a command for a clone.
type detoured struct {
	redis.Cmder

	to   *redis.Client
	dial dialCtx
}

// allDetours has the detours of each client.
var allDetours sync.Map

func detoursOf(client *redis.Client) *detours {
	key := weak.Make(client)
	of, had := allDetours.LoadOrStore(key, new(detours))
	if !had {
		runtime.AddCleanup(client, func(key weak.Pointer[redis.Client]) { allDetours.Delete(key) }, key)
	}
	return of.(*detours) //nolint:forcetypeassert // nothing else is stored
}

// add adds a detour if the client has none, or if a hook was added after it, such as one for tracing.
func (ds *detours) add(client *redis.Client) {
	if d := ds.newest.Load(); d != nil && !d.followed.Load() {
		return
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d := ds.newest.Load(); d == nil || d.followed.Load() {
		d = &detour{of: ds}
		client.AddHook(d)
		ds.newest.Store(d)
	}
}

func (*detour) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*detour) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook is called by AddHook of the client, one call at a time: for this hook and for each that is added later.
func (d *detour) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if d.usual == 0 {
		d.usual = codeOf(next)
	}
	last := codeOf(next) == d.usual
	d.followed.Store(!last)
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c, ok := cmd.(*detoured); ok && (last || d.of.newest.Load() == d) {
			return c.dial.process(ctx, c.to, c.Cmder)
		}
		return next(ctx, cmd)
	}
}
