// Package store defines what a limiter needs of a store, which keeps its logs: in memory, in Redis, or where you
// choose. Package core has the limiters; [core.MemoryStore] and those of package redisstore are stores. Most programs
// need neither this package nor its names.
//
// A log lists the admitted takes of one key, oldest first: entries with an instant, a cost and an id. A store holds a
// log for each [Key], named by [Key.String], and decides about takes in one atomic step each, on one clock for all that
// share a log, in microseconds or finer. It is safe for concurrent use. Package coretest holds the tests that every
// store passes; the examples of this package are whole stores.
//
// [core.MemoryStore]: https://pkg.go.dev/github.com/sashlimit/sash/core#MemoryStore
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Store keeps logs and decides about takes. What not every store can do is an interface of its own: [Settler],
// [Lister], [Merger], [Renewer], [Overrider] and [Leaser]. A limiter whose options need one of them cannot be made on a
// store without it.
//
// A method returns soon after its context's deadline, whatever it has found out: limiters wait for it. An error says
// that the store could not answer; a [ConfigError], that it never will.
type Store interface {
	// Validate reports what the store cannot serve: mistakes made when it was constructed, all of them joined, and
	// plans of one decision, one for each of its logs, that it cannot decide: because limits are too large for it,
	// because it lacks their algorithm, or because there are several logs. It does no I/O. A limiter calls it when it
	// is made, without plans if requests choose the limits, and once for each new set of limits that a request chooses.
	// [OneLog] and [SlidingLogs] do this for stores with fewer abilities.
	Validate(plans ...*Plan) error

	// Take decides about one request and records it as its Mode says. A request draws from one log, or from several:
	// then its takes are of different keys and have the same ID and Mode, each has a Cost of its own, and all of them
	// are recorded, or none. Take fills in answers[i], which is zero, about takes[i]: Allowed is whether that log has
	// room for that Cost, and the request is admitted if all have. A denial is no error. Takes that [ValidateTakes]
	// refuses are.
	//
	// The slices belong to the caller. When Take has returned, the store does not touch them.
	//
	// If one of the logs has no room, the others are as if they had been asked in [ModePeek]. Under [ModeChargeDenied]
	// the logs without room record the take, and the others nothing. Under [ModeRecord] all record it.
	//
	// Under [ModeUpTo] all logs record the same number of units: as many as the log with the least has room for, at
	// most [MostGranted]. Each answer has that number as Granted, and 0 if a log has no room for one unit; the logs
	// with room are then as if they had been asked for one unit in ModePeek.
	//
	// A store of one server does so in one atomic step. A store of several servers may ask one after the other and
	// remove again what it has recorded, so that a request which is denied may deny others meanwhile. It never admits
	// too many. If it returns an error, some logs may have recorded their take; Settle by ID removes it.
	//
	// Limiters give each request an ID of its own; where the store's client may send a command twice over a network,
	// the ID makes sure that the request is recorded once.
	Take(ctx context.Context, takes []Take, answers []Answer) error

	// Reset deletes a log. A log that does not exist is not an error.
	Reset(ctx context.Context, key Key) error
}

// Settler is a [Store] that can change what was recorded. Refunds and [core.Decision.Undo] need it.
//
// [core.Decision.Undo]: https://pkg.go.dev/github.com/sashlimit/sash/core#Decision.Undo
type Settler interface {
	// Settle changes the cost of a take, at the instant when it was recorded; a cost of 0 removes it. It does
	// nothing if the take is not in the log: if it was never recorded, has left the longest window, was removed, or
	// has been trimmed in part. It trims nothing and asks no limit: the log may then hold more than a quota.
	Settle(ctx context.Context, s Settlement) error
}

// Lister is a [Store] that can show a log.
type Lister interface {
	// Log returns the entries younger than window, oldest first, with At and Cost.
	Log(ctx context.Context, key Key, window time.Duration) ([]Entry, error)
}

// Merger is a [Store] to which entries of another log can be added. Replaying what was admitted in an outage needs it.
type Merger interface {
	// Merge adds entries at their true instants, except those whose ids the log already holds, also in part: it is a
	// union of sets, so it may be done again. It asks no limit and trims nothing.
	Merge(ctx context.Context, m MergeRequest) error
}

// Renewer is a [Store] that can renew slots, which are the entries of a plan with [Plan.Slots]. Limits of requests in
// flight need it, and a [Settler], which gives slots back.
type Renewer interface {
	// Renew moves the entries of takes to now, at the end of the log. It adds those that the log does not hold any
	// more, or never did, with a cost of 1: their requests run, whatever became of the log. It asks no limit, so the
	// log may then hold more than a quota, and admits nobody until it holds less.
	Renew(ctx context.Context, r Renewal) error
}

