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

// slots is how many hash slots a cluster has.
const slots = 16384

// slotOf returns the hash slot of a stored key, which has no hash tag: its CRC-16 with the polynomial 0x1021.
func slotOf(key string) int {
	sum := uint16(0)
	for i := range len(key) {
		sum = sum<<8 ^ crcTable[byte(sum>>8)^key[i]]
	}
	return int(sum) % slots
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		sum := uint16(i) << 8
		for range 8 {
			carry := sum >> 15
			sum = sum<<1 ^ carry*0x1021
		}
		table[i] = sum
	}
	return table
}()

// inOneSlot reports whether one script in a cluster may use these keys.
func inOneSlot(keys []string) bool {
	for _, key := range keys[1:] {
		if slotOf(key) != slotOf(keys[0]) {
			return false
		}
	}
	return true
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
