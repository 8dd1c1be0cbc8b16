// Package limittext has limits as users write them, in code or as text: their names, and what is wrong with them.
package limittext

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/calendar"
	"github.com/sashlimit/sash/core/store"
)

// The bounds of a limit.
const (
	MaxQuota  = store.MaxQuota
	MinWindow = time.Millisecond
	MaxWindow = 365 * day
	minLease  = time.Second
	maxLease  = time.Hour

	DefaultLease = 30 * time.Second
)

const day = 24 * time.Hour

// Limit is a limit as it was written. Its numbers may be out of range.
type Limit struct {
	Form

	Name   string
	Quota  int
	Window time.Duration
}

// Form is all of a limit but its name, quota and window.
type Form struct {
	Unit      string        // what it counts, or empty: requests
	InFlight  bool          // of requests at the same time, which has no window
	Lease     time.Duration // of their permits
	Algorithm store.Algorithm
	Burst     int               // of a token bucket
	Calendar  calendar.Calendar // whose periods the windows are, or zero if they slide

	anchor time.Time // of the calendar, or zero
	wrong  Error     // the first mistake in calls of methods, or zero
}

// Error is what is wrong with a limit, and what to do.
type Error = calendar.Error

func mistake(problem, remedy string) Error { return Error{Problem: problem, Remedy: remedy} }

// note keeps a mistake in the call of a method, unless there was one before.
func (l *Form) note(problem, remedy string) { l.wrong = cmp.Or(l.wrong, mistake(problem, remedy)) }

// SetUnit sets what the limit counts.
func (l *Form) SetUnit(unit string) {
	switch l.Unit = unit; {
	case unit == Requests:
		l.Unit = ""
	case !ValidUnit(unit):
		l.note(fmt.Sprintf("the unit %q is not valid", unit), RemedyUnit)
	}
}

// SetLease sets how long a permit lasts.
func (l *Form) SetLease(d time.Duration) {
	if l.Lease = d; !l.InFlight {
		l.note("only core.InFlight has a lease", "leave Lease out")
	}
}

// SetBurst makes a token bucket of the limit, which is the rate that refills it.
func (l *Form) SetBurst(burst int) {
	if l.Algorithm != store.SlidingLog || l.Calendar.IsSet() || l.InFlight {
		l.note("the refill of core.TokenBucket is not a rate", "use a plain rate, such as core.PerSecond(10)")
	}
	l.Algorithm, l.Burst = store.TokenBucket, burst
}

// SetZone makes the limit, which has this window or a calendar, follow the clock of a time zone.
func (l *Form) SetZone(zone *time.Location, window time.Duration) {
	switch {
	case zone == nil:
		l.note("the time zone is nil", "check the error of time.LoadLocation")
		return
	case l.Calendar.IsSet():
		l.Calendar = calendar.New(l.Calendar.Unit(), zone)
	case window == day:
		l.Calendar = calendar.New(calendar.Day, zone)
	case window == time.Hour:
		l.Calendar = calendar.New(calendar.Hour, zone)
	default:
		l.note("only hours, days and longer calendar periods can be aligned",
			"use core.PerHour, PerDay, PerWeek, PerMonth, PerQuarter or PerYear")
		return
	}
	if !l.anchor.IsZero() {
		l.Calendar = l.Calendar.From(l.anchor)
	}
}

// SetAnchor makes the periods of the calendar begin as the anchor does.
func (l *Form) SetAnchor(anchor time.Time) {
	if !l.Calendar.IsSet() {
		l.note("only calendar periods have an anchor",
			"choose a time zone with In, or use core.PerWeek, PerMonth, PerQuarter or PerYear")
		return
	}
	l.anchor = anchor.Round(0) // without a monotonic clock reading, so that limits are comparable
	l.Calendar = l.Calendar.From(anchor)
}

// String formats the limit as [Parse] reads it. It leaves out the algorithm of a limit without a burst.
func (l Limit) String() string {
	period := l.Period()
	if l.Calendar.IsSet() {
		period = l.Calendar.String()
	}
	return l.join(" ", "/", period, burst, inFlight)
}

// DefaultName returns the name of the limit unless it is given one.
func (l Limit) DefaultName() string { return l.join("-", "-per-", l.Period(), "-burst-", "-in-flight") }

// join joins what a limit has, with the words before the unit, the period and the burst, or for requests in flight.
func (l Limit) join(unit, per, period, burst, inFlight string) string {
	text := strconv.Itoa(l.Quota)
	if l.InFlight {
		return text + inFlight
	}
	if l.Unit != "" {
		text += unit + l.Unit
	}
	if text += per + period; l.Algorithm == store.TokenBucket {
		text += burst + strconv.Itoa(l.Burst)
	}
	return text
}

// Period names the window, in its largest whole unit: "minute", "5m", "1500ms".
func (l Limit) Period() string {
	if l.Calendar.IsSet() {
		return l.Calendar.Unit().String()
	}
	return period(l.Window)
}

