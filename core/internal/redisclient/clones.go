package redisclient

import (
	"sync"

	"github.com/redis/go-redis/v9"
)

// clonesKeepHooks reports whether the hooks of a client, such as those for tracing, see the commands of its clone. They
// do in go-redis 9.14, and do not in 9.23.
var clonesKeepHooks = sync.OnceValue(func() bool {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	var built hookCounter
	client.AddHook(&built)
	before := built
	client.WithTimeout(0)
	return built > before
})

// hookCounter is a hook that counts how often it was added to a client or its clone.
type hookCounter int

func (*hookCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*hookCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *hookCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	*b++
	return next
}
