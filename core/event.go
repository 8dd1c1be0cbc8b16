package core

import (
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// Event is what an observer gets. Each request, and each call of [Limiter.Allow], Peek, Record and Wait, causes exactly
// one event whose Outcome is that of a decision; other events come in addition ([event.Outcome]). A counter by Policy
// and Outcome needs no special cases.
//
// Printed, logged or written as JSON, an Event leaves out Key and the text of Err.
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
}

// NearLimit reports whether a request was allowed and leaves less than a fifth of a limit's quota.
func (e *Event) NearLimit() bool {
	d := &e.Decision
	if e.Outcome != event.Allowed || d.plan == nil {
		return false
	}
	for i := range d.plan.limits {
		if 5*d.left(i) < d.plan.limits[i].most() {
			return true
		}
	}
	return false
}
