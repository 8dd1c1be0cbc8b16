package question

import (
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// MostCost is what a request is asked for at most. A larger cost is denied the same, but would overflow sums.
const MostCost = limittext.MaxQuota + 1

// SetTaken sets what was recorded, if granted is how many units were admitted.
func (q *Question) SetTaken(granted int) {
	denied := q.Take.Mode == store.ModeChargeDenied && !q.Answer.Allowed && !q.Never()
	if q.Taken = granted; denied {
		q.Taken = q.Take.Cost
	}
	if q.More != nil {
		q.More.recorded = q.Taken > 0 || denied || q.Answer.Allowed && q.Take.Mode != store.ModePeek
	}
}

// Shadow returns what the limits that do not decide were asked and have answered. They have recorded nothing.
func (q *Question) Shadow() (s Question) {
	first := len(q.Plan.Limits)
	s = Question{Plan: q.Plan.Shadow, Take: store.Take{Cost: q.Take.Cost}, Answer: store.Answer{Retry: q.Answer.Shadow}}
	copy(s.Answer.State[:], q.Answer.State[first:])
	s.Answer.Denied = q.Answer.Denied >> first
	s.Answer.Allowed = s.Answer.Denied == 0
	if q.Take.Mode == store.ModeUpTo {
		s.Answer.Granted = s.Plan.Grant(&s.Answer, q.Take.Cost)
		s.Take.Mode = q.Take.Mode
	}
	if q.More != nil {
		s.More = new(Logs)
		copy(s.More.costs[:], q.More.costs[first:])
	}
	return s
}

// TakeNothing notes that nothing was recorded.
func (q *Question) TakeNothing() {
	if q.Taken = 0; q.More != nil {
		q.More.recorded = false
	}
}

// Find returns the first limit for which is returns true, or -1.
func (q *Question) Find(is func(limit int) bool) int {
	for i := range q.Plan.Limits {
		if is(i) {
			return i
		}
	}
	return -1
}

// Rule returns the rule of the first limit that has denied, or the first rule.
func (q *Question) Rule() *plan.Rule {
	i := q.Find(q.Denies)
	if i < 0 {
		return q.Plan.Rule
	}
	return q.Plan.Logs[plan.LogOf(q.Plan.Logs, i)].Rule
}

// Asks reports whether the request was asked about limit i.
func (q *Question) Asks(i int) bool { return q.More == nil || q.More.costs[i] > 0 }

// Tells reports whether the answer has the numbers of limit i.
func (q *Question) Tells(i int) bool {
	return q.More == nil || q.Asks(i) && !(q.More.Cached && q.hasRoom(i))
}

// Denies reports whether limit i has denied.
func (q *Question) Denies(i int) bool { return !q.Answer.Allowed && q.Answer.Denied.Has(i) }

// decides reports whether limit i was asked and, if the request was denied, has denied it.
func (q *Question) decides(i int) bool { return q.Asks(i) && (q.Answer.Allowed || q.Denies(i)) }

// Never reports whether the request was denied because it costs more than a whole quota.
func (q *Question) Never() bool {
	return !q.Answer.Allowed && q.Find(func(i int) bool { return !q.Plan.Limits[i].InFlight && !q.Fits(i) }) >= 0
}

// AwaitsPermit reports whether a limit of requests in flight has denied.
func (q *Question) AwaitsPermit() bool {
	return q.Find(func(i int) bool { return q.Plan.Limits[i].InFlight && q.Denies(i) }) >= 0
}

// Fits reports whether the units that the request needs of limit i are within its quota.
func (q *Question) Fits(i int) bool {
	cost := q.Take.Cost
	if q.More != nil {
		cost = q.More.costs[i]
	}
	return q.Take.Mode == store.ModeUpTo || cost <= q.Plan.Limits[i].Quota
}

// Left returns what limit i has left after this request.
func (q *Question) Left(i int) int {
	return max(0, q.Plan.Limits[i].Quota-q.Answer.State[i].Used-q.takenOf(i))
}

// takenOf returns how many units of limit i were recorded.
func (q *Question) takenOf(i int) int {
	switch limit := &q.Plan.Limits[i]; {
	case !q.Answer.Allowed && !limit.KeepsEntries(): // denials are recorded in logs only
		return 0
	case q.More == nil:
		return q.Taken
	case !q.More.recorded || limit.InFlight && !q.TakesPermits() || !q.Answer.Allowed && q.hasRoom(i):
		return 0
	case limit.InFlight || limit.Unit != q.Plan.Unit:
		return q.More.costs[i]
	}
	return q.Taken
}

// hasRoom reports whether the log of limit i had room for the request, so that it has not recorded a denial by others.
func (q *Question) hasRoom(i int) bool {
	return q.More.Answers[plan.LogOf(q.More.Logs, i)].Allowed
}

// Recorded reports whether units were recorded.
func (q *Question) Recorded() bool { return q.Taken > 0 || q.More != nil && q.More.recorded }

// TakesPermits reports whether this request has taken a permit of each limit of requests in flight. All that takes
// units does, except Record.
func (q *Question) TakesPermits() bool {
	return q.Answer.Allowed && q.Recorded() && q.Take.Mode != store.ModeRecord
}

// Reset returns how long it takes until the oldest unit leaves the window of limit i: 0 if the limit has none.
func (q *Question) Reset(i int) time.Duration {
	if q.Plan.Limits[i].InFlight {
		return 0
	}
	return q.Answer.State[i].Reset
}

// Tightest returns the limit with the least left, or if they count several units with the smallest share left; for a
// denial, only limits that denied are compared. It returns -1 if no limit was asked.
func (q *Question) Tightest() int {
	limits := q.Plan.Limits
	if len(limits) == 1 && q.More == nil {
		return 0
	}
	least, leastLeft := -1, 0
	for i := range limits {
		if !q.decides(i) {
			continue
		}
		left := q.Left(i)
		tighter := least < 0 || left < leastLeft
		if least >= 0 && len(q.Plan.Units) > 0 { // units cannot be compared
			tighter = int64(left)*int64(limits[least].Quota) < int64(leastLeft)*int64(limits[i].Quota)
		}
		if tighter {
			least, leastLeft = i, left
		}
	}
	return least
}

// AppendRateLimit appends the items of the field RateLimit.
func (q *Question) AppendRateLimit(b []byte) []byte {
	for i := range q.Plan.Limits {
		if !q.decides(i) {
			continue
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(b, '"')
		b = append(b, q.Plan.Limits[i].Name...)
		b = append(b, `";r=`...)
		b = strconv.AppendInt(b, int64(q.Left(i)), 10)
		if reset := q.Reset(i); reset > 0 && q.Fits(i) {
			b = append(b, ";t="...)
			b = strconv.AppendInt(b, Seconds(reset), 10)
		}
	}
	return b
}

// Seconds rounds up, so that a client which waits that long is not too early.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