// Overrider is a [Store] that keeps overrides: texts by policy and name, each until an instant. Limiters with overrides
// need it, and read them about once a second.
type Overrider interface {
	// SetOverride keeps an override in place of the one of that name, or removes that one if Value is empty. A new one
	// is [TooManyOverrides] if the policy has as many of its kind as it may, which have not ended: see [Override.Most].
	SetOverride(ctx context.Context, policy string, o Override) error

	// Overrides returns the overrides of a policy, and a version, which is another one for each state of them; it is
	// empty if there never was an override, or if the store has lost all. Those that have ended may be left out. If
	// known is the present version, Overrides returns no overrides.
	Overrides(ctx context.Context, policy, known string) (version string, all []Override, err error)
}

// Override is what an [Overrider] keeps.
type Override struct {
	Name  string
	Value string
	Until time.Time // in whole milliseconds

	// Extend says that the override is a pause. SetOverride leaves one of the name alone that does not end before Until.
	Extend bool
}

// MaxOverrides is how many overrides a policy has at most, and MaxPauses how many pauses beside them.
const (
	MaxOverrides = 10_000
	MaxPauses    = 1_000
)

// Most returns how many of its kind a policy has at most: overrides, or pauses.
func (o *Override) Most() int {
	if o.Extend {
		return MaxPauses
	}
	return MaxOverrides
}

// TooManyOverrides returns the [ConfigError] for an override or a pause that is one too many.
func TooManyOverrides(policy string, o *Override) error {
	kind, remedy := "overrides", "remove some, or choose limits by the customer's plan with LimitBy"
	if o.Extend {
		kind, remedy = "pauses", "wait until one has ended, or remove its override"
	}
	return configError("Override", policy,
		fmt.Sprintf("the policy has %d %s, and there is no room for more", o.Most(), kind), remedy)
}

// Batcher is a [Store] that sends takes to a server in batches.
type Batcher interface {
	// Batches returns what was sent since the store was made.
	Batches() Batches
}

// Batches counts batches of takes by their size.
type Batches struct {
	// Sizes[i] is the number of batches of more than 1<<(i-1) and at most 1<<i takes: of 1, 2, 3 to 4, 5 to 8 takes and
	// so on. Larger batches are in the last.
	Sizes [8]uint64
	Takes uint64 // in all batches; bookings count as takes
}

// Full is a store with all optional methods but those of [Leaser] and [Batcher], as core.MemoryStore and the stores of
// redisstore are.
type Full interface {
	Store
	Settler
	Lister
	Merger
	Renewer
	Overrider
}

// Take is one request as a store sees it.
type Take struct {
	Key  Key
	Plan *Plan
	Cost int    // units, in ModeUpTo the most; at least 1. It may be above a quota: limiters ask for up to 10,000,001
	ID   uint64 // the caller's; it names this take among all takes of all processes, and is not 0
	Mode Mode
}

// Validate returns an error for a take without a key or a plan.
func (t *Take) Validate() error {
	if t.Plan == nil || len(t.Plan.Limits) == 0 {
		return configError("store.Take", "no plan", "a take needs a plan", "use store.NewPlan")
	}
	return t.Key.Validate()
}

// MostGranted returns how many units a request of [ModeUpTo] gets at most: the Cost of its takes, which is the same for
// all that are not of slots. The Cost of slots counts only if there are no other takes; then it is that of the first.
func MostGranted(takes []Take) int {
	for i := range takes {
		if !takes[i].Plan.Slots {
			return takes[i].Cost
		}
	}
	return takes[0].Cost
}

// ValidateTakes returns an error for what [Store.Take] does not accept: no take, one that is not valid, two of one key,
// more than [MaxLimits] limits in all, takes that differ in ID or Mode, in [ModeUpTo] takes that differ in Cost unless
// they are of slots, or another number of answers.
func ValidateTakes(takes []Take, answers []Answer) error {
	limits, most := 0, 0 // most: the Cost in ModeUpTo
	for i := range takes {
		t := &takes[i]
		if err := t.Validate(); err != nil {
			return err
		}
		for j := range i {
			if k := &takes[j].Key; k.Identity == t.Key.Identity && k.Namespace.name == t.Key.Namespace.name {
				return configError("store.Take", "one key twice", "the takes of one request must have different keys",
					"put the limits of a key into one plan")
			}
		}
		if t.ID != takes[0].ID || t.Mode != takes[0].Mode {
			return configError("store.Take", "takes that differ", "the takes belong to different requests",
				"use the same ID and Mode for the takes of one request")
		}
		if t.Mode == ModeUpTo && !t.Plan.Slots {
			if most = cmp.Or(most, t.Cost); t.Cost != most {
				return configError("store.Take", fmt.Sprintf("costs of %d and %d", most, t.Cost),
					"all logs of a request get the same number of units in ModeUpTo",
					"use the same Cost for all takes that are not of slots")
			}
		}
		limits += len(t.Plan.Limits)
	}
	if len(takes) == 0 || limits > MaxLimits || len(answers) != len(takes) {
		return configError("store.Take",
			fmt.Sprintf("%d takes, %d answers, %d limits", len(takes), len(answers), limits),
			"the number of takes, answers or limits is wrong",
			fmt.Sprintf("pass at least one take, an answer for each, and at most %d limits in all", MaxLimits))
	}
	return nil
}

