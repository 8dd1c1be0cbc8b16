// Package spread hands out the units of a log that will be free, one after the other: so that of many requests that
// were denied each is told another instant, and not all of them come back for the first unit.
package spread

import (
	"slices"
	"time"
)

// Units are units of a log that leave at one instant.
type Units struct {
	At time.Duration // on any clock
	N  int
}

// Schedule is when units are free. They leave in their order, are taken again at once, and leave again one period
// later.
type Schedule struct {
	units  []Units
	total  int
	period time.Duration
	ahead  time.Duration // of the clock of units
}

// New makes a schedule of what a log with a quota holds, oldest first, which has at least one unit. What is free
// already is so at the first instant, too. What is above the quota makes no room when it leaves.
func New(holds []Units, quota int, period time.Duration) *Schedule {
	s := &Schedule{units: holds, total: quota, period: period}
	above := -quota
	for _, u := range holds {
		above += u.N
	}
	for above > 0 && above >= s.units[0].N {
		above -= s.units[0].N
		s.units = s.units[1:]
	}
	if above != 0 {
		s.units = slices.Clone(s.units)
		s.units[0].N -= above
	}
	return s
}

// Set sets the schedule's clock to one on which unit n is free at an instant.
func (s *Schedule) Set(n int64, at time.Duration) { s.ahead += s.At(n) - at }

// Before returns how many units are free before an instant.
func (s *Schedule) Before(at time.Duration) (n int64) {
	at += s.ahead
	round := int64(max(0, at-s.units[0].At) / s.period)
	for _, u := range s.units {
		if u.At+s.later(round) < at {
			n += int64(u.N)
		}
	}
	return n + round*int64(s.total)
}

// At returns when unit n is free, the first of which is 0.
func (s *Schedule) At(n int64) time.Duration {
	round := n / int64(s.total)
	n %= int64(s.total)
	i := 0
	for n >= int64(s.units[i].N) {
		n -= int64(s.units[i].N)
		i++
	}
	return s.units[i].At + s.later(round) - s.ahead
}

// later returns how long some rounds take.
func (s *Schedule) later(rounds int64) time.Duration { return time.Duration(rounds * int64(s.period)) }
