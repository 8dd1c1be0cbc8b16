package core

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/calendar"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// The bounds of a policy. A store may have lower bounds; [New] then returns an error.
const (
	MaxQuota  = 10_000_000           // units of one limit
	MinWindow = time.Millisecond     // shortest window
	MaxWindow = 365 * 24 * time.Hour // longest window
)

// Limit is a quota of units in any window of the given length, or of requests at the same time: see [InFlight]. At
// instant t the window is (t-Window, t]: an entry that is exactly one Window old is no longer in it.
//
// Quota is 1 to [MaxQuota] units. Window is [MinWindow] to [MaxWindow], in whole microseconds. Name is what clients see
// in the RateLimit header fields: 1 to 64 letters, digits, '.', '_' or '-'. If it is empty, the name is made of quota
// and window, such as "100-per-minute".
//
// A Limit is a [Policy].
type Limit struct {
	Quota  int
	Window time.Duration
	Name   string

	by        *keySpec // or nil: the limiter's key
	unit      string   // of Of, or empty: requests
	prefix    string   // of the name that is made of quota and window
	inFlight  bool     // of requests at the same time
	lease     time.Duration
	algorithm Algorithm
	burst     int               // of a token bucket
	calendar  calendar.Calendar // whose periods the windows are, or zero if they slide
	anchor    time.Time         // of From, or zero
	wrong     fault             // the first mistake in calls of methods, or zero
}

// wrongly notes a mistake in the call of a method, unless there was one before.
func (l Limit) wrongly(problem, remedy string) Limit {
	l.wrong = cmp.Or(l.wrong, fault{problem, remedy})
	return l
}

// By returns the limit with a key of its own, in place of the limiter's key. So one decision can limit a user, an
// organisation and everybody together: if one limit denies, none is charged.
//
//	core.Limits{
//		core.PerMinute(3),                      // for each user, which is the limiter's key
//		core.PerMinute(100).By(organisation),   // for each organisation
//		core.PerSecond(1000).By(core.Global()), // for all together
//	}
//
// Make each key once and use it for all of its limits: in one decision, limits of one Key value share one log, and
// limits of different Key values never do. Keys of one kind that [LimitBy] chooses for different requests share logs
// where their texts are equal. Each key is read once for each request. If it returns [ErrNoKey] the request is refused;
// core.First(k, core.Global()) gives such requests another key. Calls without a request, such as [Limiter.Allow], name
// the limiter's key; other keys are read from their context, so they must be made of a function that takes a context,
// or be [ByValue] or [Global].
//
// The logs are named by the policy and the key's kind, and by the limits' names if several keys are of one kind. A
// store that decides over one log at a time cannot serve such limits: [New] returns its error.
func (l Limit) By(k Key) Limit {
	if l.by = k.keySpec; l.by == nil {
		l.by = &keySpec{fault: configError("By", "no key", zeroKey, "pass a key, such as core.Global()")}
	}
	return l
}

// Of returns the limit with a unit of its own: it counts tokens, bytes or whatever unit names, and not requests. All
// limits of a policy are decided together, whatever they count: if one denies, none is charged.
//
//	core.Limits{
//		core.PerMinute(60), // requests
//		core.PerMinute(100_000).Of("tokens"),
//	}
//
// A unit is 1 to 32 of [a-z0-9-]. Limits of one key and unit share a log; those of another unit have another log, named
// by the unit, so the log of requests is kept when a limit of tokens is added to a policy with a name. [InFlight]
// counts requests only.
//
// Middleware asks [WithCostOf] how many units a request takes. Without HTTP, [Limiter.AllowCosts] names them. A cost
// without a unit, as in [WithCost], [Limiter.AllowN], [Limiter.AllowAtMost], [Limiter.WaitN], [Limiter.Record] and
// [Decision.Settle], counts requests if a limit counts requests, and otherwise the only unit; if there are several
// other units, it is a [ConfigError]. [Limiter.Peek] asks for one unit of each.
func (l Limit) Of(unit string) Limit {
	switch l.unit = unit; {
	case unit == plan.Requests:
		l.unit = ""
	case !plan.ValidUnit(unit):
		return l.wrongly(fmt.Sprintf("the unit %q is not valid", unit), plan.RemedyUnit)
	}
	return l
}

// Costs is what a request takes, by unit: see [Limit.Of].
type Costs map[string]int

// of returns the cost of a unit, which is empty for requests.
func (c Costs) of(unit string) (cost int, named bool) {
	cost, named = c[plan.UnitName(unit)]
	return cost, named
}

// check returns an error for a unit that no limit counts, and for a cost that is out of range.
func (c Costs) check(option string, pl *plan.Plan) error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(c)) {
		switch cost := c[name]; {
		case !pl.Counts(name):
			faults = append(faults, configError(option, name, "no limit counts this unit",
				"use one of "+strings.Join(pl.UnitNames(), ", ")))
		case cost < 0 || cost > MaxQuota:
			faults = append(faults, configError(option, fmt.Sprintf("%s: %d", name, cost), "the cost is out of range",
				"pass 0 to "+strconv.Itoa(MaxQuota)))
		}
	}
	return errors.Join(faults...)
}