// OneLog is the [Store].Validate of a store that decides over one log at a time and has only the sliding log.
func OneLog(plans []*Plan) error {
	err := SlidingLogs(plans)
	if len(plans) < 2 {
		return err
	}
	return errors.Join(err, configError("limits", strconv.Itoa(len(plans))+" logs",
		"the store decides over one log at a time, and these limits need several, because some have a key "+
			"of their own (By), count requests in flight (InFlight), or have an algorithm beside others (With)",
		"make a limiter for each of them, or use another store, such as one of package redisstore"))
}

// SlidingLogs is the [Store].Validate of a store that has only the sliding log.
func SlidingLogs(plans []*Plan) error {
	var faults []error
	for _, p := range plans {
		if a := p.Algorithm(); a != SlidingLog {
			faults = append(faults, configError("With", a.String(), "the store does not have this algorithm",
				"use a sliding log, or another store"))
		}
	}
	return errors.Join(faults...)
}

// Mode is what a [Take] records.
type Mode uint8

const (
	// ModeCharge records what is admitted. A denial leaves no trace.
	ModeCharge Mode = iota
	// ModePeek records nothing.
	ModePeek
	// ModeRecord admits and records whatever the limits say. The oldest units of the log beyond [MaxRecorded], or
	// beyond [Plan.Largest] if that is more, are then trimmed.
	ModeRecord
	// ModeChargeDenied is ModeCharge, but records denials as well, unless [Plan.NeverFits] says that waiting cannot
	// help. When a denial was recorded, the oldest units of the log beyond Plan.Bound are trimmed.
	//
	// Trimming counts the units of all entries that are kept, the new one included. The oldest entry that remains may
	// lose a part of its units.
	ModeChargeDenied
	// ModeUpTo records as many units as all limits that decide have room for, at most Cost, as one entry with that
	// cost: [Answer.Granted]. If they have no room for one unit, the take is a denial of one unit, which leaves no
	// trace.
	//
	// A take that was recorded is granted the same units when it is executed again with its ID.
	ModeUpTo
)

var modes = [...]string{"charge", "peek", "record", "charge denied", "up to"}

// String is the mode in words fit for a metric, such as "charge".
func (m Mode) String() string { return word(modes[:], int(m)) }

func word(of []string, n int) string {
	if n < len(of) {
		return of[n]
	}
	return "unknown"
}

// MaxRecorded is how many units of one key [ModeRecord] keeps, at least.
const MaxRecorded = 100_000

// Answer is the answer of a log to a [Take]. A store fills in State[i].Used of each limit, has [Plan.Judge] fill in
// Allowed and Denied, and in [ModeUpTo] [Plan.Grant] fill in Granted, and records the take.
//
// In ModeUpTo, Denied, Retry and Shadow are those of a take of one unit, whatever its Cost is. So a limit that does
// not decide is in Denied if it would have granted nothing; it would have granted what is left of its quota otherwise.
type Answer struct {
	Allowed bool
	Denied  LimitSet // the limits without room for the take, those that do not decide included
	Granted int      // units recorded in ModeUpTo: 1 to MostGranted if the take is recorded, else 0. In other modes 0

	// Retry is how long it takes until the limits that decide have room for the same take, as the log is after this
	// one. It is 0 if the take is allowed, and if the limits never will have room for it.
	Retry time.Duration

	// Shadow is how long it takes until the limits that do not decide have room for the take, as the log was before
	// it. It is 0 if they have it now, never will, or there are none.
	Shadow time.Duration

	State [MaxLimits]State // of each limit, in the order of Plan.Limits
}

// State is one limit's view of the log.
type State struct {
	Used  int           // units in the window before this take
	Reset time.Duration // until the oldest unit leaves the window, as it is after this take; 0 if it is empty
}

// LimitSet is a set of limits of a plan.
type LimitSet uint8

// Has reports whether limit i is in the set.
func (s LimitSet) Has(i int) bool { return s>>i&1 == 1 }

// Settlement is the final cost of a take.
type Settlement struct {
	Key  Key
	ID   uint64 // that of the Take
	Cost int    // units, at least 0
}

// Renewal names takes whose slots are still in use.
type Renewal struct {
	Key  Key
	IDs  []uint64      // those of the Takes, in any order
	Keep time.Duration // as in Plan
}

// MergeRequest is what to add to a log.
type MergeRequest struct {
	Key     Key
	Keep    time.Duration // as in Plan; older entries may be left out
	Varies  bool          // as in Plan
	Entries []Entry       // each with ID, Age and Cost, in any order
}

// Entry is a recorded take, without the identity.
type Entry struct {
	At   time.Time // on the store's clock; not in a MergeRequest
	Cost int       // units

	// Booked says that the units were booked ahead ([Leaser]), and how many of them are used is not known yet: At is
	// after the store's now. Not in a MergeRequest.
	Booked bool

	ID  uint64        // that of the Take; in a MergeRequest alone
	Age time.Duration // how long ago it was recorded; only in a MergeRequest, since clocks of two stores differ
}
