package guard

import (
	"sync"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// maxUnclaimed is how many unclaimed slots are remembered. What is beyond ends with its lease.
const maxUnclaimed = 10_000

// unclaimed are slots that the store may have recorded for requests which it has not answered in time. Nobody holds
// them. One goroutine gives them back, and exists only while there are any.
type unclaimed struct {
	mu      sync.Mutex
	slots   []unclaimedSlot // oldest first
	running bool
}

type unclaimedSlot struct {
	store.Settlement

	ends time.Time // its lease
}

// first returns the oldest slot whose lease has not ended. If there is none, the goroutine ends.
func (u *unclaimed) first() (s unclaimedSlot, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.slots) > 0 && time.Until(u.slots[0].ends) <= 0 {
		u.slots = u.slots[1:]
	}
	if len(u.slots) == 0 {
		u.slots, u.running = nil, false
		return s, false
	}
	return u.slots[0], true
}

// removeFirst removes the slot that first has returned.
func (u *unclaimed) removeFirst() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.slots = u.slots[1:]
}

// add adds a slot if there is room. It reports whether the goroutine must be started.
func (u *unclaimed) add(s unclaimedSlot) (start bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.slots) >= maxUnclaimed {
		return false
	}
	u.slots = append(u.slots, s)
	start, u.running = !u.running, true
	return start
}
