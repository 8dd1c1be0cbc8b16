package calendar

import "time"

// maxShift is more than the difference of two offsets of a zone can be: RFC 9636, section 3.2, has them more than -25
// and less than 26 hours.
const maxShift = 51 * hour

// offsetUntil returns how many seconds the zone's clock is ahead of UTC at an instant, and until when that is known not
// to change: the offset may be the same afterwards.
func (c Calendar) offsetUntil(at int64) (offset, until int64) {
	t := time.Unix(at, 0).In(c.zone)
	_, seconds := t.Zone()
	_, end := t.ZoneBounds()
	if end.IsZero() {
		return int64(seconds), 1<<63 - 1
	}
	until = end.Unix()
	if until <= at {
		// By a zone's rule for the future, no year has more than 365 days: ZoneBounds has December 31 of a leap
		// year end when it begins.
		until += day
	}
	return int64(seconds), until
}

// reach returns the first instant at which the zone's clock shows wall or a later time. One of the zone's offsets is
// enough to know an instant that is not after it.
func (c Calendar) reach(wall, offset int64) int64 {
	from := wall - offset - maxShift
	for {
		now, until := c.offsetUntil(from)
		if at := wall - now; at < until {
			return max(at, from) // it is before from if the clock was set forward then
		}
		from = until
	}
}

// The years that [Calendar.Longest] looks at.
const (
	firstYear = 1970
	lastYear  = 2100 // by then, the rules of all zones repeat
)

// Longest returns a bound that no period is longer than, of those that begin since 1970. It is exact where the clock
// is never changed and where changes alternate, as most do. It looks at all these changes, which takes much longer
// than [Calendar.Period].
func (c Calendar) Longest() time.Duration {
	return time.Duration(units[c.unit].longest+c.shift()) * time.Second
}

// shift returns the difference between the zone's largest and least offset.
func (c Calendar) shift() int64 {
	at := time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	end := time.Date(lastYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	least, at := c.offsetUntil(at)
	largest := least
	for at < end {
		var offset int64
		offset, at = c.offsetUntil(at)
		least, largest = min(least, offset), max(largest, offset)
	}
	return largest - least
}
