package coretest

import (
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// tally is the definition of the algorithms other than the sliding log, written down without any cleverness: a list of
// what was admitted when, from which each question is answered anew. Instants are in microseconds since the Unix epoch.
type tally []tallied

type tallied struct {
	at    int64
	units int
}

// used returns how many units are not available at instant t, if nothing is admitted after those of the list.
func (y tally) used(l *store.Limit, t int64) int { return y.usedBy(l)(t) }

// usedBy returns used as a function of the instant.
func (y tally) usedBy(l *store.Limit) func(t int64) int {
	if l.Algorithm == store.TokenBucket {
		interval, full := intervalOf(l), y.full(l)
		return func(t int64) int {
			missing := nanoseconds(t)
			if missing.Sub(full, missing).Sign() <= 0 {
				return 0
			}
			return int(ceil(missing, interval).Int64())
		}
	}
	return func(t int64) int {
		begin, end := periodOf(l, t)
		used := y.between(begin, end)
		if l.Algorithm == store.SlidingCounter {
			length := end - begin
			covered := big.NewInt(int64(y.between(begin-length, begin)))
			used += int(ceil(covered.Mul(covered, big.NewInt(end-t)), big.NewInt(length)).Int64())
		}
		return used
	}
}

// full returns the instant when a bucket is full again, in nanoseconds.
func (y tally) full(l *store.Limit) *big.Int {
	interval, full := intervalOf(l), new(big.Int)
	for _, a := range y {
		if at := nanoseconds(a.at); full.Cmp(at) < 0 {
			full = at
		}
		more := big.NewInt(int64(a.units))
		full.Add(full, more.Mul(more, interval))
	}
	return full
}

// between returns the units from one instant on and before another.
func (y tally) between(begin, end int64) (units int) {
	for _, a := range y {
		if begin <= a.at && a.at < end {
			units += a.units
		}
	}
	return units
}

// wait returns how long it takes from instant now until so many units are used or fewer: the instant is found by trying
// later and later ones, and then halving the distance to the one before.
func (y tally) wait(l *store.Limit, now int64, used int) time.Duration {
	usedAt, late := y.usedBy(l), int64(1)
	for usedAt(now+late) > used {
		late *= 2
	}
	for early := late / 2; early+1 < late; {
		if middle := early + (late-early)/2; usedAt(now+middle) > used {
			early = middle
		} else {
			late = middle
		}
	}
	return time.Duration(late) * time.Microsecond
}

// take is what a store must answer, and do.
func (y *tally) take(t store.Take, now int64) (a store.Answer) {
	l := &t.Plan.Limits[0]
	at := now
	if l.Calendar != nil { // a clock beyond the calendar takes the nearest period
		now = min(now, l.Calendar[3]-1)
		at = max(now, l.Calendar[0])
	}
	a.State[0].Used = y.used(l, now)
	left, cost, units := max(l.Quota-a.State[0].Used, 0), t.Cost, t.Cost
	if t.Mode == store.ModeUpTo {
		a.Granted = min(left, cost)
		cost, units = 1, a.Granted
	}
	if a.Allowed = cost <= left; !a.Allowed {
		a.Denied = 1
		if cost <= l.Quota {
			a.Retry = y.wait(l, now, l.Quota-cost)
		}
	}
	if a.Allowed && t.Mode != store.ModePeek {
		y.forget(l, now)
		y.add(at, units)
	}
	if used := y.used(l, now); used > 0 {
		a.State[0].Reset = y.wait(l, now, used-1)
	}
	return a
}

func (y *tally) add(at int64, units int) {
	if n := len(*y); n > 0 && (*y)[n-1].at == at {
		(*y)[n-1].units += units
	} else {
		*y = append(*y, tallied{at, units})
	}
}

// forget drops what says nothing any more, so that lists are short.
func (y *tally) forget(l *store.Limit, now int64) {
	if l.Algorithm == store.TokenBucket {
		if y.used(l, now) == 0 {
			*y = nil
		}
		return
	}
	*y = slices.DeleteFunc(*y, func(a tallied) bool { return a.at <= now-2*l.Window.Microseconds() })
}

// periodOf returns the period of a limit that has an instant.
func periodOf(l *store.Limit, t int64) (begin, end int64) {
	if c := l.Calendar; c != nil {
		for i := 1; i < len(c); i++ {
			if t < c[i] {
				return c[i-1], c[i]
			}
		}
		return c[3], math.MaxInt64
	}
	length := l.Window.Microseconds()
	within := t % length
	if within < 0 { // before the epoch
		within += length
	}
	return t - within, t - within + length
}

// intervalOf returns in how many nanoseconds a bucket gains a unit.
func intervalOf(l *store.Limit) *big.Int {
	return ceil(big.NewInt(l.Window.Nanoseconds()), big.NewInt(int64(l.Refill)))
}

func nanoseconds(us int64) *big.Int { return new(big.Int).Mul(big.NewInt(us), big.NewInt(1000)) }

// ceil returns a/b, rounded up.
func ceil(a, b *big.Int) *big.Int {
	quotient, rest := new(big.Int).QuoRem(a, b, new(big.Int))
	if rest.Sign() > 0 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return quotient
}
