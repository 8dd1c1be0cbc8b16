package redisclient

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// watchNodes watches the dials of the clients that a cluster or Ring makes from now on. It reports whether it does so
// for the first time, if go-redis dials again.
func watchNodes[T any](client *T, onNewNode func(func(*redis.Client))) bool {
	if !redials {
		return false
	}
	_, first := storeOnce(&watchedNodes, client, nil)
	if first {
		onNewNode(func(node *redis.Client) { watchDials(node, true) })
	}
	return first
}

// watchRing watches the dials of the clients that a Ring has made as well.
func watchRing(client *redis.Ring) {
	if !watchNodes(client, client.OnNewNode) {
		return
	}
	//nolint:errcheck // there is none
	client.ForEachShard(context.Background(), func(_ context.Context, shard *redis.Client) error {
		watchDials(shard, true)
		return nil
	})
}

// storeCtx is the context of the store's calls on clusters and Rings. It tells the hook of a node that a call is the
// store's.
type storeCtx struct{ context.Context }

type isStoreCtx struct{}

func (c storeCtx) Value(key any) any {
	if key == (isStoreCtx{}) {
		return true
	}
	return c.Context.Value(key)
}

// onOneShard returns a function that reports whether one script may use these keys of a Ring, or nil if this go-redis
// does not tell which shard has a key.
func onOneShard(ring any) func(keys []string) bool {
	tells, ok := ring.(interface {
		GetShardClientForKey(key string) (*redis.Client, error)
	})
	if !ok {
		return nil
	}
	return func(keys []string) bool {
		first, err := tells.GetShardClientForKey(keys[0])
		for _, key := range keys[1:] {
			if shard, failed := tells.GetShardClientForKey(key); err != nil || failed != nil || shard != first {
				return false
			}
		}
		return true
	}
}