// Limits are decided together and in one step: if one limit denies, none is charged. They have the limiter's key, or
// another one with [Limit.By]. Their names must differ. There are at most 8.
//
// Limits are a [Policy].
type Limits []Limit

// PerSecond allows quota units in any second.
func PerSecond(quota int) Limit { return Limit{Quota: quota, Window: time.Second} }

// PerMinute allows quota units in any 60 seconds.
func PerMinute(quota int) Limit { return Limit{Quota: quota, Window: time.Minute} }

// PerHour allows quota units in any 60 minutes.
func PerHour(quota int) Limit { return Limit{Quota: quota, Window: time.Hour} }

// PerDay allows quota units in any 24 hours.
func PerDay(quota int) Limit { return Limit{Quota: quota, Window: day} }

// The bounds of [Limit.Lease], and what it is without.
const (
	minLease     = time.Second
	maxLease     = time.Hour
	defaultLease = 30 * time.Second
)

// InFlight allows n requests at the same time, 1 to [MaxQuota]. Each holds a permit from the decision until it ends:
// middleware gives the permit back when the handler ends in any way; without HTTP, [Decision.Release] does. It may be
// the only limit or one of several, and a request takes one permit whatever it costs.
//
//	core.Limits{core.PerMinute(100), core.InFlight(4)}
//
// A denial has no RetryAfter ([Decision].RetryAfter is 0), because it is unknown when a request will end.
// [Limiter.Wait] waits for a permit. A handler that takes over its connection holds the permit until it returns, and in
// fiber until the connection's own handler or the body's stream has ended. [Limiter.Reset] leaves permits alone, and
// [Limiter.Record] takes none.
//
// The permits of a process that dies are free when their lease ends; see [Limit.Lease]. While the store does not
// answer, [FailLocal] limits within each process. A store outside the process must be a store.Renewer and a
// store.Settler.
func InFlight(n int) Limit { return Limit{Quota: n, inFlight: true, lease: defaultLease} }

// Lease sets for how long a permit of [InFlight] lasts without being renewed: 1s to 1h, in whole microseconds. The
// default is 30s. The limiter renews its permits three times within a lease, however long the requests take, so the
// lease is only for processes that die. Limits that [LimitBy] chooses for the same key need equal leases.
//
// A renewal also restores a permit that was lost, because Redis was restarted without its data or did not answer for a
// lease, even if others have taken all permits meanwhile. So at most a third of a lease after the loss nobody is
// admitted until fewer requests run than there are permits.
//
// A permit that is never released ([Decision.Release] was forgotten) is renewed for ten leases, and then for as long as
// the program refers to the decision. The garbage collector detects that, within minutes, but at no certain time. Then
// the permit ends with its lease, and the log has a warning.
func (l Limit) Lease(d time.Duration) Limit {
	if l.lease = d; !l.inFlight {
		return l.wrongly("only core.InFlight has a lease", "leave Lease out")
	}
	return l
}

const day = 24 * time.Hour

// String formats the limit as [ParseLimit] reads it: "100/minute", "5/10s", "10/second burst 50", "4 in flight", "5/day
// in Europe/Berlin". It leaves out the algorithm of a limit without a burst.
func (l Limit) String() string {
	if l.inFlight {
		return strconv.Itoa(l.Quota) + limittext.InFlight
	}
	quota := strconv.Itoa(l.Quota)
	if l.unit != "" {
		quota += " " + l.unit
	}
	if l.calendar.IsSet() {
		return quota + "/" + l.calendar.String()
	}
	text := quota + "/" + limittext.Period(l.Window)
	if l.algorithm == store.TokenBucket {
		text += limittext.Burst + strconv.Itoa(l.burst)
	}
	return text
}

func (l Limit) defaultName() string {
	if l.inFlight {
		return strconv.Itoa(l.Quota) + "-in-flight"
	}
	name := strconv.Itoa(l.Quota)
	if l.unit != "" {
		name += "-" + l.unit
	}
	name += "-per-" + l.period()
	if l.algorithm == store.TokenBucket {
		name += "-burst-" + strconv.Itoa(l.burst)
	}
	return name
}

// period names the window.
func (l *Limit) period() string {
	if l.calendar.IsSet() {
		return l.calendar.Unit().String()
	}
	return limittext.Period(l.Window)
}

