// Package store defines what a limiter needs of a store, which keeps its logs: in memory, in Redis, or where you
// choose. Package core has the limiters; [core.MemoryStore] and those of package redisstore are stores. Most programs
// need neither this package nor its names.
//
// A log is what one key was admitted in one window: entries with an instant, a cost and an id, oldest first. A limit is
// a quota on a log. A request is a list of takes, mostly one: each asks one log for some units, and all of them are
// recorded, or none. A store decides about a request in one atomic step, on one clock for all that share a log, in
// microseconds or finer. It is safe for concurrent use. Package coretest holds the tests that every store passes; the
// example of this package is a whole store.
//
// [core.MemoryStore]: https://pkg.go.dev/github.com/sashlimit/sash/core#MemoryStore
package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Store keeps logs and decides about requests. What not every store can do is an interface of its own: [Settler],
// [Lister], [Merger], [Renewer] and [Overrider]. A limiter whose options need one of them cannot be made on a store
// without it. [Pinger] is for all limiters, and none needs it.
//
// A method returns soon after its context's deadline, whatever it has found out: limiters wait for it. An error says
// that the store could not answer; a [ConfigError], that it never will.
type Store interface {
	// Validate reports what the store cannot serve: mistakes made when it was constructed, and limits of one request
	// that it cannot decide together. It does no I/O. A limiter calls it when it is made, without limits if requests
	// choose them, and once for each new set of limits. [OneLog] and [SlidingLogs] do this for stores with fewer
	// abilities.
	Validate(limits ...*Limit) error

	// Take decides about one request and records it as its [Mode] says. It fills in answers[i], which is zero, about
	// takes[i]; the request is admitted if all logs have room. A denial is no error. Takes that [ValidateTakes] refuses
	// are.
	//
	// The slices belong to the caller. When Take has returned, the store does not touch them. A store that goes on
	// with a call after it has returned, because its context has ended, returns a [LeftError].
	//
	// A store of several servers decides in one atomic step about the takes of one key. It may ask keys one after the
	// other, and give back what was recorded if one denies, so that a request which is denied may deny others
	// meanwhile. It never admits too many. If it returns an error, some logs may have recorded their take; Settle
	// removes it.
	//
	// Each request has an ID of its own: where a command may be sent twice over a network, the request is recorded
	// once.
	Take(ctx context.Context, takes []Take, answers []Answer) error

	// Reset deletes the logs that these limits have of a key, except the entries that are younger than young. A log
	// that does not exist is not an error. Of an algorithm that counts, a take from before is not told from those after
	// it: settled in the same period, it changes their number.
	Reset(ctx context.Context, key Key, limits []*Limit, young time.Duration) error
}

// Settler is a [Store] that can change what was recorded. Refunds and [core.Decision.Undo] need it.
//
// [core.Decision.Undo]: https://pkg.go.dev/github.com/sashlimit/sash/core#Decision.Undo
type Settler interface {
	// Settle changes the cost of a take, at the instant when it was recorded; a cost of 0 removes it. It does nothing
	// if the log does not hold the take any more, or never did. It asks no limit: the log may then hold more than the
	// quota.
	//
	// Of an algorithm that counts, it adds the difference to the period of the take, if that has not ended. A token
	// bucket has no periods: units that the take did not need go back to its level, but for those that have come back
	// already since the take, and units more leave it, until it is empty. The units of a take come back one by one from
	// the instant on when the bucket would have been full without it. Otherwise a bucket that was full meanwhile would
	// admit them twice.
	Settle(ctx context.Context, s Settlement) error
}

// Lister is a [Store] that can show a log.
type Lister interface {
	// Log returns the entries in the limit's window, oldest first, with At and Cost.
	Log(ctx context.Context, key Key, l *Limit) ([]Entry, error)
}

// Merger is a [Store] to which entries of another log can be added. Replaying what was admitted in an outage needs it.
type Merger interface {
	// Merge adds entries at their true instants, and settles those that the log holds already to their Cost: it is a
	// union by ID, so it may be done again. It asks no limit.
	Merge(ctx context.Context, m MergeRequest) error
}

// Renewer is a [Store] that can renew permits: see [Limit.Permits]. Limits of requests in flight need it, and a
// [Settler], which gives permits back.
type Renewer interface {
	// Renew moves the entries of takes to now. It adds those that the log does not hold, since their requests run. It
	// asks no limit, so the log may then hold more than the quota, and admits nobody until it holds less.
	Renew(ctx context.Context, r Renewal) error
}

// Pinger is a [Store] that can be asked whether it would answer. A limiter whose store has failed asks about once a
// second, however many calls have had no answer. On a store without it, the limiter tries a request.
type Pinger interface {
	// Ping does what a Take does that charges, and returns its error. Pings of several limiters may become one.
	Ping(ctx context.Context) error
}

// Full is a store with all optional methods, as core.MemoryStore and the stores of redisstore are.
type Full interface {
	Store
	Settler
	Lister
	Merger
	Renewer
	Overrider
}

// MostTakes is how many takes a request has at most.
const MostTakes = 64

// Take is what a request asks one log for.
type Take struct {
	Key
	Limit *Limit
	Cost  int // units, in ModeAtMost the most; at least 1. It may be above the quota, by 1 at most above MaxQuota

	// The same in all takes of a request:

	ID    uint64 // names the request among all requests of all processes; not 0
	Mode  Mode
	Share int // in ModeAtMost: it gets the Share-th part of what is left, but at least 1 unit. 0 is 1
}