// Faults returns what is wrong with the limit.
func (l Limit) Faults() (faults []Error) {
	add := func(wrong bool, problem, remedy string) {
		if wrong {
			faults = append(faults, mistake(problem, remedy))
		}
	}
	if !l.InFlight {
		wrong := l.fault()
		add(wrong != (Error{}), wrong.Problem, wrong.Remedy)
		return faults
	}
	add(l.Unit != "", "InFlight counts requests only", "leave Of out")
	add(l.Algorithm != store.SlidingLog, fmt.Sprintf("a %v cannot count requests in flight", l.Algorithm),
		"leave With out")
	add(l.Quota < 1 || l.Quota > MaxQuota, quotaOutOfRange, RemedyQuota+" requests")
	add(l.Window != 0, "a limit of requests in flight has no window",
		fmt.Sprintf("leave out the %v; for a quota in a window, add another limit", l.Window))
	add(l.Lease < minLease || l.Lease > maxLease || l.Lease%time.Microsecond != 0,
		fmt.Sprintf("the lease %v is out of range, or has a fraction of a microsecond", l.Lease),
		fmt.Sprintf("choose %v to %v; it is renewed while the request runs", minLease, maxLease))
	for _, wrong := range [...]Error{l.wrong, l.nameFault()} {
		add(wrong != (Error{}), wrong.Problem, wrong.Remedy)
	}
	return faults
}

func (l Limit) nameFault() Error {
	if l.Name == "" || ValidName(l.Name) {
		return Error{}
	}
	return mistake(fmt.Sprintf("the name %q is not valid", l.Name), "use 1 to 64 letters, digits, '.', '_' or '-'")
}

const (
	quotaOutOfRange = "the quota is out of range"
	remedyLength    = "choose 1ms to 365 days (8760h)"
)

// RemedyQuota is for a quota that is out of range.
var RemedyQuota = "choose 1 to " + strconv.Itoa(MaxQuota)

// fault returns what is wrong with a limit of a window, or the zero Error.
func (l Limit) fault() Error {
	switch slides := !l.Calendar.IsSet(); {
	case l.Quota < 1 || l.Quota > MaxQuota:
		return mistake(quotaOutOfRange, RemedyQuota)
	case l.wrong != (Error{}):
		return l.wrong
	case slides && l.Window > 0 && l.Window <= day/time.Second: // a number without a unit
		return mistake(fmt.Sprintf("the window %v is out of range", l.Window),
			fmt.Sprintf("%s; if you mean %d seconds, write %[2]d*time.Second", remedyLength, int64(l.Window)))
	case slides && (l.Window < MinWindow || l.Window > MaxWindow):
		return mistake(fmt.Sprintf("the window %v is out of range", l.Window), remedyLength)
	case slides && l.Window%time.Microsecond != 0:
		return mistake(fmt.Sprintf("the window %v has a fraction of a microsecond", l.Window), "use whole microseconds")
	}
	return cmp.Or(l.nameFault(), l.algorithmFault())
}

// algorithmFault returns what is wrong with the algorithm of a limit whose numbers are valid, or the zero Error.
func (l Limit) algorithmFault() Error {
	switch {
	case l.Calendar.IsSet() && l.Algorithm != store.SlidingLog && l.Algorithm != store.FixedWindow:
		return mistake(fmt.Sprintf("a %v cannot count calendar periods", l.Algorithm),
			"leave With out, or use a window such as core.PerDay(n) without In")
	case !slices.Contains(store.Algorithms(), l.Algorithm):
		return mistake(fmt.Sprintf("there is no algorithm %d", l.Algorithm),
			"choose one of package core, such as core.FixedWindow, or use core.TokenBucket")
	case l.Algorithm != store.TokenBucket && l.Burst != 0:
		return mistake(fmt.Sprintf("a %v has no burst", l.Algorithm), "call With on a limit without a burst")
	case l.Algorithm != store.TokenBucket:
	case l.Burst < 1 || l.Burst > MaxQuota:
		return mistake(fmt.Sprintf("the burst %d is out of range", l.Burst),
			fmt.Sprintf("choose 1 to %d units: core.TokenBucket(refill, burst)", MaxQuota))
	case (&store.Limit{Window: l.Window, Refill: l.Quota}).Interval() > int64(MaxWindow)/int64(l.Burst):
		return mistake(fmt.Sprintf("an empty bucket of %d takes longer than %v to fill", l.Burst, period(MaxWindow)),
			"refill it faster, or choose a smaller burst")
	}
	return Error{}
}

// ValidName reports whether s is a valid name. Such names need no escapes in a structured field (RFC 9651) or in a JSON
// string.
func ValidName(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return s != "" && len(s) <= 64 && strings.Trim(s, allowed) == ""
}