// ParseLimit reads a limit from text, such as a value of a configuration file: "100/minute", "10 per 5m", "5/10s", "20
// per 2 hours". "100000 tokens/minute" is [Limit.Of]. The period is a unit (second, minute, hour, day; or sec, min,
// hr), a number of units, or a duration as [time.ParseDuration] reads it. "10/second burst 50" is a [TokenBucket], and
// "4 in flight" is [InFlight](4). "1000/week" and the same of a month, quarter or year are periods of the calendar in
// UTC; "5/day in Europe/Berlin" is [Limit.In], and "1000/month in UTC from 15" is [Limit.From]. The error is a
// [ConfigError].
func ParseLimit(s string) (Limit, error) {
	bad := func(f fault) (Limit, error) { return Limit{}, f.error("ParseLimit", strconv.Quote(s)) }
	text, err := limittext.Parse(s, MaxWindow)
	if wrong := (*limittext.Error)(nil); errors.As(err, &wrong) {
		return bad(fault{wrong.Problem, cmp.Or(wrong.Remedy, remedyQuota)})
	}
	l := Limit{Quota: text.Quota, Window: text.Window, calendar: text.Calendar}
	if text.Unit != "" {
		l = l.Of(text.Unit)
	}
	switch {
	case text.InFlight:
		l = InFlight(text.Quota)
	case text.HasBurst:
		l = TokenBucket(l, text.Burst)
	}
	if faults := l.faults(); len(faults) > 0 {
		return bad(faults[0])
	}
	return l, nil
}

// compiled returns a limit that is valid as it is decided.
func (l *Limit) compiled() plan.Limit {
	c := plan.Limit{
		Name: l.Name, Named: l.Name != "" && l.Name != l.defaultName(), Text: l.String(), InFlight: l.inFlight,
		Algorithm: l.algorithm, Quota: l.Quota, Window: l.Window, Period: l.period(), Calendar: l.calendar, Unit: l.unit,
	}
	if l.Name == "" {
		c.Name = l.prefix + l.defaultName()
	}
	switch {
	case l.inFlight:
		c.Window = l.lease
	case l.calendar.IsSet():
		c.Algorithm, c.Window = FixedWindow, c.Calendar.Longest()
	case l.algorithm == store.TokenBucket:
		c.Quota, c.Refill = l.burst, l.Quota
	}
	if l.by != nil {
		c.Key = l.by
	}
	return c
}

// faults returns what is wrong with a limit.
func (l *Limit) faults() (faults []fault) {
	add := func(wrong bool, problem, remedy string) {
		if wrong {
			faults = append(faults, fault{problem, remedy})
		}
	}
	if !l.inFlight {
		wrong := l.fault()
		if wrong == (fault{}) {
			wrong = l.algorithmFault()
		}
		add(wrong != (fault{}), wrong.problem, wrong.remedy)
		return faults
	}
	add(l.unit != "", "InFlight counts requests only", "leave Of out")
	add(l.algorithm != SlidingLog, fmt.Sprintf("a %v cannot count requests in flight", l.algorithm), "leave With out")
	add(l.Quota < 1 || l.Quota > MaxQuota, quotaOutOfRange, remedyQuota+" requests")
	add(l.Window != 0, "a limit of requests in flight has no window",
		fmt.Sprintf("leave out the %v; for a quota in a window, add another limit", l.Window))
	add(l.lease < minLease || l.lease > maxLease || l.lease%time.Microsecond != 0,
		fmt.Sprintf("the lease %v is out of range, or has a fraction of a microsecond", l.lease),
		fmt.Sprintf("choose %v to %v; it is renewed while the request runs", minLease, maxLease))
	for _, wrong := range [...]fault{l.wrong, l.nameFault()} {
		add(wrong != (fault{}), wrong.problem, wrong.remedy)
	}
	return faults
}

func (l *Limit) nameFault() fault {
	if l.Name == "" || validName(l.Name) {
		return fault{}
	}
	return fault{fmt.Sprintf("the name %q is not valid", l.Name), "use 1 to 64 letters, digits, '.', '_' or '-'"}
}

var remedyQuota = "choose 1 to " + strconv.Itoa(MaxQuota)

// fault returns what is wrong with a limit of a window, or the zero fault.
func (l *Limit) fault() fault {
	switch slides := !l.calendar.IsSet(); {
	case l.Quota < 1 || l.Quota > MaxQuota:
		return fault{quotaOutOfRange, remedyQuota}
	case l.wrong != (fault{}):
		return l.wrong
	case slides && l.Window > 0 && l.Window <= day/time.Second: // a number without a unit
		return fault{
			fmt.Sprintf("the window %v is out of range", l.Window),
			fmt.Sprintf("%s; if you mean %d seconds, write %[2]d*time.Second", limittext.RemedyLength, int64(l.Window)),
		}
	case slides && (l.Window < MinWindow || l.Window > MaxWindow):
		return fault{fmt.Sprintf("the window %v is out of range", l.Window), limittext.RemedyLength}
	case slides && l.Window%time.Microsecond != 0:
		return fault{fmt.Sprintf("the window %v has a fraction of a microsecond", l.Window), "use whole microseconds"}
	}
	return l.nameFault()
}

// validName reports whether s is a valid name. Such names need no escapes in a structured field (RFC 9651) or in a JSON
// string.
func validName(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return s != "" && len(s) <= 64 && strings.Trim(s, allowed) == ""
}