// ValidateTakes returns an error for what [Store.Take] does not accept: no take or more than [MostTakes], one without a
// key or a limit, a cost below 1, two of one log, takes of one key that do not follow each other, takes that differ in
// ID, Mode or Share, or another number of answers.
func ValidateTakes(takes []Take, answers []Answer) error {
	n := len(takes)
	if n == 0 || n > MostTakes || len(answers) != n {
		return configError("store.Take", fmt.Sprintf("%d takes, %d answers", n, len(answers)),
			"the number of takes or answers is wrong", fmt.Sprintf("pass 1 to %d, and an answer for each", MostTakes))
	}
	for i := range takes {
		t, first, wrong := &takes[i], &takes[0], ""
		switch {
		case t.Namespace == nil:
			return t.Key.Validate()
		case t.Limit == nil:
			return configError("store.Take", "no limit", "a take needs a limit", "set Limit")
		case t.Cost < 1:
			wrong = "it costs less than 1 unit"
		case t.ID != first.ID || t.Mode != first.Mode || t.Share != first.Share:
			wrong = "its ID, Mode or Share is not that of the first take"
		}
		for j := range i {
			switch same := takes[j].Key.Equal(&t.Key); {
			case same && takes[j].Limit.Log == t.Limit.Log:
				wrong = "another take asks the same log"
			case same && !takes[i-1].Key.Equal(&t.Key):
				wrong = "the takes of its key do not follow each other"
			}
		}
		if wrong != "" {
			return configError("store.Take", "take "+strconv.Itoa(i), wrong, "see store.ValidateTakes")
		}
	}
	return nil
}

// OneLog is the [Store].Validate of a store that decides over one log at a time and has only the sliding log.
func OneLog(limits []*Limit) error {
	err := SlidingLogs(limits)
	if len(limits) < 2 {
		return err
	}
	return errors.Join(err, configError("limits", strconv.Itoa(len(limits)),
		"the store decides over one log at a time, and each of these limits has one",
		"make a limiter for each of them, or use another store, such as one of package redisstore"))
}

// SlidingLogs is the [Store].Validate of a store that has only the sliding log.
func SlidingLogs(limits []*Limit) error {
	var faults []error
	for _, l := range limits {
		if l.Algorithm != SlidingLog {
			faults = append(faults, configError("With", l.Algorithm.String(), "the store does not have this algorithm",
				"use a sliding log, or another store"))
		}
	}
	return errors.Join(faults...)
}

// Mode is what a request records.
type Mode uint8

const (
	// ModeCharge records what is admitted. A denial leaves no trace.
	ModeCharge Mode = iota
	// ModePeek records nothing. Each log answers as if it had been asked alone.
	ModePeek
	// ModeRecord admits and records whatever the limits say. The oldest whole entries then leave a log, while what is
	// left is at least [MaxRecorded] units, or the quota if that is more.
	ModeRecord
	// ModeChargeDenied is ModeCharge, but the logs without room record a denial as well, unless its cost never fits.
	// The oldest whole entries then leave these logs, while what is left is at least the quota.
	ModeChargeDenied
	// ModeAtMost records in each log as many units as the log with the least room has room for, or the part of them
	// that Share says, and at most Cost: [Answer.Granted]. If a log has no room for one unit, the request is a denial
	// of one unit, which leaves no trace.
	ModeAtMost
)

var modes = [...]string{"charge", "peek", "record", "charge denied", "at most"}

// String is the mode in words fit for a metric, such as "charge".
func (m Mode) String() string { return word(modes[:], int(m)) }

func word(of []string, n int) string {
	if n < len(of) {
		return of[n]
	}
	return "unknown"
}

// MaxRecorded is how many units of one log [ModeRecord] keeps, at least.
const MaxRecorded = 100_000

// Answer is the answer of a log to a [Take].
//
// If one of the logs has no room, the others answer as if they had been asked in [ModePeek].
type Answer struct {
	Known   bool          // false: the request was denied before this log was asked, and nothing below is known
	Allowed bool          // the log has room for the take; always in ModeRecord, unless it is of permits
	Used    int           // units in the window before this request
	Granted int           // ModeAtMost: units recorded, the same of all logs, of permits too; 0 if one has denied
	Reset   time.Duration // until the oldest unit leaves the window, as the log is after this request; 0 if it is empty
	Retry   time.Duration // until the log has room for the same take; 0 if it has, or never will
	Period  int64         // of an algorithm that counts, for a [Settlement]: opaque
}

// Settlement is the final cost of a take.
type Settlement struct {
	Key
	Limit  *Limit
	ID     uint64        // of the Take
	Was    int           // units that it has now, as far as the caller knows
	Cost   int           // units from now on, at least 0
	Age    time.Duration // how long ago the take was sent; at most a second less than the truth
	Period int64         // of the Answer
}

// Renewal names takes whose permits are still in use.
type Renewal struct {
	Key
	Limit *Limit
	IDs   []uint64 // of the Takes, in any order
}

// MergeRequest is what to add to a log. The limit's algorithm is [SlidingLog].
type MergeRequest struct {
	Key
	Limit   *Limit
	Entries []Entry // each with ID, Age, Cost and Sent, in any order; those older than the window may be left out
}

// Entry is a recorded take, without the identity.
type Entry struct {
	At   time.Time // on the store's clock; not in a MergeRequest
	Cost int       // units

	// In a MergeRequest alone:

	ID   uint64        // of the Take
	Age  time.Duration // how long ago it was recorded, since clocks of two stores differ
	Sent int           // the cost with which a take of this ID may have been recorded before; 0 is Cost
}
