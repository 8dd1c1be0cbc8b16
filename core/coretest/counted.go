package coretest

import (
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// counted is the definition of the algorithms other than the sliding log: a list of what was admitted when, from which
// each question is answered anew. Its instants are in microseconds since the Unix epoch.
type counted []admitted

type admitted struct {
	at    int64
	units int
}

// instantOf returns the instant that counts for a limit. A clock beyond a calendar takes the nearest period.
func instantOf(l *store.Limit, now time.Duration) int64 {
	if l.Calendar != nil {
		return min(now.Microseconds(), l.Calendar[3]-1)
	}
	return now.Microseconds()
}

// used returns how many units are not available at an instant, if nothing is admitted after those of the list.
func (c counted) used(l *store.Limit, t time.Duration) int { return c.usedBy(l)(instantOf(l, t)) }

// usedBy returns used as a function of the instant.
func (c counted) usedBy(l *store.Limit) func(t int64) int {
	if l.Algorithm == store.TokenBucket {
		interval, full := intervalOf(l), c.full(l)
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
		used := c.between(begin, end)
		if l.Algorithm == store.SlidingCounter {
			length := end - begin
			covered := big.NewInt(int64(c.between(begin-length, begin)))
			used += int(ceil(covered.Mul(covered, big.NewInt(end-t)), big.NewInt(length)).Int64())
		}
		return used
	}
}

// full returns the instant when a bucket is full again, in nanoseconds.
func (c counted) full(l *store.Limit) *big.Int {
	interval, full := intervalOf(l), new(big.Int)
	for _, a := range c {
		if at := nanoseconds(a.at); full.Cmp(at) < 0 {
			full = at
		}
		more := big.NewInt(int64(a.units))
		full.Add(full, more.Mul(more, interval))
	}
	return full
}

// between returns the units from one instant on and before another.
func (c counted) between(begin, end int64) (units int) {
	for _, a := range c {
		if begin <= a.at && a.at < end {
			units += a.units
		}
	}
	return units
}

// wait returns how long it takes until so many units are used or fewer: the instant is found by trying later and later
// ones, and then halving the distance to the one before. It is 0 if they never are, or are now.
func (c counted) wait(l *store.Limit, t time.Duration, used int) time.Duration {
	usedAt, now, late := c.usedBy(l), instantOf(l, t), int64(1)
	if used < 0 || usedAt(now) <= used {
		return 0
	}
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

// add adds units, and forgets what says nothing any more, so that lists are short.
func (c *counted) add(l *store.Limit, t time.Duration, units int) {
	at := instantOf(l, t)
	switch {
	case l.Algorithm != store.TokenBucket:
		*c = slices.DeleteFunc(*c, func(a admitted) bool { return a.at <= at-2*l.Window.Microseconds() })
	case c.used(l, t) == 0:
		*c = nil
	}
	if l.Calendar != nil {
		at = max(at, l.Calendar[0])
	}
	if n := len(*c); n > 0 && (*c)[n-1].at == at {
		(*c)[n-1].units += units
	} else {
		*c = append(*c, admitted{at, units})
	}
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
