package limittext

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/calendar"
)

// What follows the quota of a limit of requests at the same time, and what stands before a burst.
const (
	inFlight = " in flight"
	burst    = " burst "
)

// Parse reads a limit that is valid. The error is an [Error].
func Parse(s string) (l Limit, err error) {
	rated, size, hasBurst := strings.Cut(s, burst)
	var amount, rest string
	amount, l.InFlight = strings.CutSuffix(strings.TrimSpace(rated), inFlight)
	found := l.InFlight
	if !found {
		amount, rest, found = strings.Cut(rated, " per ") // first, as a zone may have a slash
	}
	if !found {
		amount, rest, found = strings.Cut(rated, "/")
	}
	if !found {
		return l, &Error{
			Problem: "there is no window", Remedy: `write a quota and a window, as in "100/minute" or "10 per 5m"`,
		}
	}
	amount, rest = strings.TrimSpace(amount), strings.TrimSpace(rest)
	number, unit, hasUnit := strings.Cut(amount, " ")
	if hasUnit = hasUnit && !l.InFlight && digits(number); hasUnit {
		amount = number
	}
	if !digits(amount) {
		return l, &Error{Problem: fmt.Sprintf("the quota %q is not a whole number", amount), Remedy: RemedyQuota}
	}
	if l.Quota, err = strconv.Atoi(amount); err != nil {
		return l, &Error{Problem: quotaOutOfRange, Remedy: RemedyQuota}
	}
	if l.InFlight {
		l.Lease = DefaultLease
	} else if err = l.parseWindow(rest); err != nil {
		return l, err
	}
	if hasUnit {
		l.SetUnit(strings.TrimSpace(unit))
	}
	if hasBurst {
		n, err := strconv.Atoi(strings.TrimSpace(size))
		if err != nil || !digits(strings.TrimSpace(size)) || l.InFlight {
			return l, &Error{
				Problem: fmt.Sprintf("the burst %q is not a whole number after a rate", strings.TrimSpace(size)),
				Remedy:  `write it as in "10/second burst 50"`,
			}
		}
		l.SetBurst(n)
	}
	if faults := l.Faults(); len(faults) > 0 {
		return l, &faults[0]
	}
	return l, nil
}

var units = []struct {
	name, medium, short string
	length              time.Duration
}{
	{"day", "day", "d", 24 * time.Hour},
	{"hour", "hr", "h", time.Hour},
	{"minute", "min", "m", time.Minute},
	{"second", "sec", "s", time.Second},
	{"millisecond", "msec", "ms", time.Millisecond},
	{"microsecond", "usec", "us", time.Microsecond},
}

// period names a window in its largest whole unit.
func period(window time.Duration) string {
	for _, u := range units {
		if window == u.length {
			return u.name
		}
		if window > 0 && window%u.length == 0 {
			return strconv.FormatInt(int64(window/u.length), 10) + u.short
		}
	}
	return window.String()
}

const remedyWindow = "write second, minute, hour, day, week, month, quarter or year, " +
	`or a length such as "5 minutes" or "10s"`

// parseWindow sets the window or the calendar from text.
func (l *Limit) parseWindow(text string) (err error) {
	d, known := parsePeriod(text)
	if known && d == 0 {
		return &Error{Problem: fmt.Sprintf("the window %q is out of range", text), Remedy: remedyLength}
	}
	if l.Window = d; known {
		return nil
	}
	if l.Calendar, err = calendar.Parse(text); err == nil {
		return nil
	}
	if errors.As(err, new(*Error)) {
		return err
	}
	return &Error{Problem: fmt.Sprintf("there is no window %q", text), Remedy: remedyWindow}
}

// parsePeriod reads a window that slides. It returns 0 for one that is too long.
func parsePeriod(s string) (d time.Duration, known bool) {
	unit := strings.TrimLeft(s, "0123456789")
	count, unit := s[:len(s)-len(unit)], strings.TrimPrefix(unit, " ")
	for _, u := range units {
		if one := strings.TrimSuffix(unit, "s"); unit != u.short && one != u.name && one != u.medium {
			continue
		}
		if count == "" {
			return u.length, true
		}
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil || n > int64(MaxWindow/u.length) {
			return 0, true
		}
		return time.Duration(n) * u.length, true
	}
	if count == "" {
		return 0, false // ParseDuration would read a sign
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
