// Package counter computes fixed windows, sliding counters and token buckets: the algorithms that keep a few numbers
// for a key instead of a log.
//
// It has no locks and no clock: callers serialize the use of a [State] and pass the current instant, in microseconds
// since the Unix epoch. Numbers are integers throughout, so that two stores decide alike.
package counter

import (
	"math/bits"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// State is what is kept for one key. The zero State is that of a key which has used nothing.
type State struct {
	// Mark is the beginning of the period that Units are of, and of a token bucket the instant in nanoseconds when it
	// is full again.
	Mark   int64
	Units  int64 // of the period; of a token bucket the instant of the latest take
	Before int64 // units of the period before, for a sliding counter
}

// View is a State as one limit sees it at one instant. At makes one.
type View struct {
	State // as of the present period: what has ended is zero

	// Moved says that the state was further ahead of now than it can be, so that the clock has been set back, and that
	// it was changed for that. It must be kept then, or else the next wait would not be what is left of this one.
	Moved bool

	limit *store.Limit
	now   int64 // us
	late  int64 // how far now is after the instant that was given; below 0 if that is beyond the calendar
	begin int64 // of the period
	end   int64 // of the period
}

// At returns the state as the limit sees it at instant now. If there are units of a later period, the clock has been
// set back: it is then the beginning of the next period as far as this state is concerned, so that those units count
// when that begins, and no longer than they should if the clock was far ahead.
func (s *State) At(limit *store.Limit, now int64) View {
	v := View{limit: limit, now: now, State: *s}
	if limit.Algorithm == store.TokenBucket {
		if back := v.Units - now; back > time.Second.Microseconds() {
			// The clock was set back: as much is missing as before.
			v.Mark, v.Moved = v.Mark-back*1000, true
		}
		v.Mark, v.Units = max(v.Mark, now*1000), now
		return v
	}
	length := limit.Window.Microseconds()
	v.begin = now - (now%length+length)%length
	v.end = v.begin + length
	following := v.end + length
	if c := limit.Calendar; c != nil {
		v.now = min(max(now, c[0]), c[len(c)-1]-1)
		v.late = v.now - now
		i := 1
		for v.now >= c[i] {
			i++
		}
		v.begin, v.end, following = c[i-1], c[i], c[min(i+1, len(c)-1)]
	}
	switch {
	case v.Mark > v.begin && following > v.end:
		v.begin, v.end, v.now, v.late = v.end, following, v.end, v.end-now
		v.Moved = v.Mark > v.begin
	case v.Mark >= v.begin:
	case v.Mark == 2*v.begin-v.end:
		v.Before, v.Units = v.Units, 0
	default:
		v.Before, v.Units = 0, 0
	}
	v.Mark = v.begin
	return v
}

// Used returns how many units are not available.
func (v *View) Used() int {
	switch v.limit.Algorithm {
	case store.TokenBucket:
		interval := v.limit.Interval()
		return int((v.Mark - v.now*1000 + interval - 1) / interval)
	case store.SlidingCounter:
		return int(v.Units + mulDivUp(v.Before, v.end-v.now, v.end-v.begin)) // the part that the window covers
	case store.FixedWindow, store.SlidingLog:
	}
	return int(v.Units)
}

// Add adds units. A bucket does not become emptier than empty.
func (v *View) Add(units int) {
	if v.limit.Algorithm == store.TokenBucket {
		v.Mark = max(v.Mark, min(v.Mark+v.nanoseconds(units), v.now*1000+v.nanoseconds(v.limit.Quota)))
	} else {
		v.Units += int64(units)
	}
}

// nanoseconds returns how long it takes until that many units have come back to a bucket, or all that it can have.
func (v *View) nanoseconds(units int) int64 {
	return int64(min(units, v.limit.Quota)) * v.limit.Interval()
}

// Period is what [View.Settle] needs to know of units that are added now: the period, or the instant from which on they
// come back to a bucket.
func (v *View) Period() int64 {
	if v.limit.Algorithm == store.TokenBucket {
		return v.Mark
	}
	return v.begin
}

// Settle changes what was units into cost, where they were added: to a period that is still the present one or, of a
// sliding counter, the one before. To a bucket go back those that have not come back already, and units more leave it
// until it is empty. It reports whether it has done so.
func (v *View) Settle(period int64, units, cost int) bool {
	by, now := int64(cost)-int64(units), v.now*1000
	switch {
	case v.limit.Algorithm == store.TokenBucket && by > 0:
		v.Add(cost - units)
	case v.limit.Algorithm == store.TokenBucket:
		rest := max(period+v.nanoseconds(min(units, v.limit.Quota))-now, 0) // it has never taken more than the quota
		v.Mark -= min(v.nanoseconds(units-cost), rest, v.Mark-now)
	case period == v.begin && v.late >= 0:
		v.Units = max(v.Units+by, 0)
	case v.limit.Algorithm == store.SlidingCounter && period == 2*v.begin-v.end:
		v.Before = max(v.Before+by, 0)
	default:
		return false
	}
	return true
}

// Until returns how long it takes until Used is at most that many, which is less than it is now, if nothing is added.
func (v *View) Until(used int) time.Duration {
	var wait int64
	switch v.limit.Algorithm {
	case store.TokenBucket:
		wait = (v.Mark - int64(used)*v.limit.Interval() - v.now*1000 + 999) / 1000
	case store.SlidingCounter:
		window := v.end - v.begin
		if room := int64(used) - v.Units; room >= 0 { // within this period
			wait = v.end - v.now - mulDiv(room, window, v.Before)
		} else { // in the next, of which this is the period before
			wait = v.end - v.now + window - mulDiv(int64(used), window, v.Units)
		}
	case store.FixedWindow, store.SlidingLog:
		wait = v.end - v.now
	}
	return time.Duration(max(v.late, 0)+wait) * time.Microsecond
}

// Lasts returns how long the state need be kept.
func (v *View) Lasts() time.Duration {
	end := v.end
	switch v.limit.Algorithm {
	case store.TokenBucket:
		end = (v.Mark + 999) / 1000
	case store.SlidingCounter:
		end += v.end - v.begin
	case store.FixedWindow, store.SlidingLog:
	}
	return time.Duration(max(v.late, 0)+end-v.now) * time.Microsecond
}

// mulDiv returns a·b/c, rounded down, for a <= c or b <= c.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

// mulDivUp is mulDiv rounded up.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c-1), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(c))
	return int64(q)
}
