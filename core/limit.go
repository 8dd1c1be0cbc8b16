package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
)

// The bounds of a policy. A store may have lower bounds; [New] then returns an error.
const (
	MaxQuota  = limittext.MaxQuota  // units of one limit, and of a cost: 1,000,000,000
	MinWindow = limittext.MinWindow // shortest window: a millisecond
	MaxWindow = limittext.MaxWindow // longest window: 365 days
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

	by    *keys.Spec // or nil: the limiter's key
	label string     // of its logs
	form  limittext.Form
}

// text returns the limit as it was written.
func (l *Limit) text() limittext.Limit {
	return limittext.Limit{Name: l.Name, Quota: l.Quota, Window: l.Window, Form: l.form}
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
// Make each key once and use it for all of its limits. Each key is read once for each request. If it returns [ErrNoKey]
// the request is refused; core.First(k, core.Global()) gives such requests another key. Calls without a request, such
// as [Limiter.Allow], name the limiter's key; other keys are read from their context, so they must be made of a
// function that takes a context, or be [ByValue] or [Global].
//
// The logs are named by the policy, the key's kind and its scope, such as the name of a header field; never by a quota.
// Where that does not tell two keys of a policy apart, [New] returns an error, and [Limit.Named] does. A store that
// decides over one log at a time cannot serve such limits: New returns its error.
func (l Limit) By(k Key) Limit {
	if l.by = k.spec; l.by == nil {
		l.by = &keys.Spec{Fault: configError("By", "no key", zeroKey, "pass a key, such as core.Global()")}
	}
	return l
}

// Named returns the limit with a name in header fields. It also names the logs of a limit with a key of its own
// ([Limit.By]), so that two keys of one kind have logs of their own: changing it is a fresh quota. Name is the same
// without that.
//
//	core.PerHour(5).By(organisation).Named("organisation")
func (l Limit) Named(name string) Limit {
	l.Name, l.label = name, name
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
	l.form.SetUnit(unit)
	return l
}

// Costs is what a request takes, by unit: see [Limit.Of].
type Costs map[string]int

// of returns the cost of a unit, which is empty for requests.
func (c Costs) of(unit string) (cost int, named bool) {
	cost, named = c[limittext.UnitName(unit)]
	return cost, named
}

// check returns an error for a unit that no limit counts, not even one that is tried out, and for a cost that is out of
// range.
func (c Costs) check(option string, set *engine.Set, shadow *gate.Policy) error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(c)) {
		switch cost := c[name]; {
		case !set.Counts(name) && !shadow.Counts(name):
			remedy := "leave it out" // there is InFlight only
			if names := set.UnitNames(); names != nil {
				remedy = "use one of " + strings.Join(names, ", ")
			}
			faults = append(faults, configError(option, name, "no limit counts this unit", remedy))
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
func PerDay(quota int) Limit { return Limit{Quota: quota, Window: 24 * time.Hour} }

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
func InFlight(n int) Limit {
	return Limit{Quota: n, form: limittext.Form{InFlight: true, Lease: limittext.DefaultLease}}
}

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
	l.form.SetLease(d)
	return l
}

// String formats the limit as [ParseLimit] reads it: "100/minute", "5/10s", "10/second burst 50", "4 in flight", "5/day
// in Europe/Berlin". It leaves out the algorithm of a limit without a burst.
func (l Limit) String() string { return l.text().String() }

// ParseLimit reads a limit from text, such as a value of a configuration file: "100/minute", "10 per 5m", "5/10s", "20
// per 2 hours". "100000 tokens/minute" is [Limit.Of]. The period is a unit (second, minute, hour, day; or sec, min,
// hr), a number of units, or a duration as [time.ParseDuration] reads it. "10/second burst 50" is a [TokenBucket], and
// "4 in flight" is [InFlight](4). "1000/week" and the same of a month, quarter or year are periods of the calendar in
// UTC; "5/day in Europe/Berlin" is [Limit.In], and "1000/month in UTC from 15" is [Limit.From]. The error is a
// [ConfigError].
func ParseLimit(s string) (Limit, error) {
	text, err := limittext.Parse(s)
	if wrong := (*limittext.Error)(nil); errors.As(err, &wrong) {
		return Limit{}, configError("ParseLimit", strconv.Quote(s), wrong.Problem, wrong.Remedy)
	}
	return Limit{Quota: text.Quota, Window: text.Window, form: text.Form}, nil
}

// Given is for packages of this module.
func (l Limit) Given() engine.Given { return Limits{l}.given(nil)[0] }
