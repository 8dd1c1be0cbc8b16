package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Keys of one shard: a decision over both must not wait for a log that it has locked itself, whichever logs are swept
// meanwhile. The store is so small that keys share logs as well.
func TestJointTakesOfOneShard(t *testing.T) {
	for _, places := range []int{3, 100_000} {
		s := New(places)
		plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 2, Window: time.Millisecond}}})
		groups := make(map[uint64][]store.Key)
		for n := 0; n < 100*shardCount; n++ {
			key := store.NewKey("p", fmt.Sprint(n))
			shard := key.Hash() % shardCount
			groups[shard] = append(groups[shard], key)
		}
		id := uint64(0)
		for _, keys := range groups {
			for i := range len(keys) - 3 {
				id++
				takes := make([]store.Take, 3)
				for n := range takes {
					takes[n] = store.Take{Key: keys[i+n], Plan: plan, Cost: 1, ID: id}
				}
				answers := make([]store.Answer, 3)
				s.TakeAll(takes, answers)
				for n := range answers {
					if used := answers[n].State[0].Used; used > 2 {
						t.Fatalf("%d places: %d units used of 2", places, used)
					}
				}
			}
		}
	}
}
