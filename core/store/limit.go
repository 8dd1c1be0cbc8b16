package store

import (
	"strconv"
	"time"
)

// MaxQuota is the largest quota, and the largest cost of a request, in units.
const MaxQuota = min(1_000_000_000, 1<<(strconv.IntSize-1)-2)

// Limit is a quota of units in any window of one log. At instant t the window is (t-Window, t]: an entry exactly one
// Window old has left it. This holds for a [SlidingLog]; see [Algorithm] for the others.
//
// A Limit is not changed after it was used, so a store may keep what it derives from one by its address.
type Limit struct {
	// Log is which log of a key the limit is on, such as "1m0s" or "24h0m0s.tokens": of [a-z0-9._-], at most 64 bytes.
	// Limits on one log have the same Window, Algorithm and unit, and may have different quotas.
	Log string

	Quota     int           // units, 1 to MaxQuota; of a TokenBucket those that a full one has
	Window    time.Duration // in whole microseconds; of calendar periods, the longest that there is
	Algorithm Algorithm
	Refill    int       // units that a TokenBucket gains in each Window, evenly; 0 for other algorithms
	Calendar  *Calendar // periods of a FixedWindow, or nil: then period n begins n Windows after the Unix epoch

	// Permits makes the log one of requests in flight: each take counts one unit, whatever its Cost is, and its entry
	// leaves when it is settled to 0, or when it was not renewed for a Window (see [Renewer]). ModeRecord, which asks
	// no limit, is ModePeek, and denials are never recorded: ModeChargeDenied is ModeCharge.
	Permits bool

	// Leased says that limiters take units of the log ahead: many at once in ModeAtMost, whatever their requests cost.
	Leased bool

	// Unlimited says that there is always room. The log is trimmed as in ModeRecord.
	Unlimited bool
}

// Algorithm is how the units of a limit are counted. All but SlidingLog keep a few numbers for a key: they have no
// entries to list or merge, no ModeRecord, and record no denials, so ModeChargeDenied is ModeCharge. In the answer to a
// take of theirs, Used is the units that are not available: a take of n units has room if Used+n is at most the Quota.
// Retry is how long it takes until that is so, and Reset how long, after this take, until Used is one less.
type Algorithm uint8

const (
	// SlidingLog counts exactly, in any window. It is the default.
	SlidingLog Algorithm = iota
	// FixedWindow counts in periods that follow each other. Used is the units of the present one, and all of them are
	// available again when it ends.
	FixedWindow
	// SlidingCounter estimates the units of the window from those of the present period of one Window, and the one
	// before: Used is the former plus the latter times the part of that period which the window still covers, rounded
	// up. Periods are those of a FixedWindow.
	SlidingCounter
	// TokenBucket has units that come back one by one, one in each [Limit.Interval]. It is computed as the generic cell
	// rate algorithm (ITU-T I.371): all that is kept is the instant when the bucket is full again.
	TokenBucket
)

var algorithms = [...]string{"sliding log", "fixed window", "sliding counter", "token bucket"}

// String is the algorithm in words, such as "fixed window".
func (a Algorithm) String() string { return word(algorithms[:], int(a)) }

// Algorithms returns all algorithms. [SlidingLog] is the first.
func Algorithms() []Algorithm {
	return []Algorithm{SlidingLog, FixedWindow, SlidingCounter, TokenBucket}
}

// Calendar has the beginnings of four periods that follow each other, in Unix microseconds, at whole seconds. The
// second is the present one by the limiter's clock. A store finds it by its own clock, which may differ by a period: so
// it is among the first three. If that clock is even before or after these, the store takes the nearest.
type Calendar [4]int64

// Interval returns in how many nanoseconds a TokenBucket gains a unit, rounded up. If the bucket takes more than 104
// days to fill, they are whole microseconds, so that its level is a number below 2^53 in either.
func (l *Limit) Interval() int64 {
	n := (int64(l.Window) + int64(l.Refill) - 1) / int64(l.Refill)
	if int64(l.Quota) > (1<<53)/n {
		n = (n + 999) / 1000 * 1000
	}
	return n
}

// String is the limit as core.ParseLimit reads it, such as "100/1m0s".
func (l *Limit) String() string {
	if l.Algorithm == TokenBucket {
		return strconv.Itoa(l.Refill) + "/" + l.Window.String() + " burst " + strconv.Itoa(l.Quota)
	}
	return strconv.Itoa(l.Quota) + "/" + l.Window.String()
}

// Counted returns how many units a take of that Cost counts, and in which mode it is recorded. These are its Cost and
// Mode, unless the limit is of permits or counts denials without entries.
func (l *Limit) Counted(cost int, mode Mode) (units int, as Mode) {
	if mode == ModeChargeDenied && (l.Permits || l.Algorithm != SlidingLog) {
		mode = ModeCharge
	}
	if !l.Permits {
		return cost, mode
	}
	if mode == ModeRecord {
		mode = ModePeek
	}
	return 1, mode
}

// NeverFits reports whether a cost is above the quota, so that no wait will ever let it pass.
func (l *Limit) NeverFits(cost int) bool { return cost > l.Quota && !l.Permits && !l.Unlimited }

// HasRoom reports whether a log that holds used units has room for more.
func (l *Limit) HasRoom(used, more int) bool { return l.Unlimited || used+more <= l.Quota }

// Keeps returns how many units ModeRecord, or ModeChargeDenied after a denial, leaves in the log at least.
func (l *Limit) Keeps(mode Mode) int {
	if mode == ModeChargeDenied && !l.Unlimited {
		return l.Quota
	}
	return max(l.Quota, MaxRecorded)
}

// Grant returns how many units a take in ModeAtMost gets, if the log with the least room has room for so many units:
// 0 to Cost. A limit that is Unlimited is not asked: if all are, the take gets its Cost, whatever its Share.
func (t *Take) Grant(room int) int {
	if room < 1 {
		return 0
	}
	return min(t.Cost, max(room/max(t.Share, 1), 1))
}
