package core

import (
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/lifetime"
	"github.com/sashlimit/sash/core/store"
)

// Event is what an observer gets. Each request, and each call of [Limiter.Allow], Peek, Record and Wait, causes exactly
// one event whose Outcome is that of a decision; other events come in addition ([event.Outcome]). A counter by Policy
// and Outcome needs no special cases.
//
// Printed, logged or written as JSON, an Event leaves out Key and the text of Err.
//
// An Event may be kept. Key of a call such as Allow is the text that was passed to it, so pass a copy of a text whose
// memory is reused, such as a parameter of fiber.
type Event struct {
	Policy   string // name of the policy
	Outcome  event.Outcome
	Source   event.Source  // where the decision came from
	Mode     store.Mode    // of the take, such as store.ModePeek
	Cost     int           // units requested; Decision.Granted is how many were granted
	Took     time.Duration // time until the decision; for Wait, including the wait
	Decision Decision      // the zero Decision if there is none
	Shadow   *Decision     // what the policy of [WithShadow] would have decided, or nil
	Key      string        `json:"-"` // whose quota it is. It may be personal data
	Err      error         `json:"-"` // why there is no decision, or why it is Degraded, or nil

	life *lifetime.Lifetime // of the limiter, or nil if no limiter has made the event
}

// Keep is for observers that keep something for each policy, such as metrics: k is what they keep for Policy. It
// reports whether the limiter that made the event is open. If not, the event is late: count nothing for it.
//
// Keep calls k.Opened if this limiter was not given k before, and [Limiter.Close] then calls k.Closed, on its own
// goroutine. When Closed was called as often as Opened, no limiter of the policy is left. Opened must not block, and
// must not call this limiter. k must be comparable, as pointers are. Call Keep for each event: it takes some
// nanoseconds. A panic of Closed is dropped.
func (e *Event) Keep(k interface {
	Opened()
	Closed()
},
) (open bool) {
	return e.life == nil || e.life.Keep(k)
}

// NearLimit reports whether a request was allowed and leaves less than a fifth of a limit's quota.
func (e *Event) NearLimit() bool {
	d := &e.Decision
	return e.Outcome == event.Allowed && d.plan != nil &&
		d.find(func(i int) bool { return 5*d.left(i) < d.plan.Limits[i].Quota }) >= 0
}
