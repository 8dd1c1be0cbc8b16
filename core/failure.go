package core

import (
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/internal/guard"
)

// Failure is how requests are decided while a store outside the process does not answer.
type Failure int

const (
	// FailLocal enforces the same limits in this process, separately in each process. It counts what this process has
	// admitted without the store, in this outage and in earlier ones, and remembers which requests the store has
	// denied, or admitted with nothing left ([WithDenyCache]). So a window holds at most one quota admitted by the
	// store and one more for each process, however often the store fails. When the store answers again, what was
	// admitted without it is added to its logs at the true instants, and the store decides again. FailLocal is the
	// default; see [WithFailLocalKeys] and [Limiter.Close].
	//
	// If your own store does not implement store.Merger and store.Settler, nothing is added to it afterwards: it may
	// then admit a quota that this process has admitted in the outage. Asking for FailLocal with such a store is an
	// error.
	FailLocal = Failure(guard.Local)
	// FailOpen admits every request, and counts none.
	FailOpen = Failure(guard.Open)
	// FailClosed refuses every request: 503 with Retry-After.
	FailClosed = Failure(guard.Closed)
)

func (f Failure) String() string {
	if f < FailLocal || f > FailClosed {
		return "Failure(" + strconv.Itoa(int(f)) + ")"
	}
	return [...]string{"FailLocal", "FailOpen", "FailClosed"}[f]
}

// WithFailure chooses how requests are decided while the store does not answer within [WithTimeout]. The default is
// [FailLocal]. Such a decision has Degraded set, and the observer gets the error; with FailClosed there is no decision.
//
// After five failures in a row, requests are decided at once, until the store answers a ping, which goes to it about
// once a second. A [MemoryStore] always answers.
func WithFailure(f Failure) Option {
	g := given{name: "WithFailure", inRules: "failure in the file"}
	return g.optionIf(FailLocal <= f && f <= FailClosed, strconv.Itoa(int(f)), "there is no such value",
		"choose FailLocal, FailOpen or FailClosed", func(c *config) {
			c.Guard.Failure, c.Guard.Label = guard.Failure(f), f.String()
			c.failLocal = f == FailLocal
		})
}

// WithTimeout limits how long a decision may take in all calls of a store outside the process, whatever the timeouts of
// the store's client: 1ms to 1m. The default is 100ms. After that, [WithFailure] decides. A new connection takes
// several round trips: for a distant store, allow at least four, which redisstore.Check measures. A request that is
// cancelled meanwhile is decided all the same, so that clients cannot avoid being counted by disconnecting.
//
// An answer that has arrived is used, even if a process without CPU time reads it late. Calls that the limiter makes on
// its own, to ask whether the store answers again and to replay what was admitted without it, may take several times as
// long.
func WithTimeout(d time.Duration) Option {
	return optionWithin("WithTimeout", d, time.Millisecond, time.Minute, "the time is out of range", "choose 1ms to 1m",
		func(c *config) { c.Guard.Timeout = d })
}

// WithDenyCache sets the longest time for which a denial is answered from memory while the store is available, so that
// the requests of a denied client do not reach the store: 0, which is never, to 1m. The default is 1s.
//
// A denial stays true until its wait is over, because a log loses entries only by time; so the cache denies no request
// that the store would admit. What another process undoes or resets is seen with that delay. Only requests of the same
// cost are answered, because another cost has another wait. Of a request over limits of several keys or units, one that
// is known to be denied is enough: then RetryAfter is the wait for those that are known, and the others may deny for
// longer. The wait counts from when the store's answer arrived, so a client that sleeps exactly that long is not too
// early, however distant the store is.
//
// While the store does not answer, [FailLocal] uses a denial until its wait ends, and an admission that has used up a
// quota until its oldest unit leaves. It remembers as many as [WithFailLocalKeys] allows. Turn the cache off in tests
// whose store has its own clock.
func WithDenyCache(d time.Duration) Option {
	return optionWithin("WithDenyCache", d, 0, time.Minute, "the time is out of range",
		"choose 0, which turns the cache off, to 1m", func(c *config) { c.Guard.DenyCache = d })
}

// WithFailLocalKeys sets for how many keys [FailLocal] keeps a log of their own while the store does not answer: 1 to
// 100,000,000. The default is 524,288. A key takes about 700 bytes until what was admitted has left its window, and 24
// to 50 bytes for each further admission; a key of which only a denial is known takes 200 bytes.
//
// Further keys share logs, as in a [MemoryStore]: none of them gets more than its quota, but they may be denied early.
// What they are admitted is replayed as well, for as many keys again; what the store had recorded without an answer
// then counts twice. Beyond that, requests are still decided, but what is admitted is not replayed; a log line at the
// end of the outage says how many units that were.
func WithFailLocalKeys(n int) Option {
	return optionWithin("WithFailLocalKeys", n, 1, 100_000_000, "the number of keys is out of range",
		"choose 1 to 100,000,000", func(c *config) { c.Guard.LocalKeys = n })
}

// WithLease takes units ahead where a key has many requests: this process then decides by itself, in some hundred
// nanoseconds, until the lease ends after d, or until its units are used up. Processes that share a log still never
// exceed a quota together. d is 5ms to 1s; 20ms is good. It should be at least four round trips to the store, and at
// most a fiftieth of the shortest window.
//
// The price is that every unit comes back d later than it would, because the windows of the store are longer by d.
// Units that were taken ahead and are not used are missing to other processes until d has passed, and to everybody for
// a window and d if the process was killed. Retry-After and the reset count them as used. A denial is remembered for at
// most d ([WithDenyCache]), and [Limiter.Reset] leaves what is younger than d.
//
// All processes that share logs need the same d: with another one they have other logs, and so a quota of their own.
//
// The process ends a lease by its monotonic clock and by its wall clock, whichever comes first. If all clocks of a
// process stop, as of a virtual machine that is paused, it may use what is left of its leases when it goes on.
//
// Only keys that have had six or more requests in d of late get leases, of a quarter of what remains at most. So with a
// thousand keys that are all asked evenly, no key may have enough requests for a lease of 20ms.
//
// Leases serve requests of one unit of the limits of one key, all of them sliding logs. Other requests of the key end
// its lease, as [Limiter.Record] and [Limiter.Reset] do. With [WithBan] each request still asks whether there is a ban.
// The store must be able to settle (store.Settler). A [MemoryStore] needs no leases, and has none.
func WithLease(d time.Duration) Option {
	return optionWithin("WithLease", d, 5*time.Millisecond, longestLease, "the time is out of range",
		"choose 5ms to 1s; 20ms is good", func(c *config) { c.Guard.Lease = d.Truncate(time.Microsecond) })
}

const longestLease = time.Second
