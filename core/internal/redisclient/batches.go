package redisclient

import (
	"math/bits"
	"sync/atomic"

	"github.com/sashlimit/sash/core/store"
)

// batchCounts counts the batches of a store's batchers.
type batchCounts struct {
	sizes [len(store.Batches{}.Sizes)]atomic.Uint64
	more  atomic.Uint64 // takes in batches of more than one
}

// add counts a batch of n takes.
func (c *batchCounts) add(n int) {
	c.sizes[min(bits.Len(uint(n-1)), len(c.sizes)-1)].Add(1)
	if n > 1 {
		c.more.Add(uint64(n))
	}
}

func (c *batchCounts) snapshot() (b store.Batches) {
	for i := range c.sizes {
		b.Sizes[i] = c.sizes[i].Load()
	}
	b.Takes = b.Sizes[0] + c.more.Load()
	return b
}
