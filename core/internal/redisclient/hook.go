package redisclient

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// ClonesKeepHooks reports whether the hooks of a client, such as those for tracing, see the commands of its clone. They
// do in go-redis 9.14, and do not in 9.23.
var ClonesKeepHooks = sync.OnceValue(func() bool {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	var hook clientHook
	client.AddHook(&hook)
	hook.usual = 0
	client.WithTimeout(0)
	return hook.usual != 0 // the clone has called ProcessHook once more
})

// clientHook is a hook for clients whose clones do not keep hooks. As the last hook of the client, it passes to the
// clone the commands that all other hooks have seen.
type clientHook struct {
	watch    *dialWatch  // of the client
	usual    uintptr     // code of the client's own function, which only the last hook calls
	followed atomic.Bool // whether another hook was added after this one
}

// hookedCmd is a command for a clone.
type hookedCmd struct {
	redis.Cmder

	to   *redis.Client
	dial dialCtx
}

// addHook adds a clientHook if the client has none, or if a hook was added after it, such as one for tracing.
func (w *dialWatch) addHook(client *redis.Client) {
	if h := w.hook.Load(); h != nil && !h.followed.Load() {
		return
	}
	w.adding.Lock()
	defer w.adding.Unlock()
	if h := w.hook.Load(); h == nil || h.followed.Load() {
		h = &clientHook{watch: w}
		client.AddHook(h)
		w.hook.Store(h)
	}
}

// ProcessHook is called by AddHook of the client, one call at a time: for this hook and for each that is added later.
func (h *clientHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if h.usual == 0 {
		h.usual = codeOf(next)
	}
	last := codeOf(next) == h.usual
	h.followed.Store(!last)
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c, ok := cmd.(*hookedCmd); ok && (last || h.watch.hook.Load() == h) {
			return c.dial.process(ctx, c.to, c.Cmder)
		}
		return next(ctx, cmd)
	}
}

// DialHook changes nothing, and so does ProcessPipelineHook.
func (*clientHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*clientHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func codeOf(f any) uintptr { return reflect.ValueOf(f).Pointer() }
