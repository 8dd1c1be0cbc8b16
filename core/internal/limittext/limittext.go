// Package limittext reads limits from text, as in a configuration file.
package limittext

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/calendar"
)

// Limit is what a text says. Its numbers may be out of range.
type Limit struct {
	Quota    int
	Unit     string            // what follows the quota, or empty
	InFlight bool              // of requests at the same time, which has no window
	Window   time.Duration     // 0 if there is a calendar
	Calendar calendar.Calendar // or zero
	HasBurst bool
	Burst    int
}

// Error is what is wrong with a text, and what to do. Its remedy is empty if the quota is wrong.
type Error = calendar.Error

// What follows the quota of a limit of requests at the same time, and what stands before a burst.
const (
	InFlight = " in flight"
	Burst    = " burst "
)

// Parse reads a limit. A window is at most longest.
func Parse(s string, longest time.Duration) (l Limit, err error) {
	rated, burst, hasBurst := strings.Cut(s, Burst)
	amount, inFlight := strings.CutSuffix(strings.TrimSpace(rated), InFlight)
	rest, found := "", inFlight
	if !found {
		amount, rest, found = strings.Cut(rated, "/")
	}
	if !found {
		amount, rest, found = strings.Cut(rated, " per ")
	}
	if !found {
		return l, &Error{
			Problem: "there is no window", Remedy: `write a quota and a window, as in "100/minute" or "10 per 5m"`,
		}
	}
	amount, rest = strings.TrimSpace(amount), strings.TrimSpace(rest)
	if number, unit, named := strings.Cut(amount, " "); named && !inFlight && digits(number) {
		amount, l.Unit = number, strings.TrimSpace(unit)
	}
	if !digits(amount) {
		return l, &Error{Problem: fmt.Sprintf("the quota %q is not a whole number", amount)}
	}
	l.InFlight, l.HasBurst = inFlight, hasBurst
	if l.Quota, err = strconv.Atoi(amount); err != nil {
		return l, &Error{Problem: "the quota is out of range"}
	}
	if !inFlight {
		if err = l.parseWindow(rest, longest); err != nil {
			return l, err
		}
	}
	if hasBurst {
		burst = strings.TrimSpace(burst)
		l.Burst, err = strconv.Atoi(burst)
		if err != nil || !digits(burst) || inFlight {
			return l, &Error{
				Problem: fmt.Sprintf("the burst %q is not a whole number after a rate", burst),
				Remedy:  `write it as in "10/second burst 50"`,
			}
		}
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

// Period formats a window in its largest whole unit: "minute", "5m", "1500ms".
func Period(window time.Duration) string {
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

// RemedyLength is for a window that is out of range.
const RemedyLength = "choose 1ms to 365 days (8760h)"

// parseWindow sets the window or the calendar from text.
func (l *Limit) parseWindow(text string, longest time.Duration) (err error) {
	d, known := parsePeriod(text, longest)
	if known && d == 0 {
		return &Error{Problem: fmt.Sprintf("the window %q is out of range", text), Remedy: RemedyLength}
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
func parsePeriod(s string, longest time.Duration) (d time.Duration, known bool) {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	count, unit := s[:i], strings.TrimPrefix(s[i:], " ")
	for _, u := range units {
		if one := strings.TrimSuffix(unit, "s"); unit != u.short && one != u.name && one != u.medium {
			continue
		}
		if count == "" {
			return u.length, true
		}
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil || n > int64(longest/u.length) {
			return 0, true
		}
		return time.Duration(n) * u.length, true
	}
	if i == 0 {
		return 0, false // ParseDuration would read a sign
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
