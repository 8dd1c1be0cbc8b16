package redisstore

import (
	"math"
	"sync/atomic"

	"github.com/sashlimit/sash/core/store"
)

// leftovers tells of each log of a request how much it had left, as a fraction of its quota, when it was last asked
// about any key.
type leftovers [store.MaxLimits]atomic.Uint32

// note notes what the answer tells.
func (l *leftovers) note(i int, t *store.Take, a *store.Answer) {
	left := float32(1)
	for n, limit := range t.Plan.Deciding() {
		left = min(left, float32(limit.Quota-a.State[n].Used)/float32(limit.Quota))
	}
	l[i].Store(math.Float32bits(left))
}
