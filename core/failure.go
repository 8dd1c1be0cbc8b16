package core

import (
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/internal/guard"
)

// Failure is what decides while a store outside the process does not answer.
type Failure int

const (
	// FailLocal enforces the same limits in this process, each process by itself. It goes by what the process
	// knows: what it has admitted without the store, in this outage and in those before, and which requests the
	// store has denied or left nothing for ([WithDenyCache]). So a window holds at most a quota that the store has
	// admitted and one more for each process, however often the store comes and goes. What was admitted without
	// the store is added to its logs at the true instants when it is back, and from then on the store decides
	// again. It is the default; see [WithFailLocalKeys] and [Limiter.Close].
	//
	// To a store of your own that is no store.Merger and store.Settler nothing is added afterwards: it may then admit
	// a quota again that this process has admitted in the outage. Asking for FailLocal on such a store is an error.
	FailLocal Failure = iota
	// FailOpen admits every request, and counts none.
	FailOpen
	// FailClosed refuses every request: 503 with Retry-After.
	FailClosed
)

func (f Failure) String() string {
	switch f {
	case FailLocal:
		return "FailLocal"
	case FailOpen:
		return "FailOpen"
	case FailClosed:
		return "FailClosed"
	}
	return "Failure(" + strconv.Itoa(int(f)) + ")"
}

// WithFailure chooses what decides while the store does not answer within [WithTimeout]. The default is
// [FailLocal]. Such a decision is Degraded, but for FailClosed, where there is none, and the observer hears why.
//
// After five failures in a row the store is asked about once a second only, so that requests are decided at once. A
// [MemoryStore] always answers.
func WithFailure(f Failure) Option {
	return func(c *config) {
		c.once("WithFailure")
		if f < FailLocal || f > FailClosed {
			c.fault("WithFailure", strconv.Itoa(int(f)), "choose FailLocal, FailOpen or FailClosed")
			return
		}
		c.failure, c.failLocal = f, f == FailLocal
	}
}

// WithTimeout is how long a decision may take in all that has to be asked of a store outside the process, whatever
// its client is set to: 1ms to 1m. The default is 100ms. After that [WithFailure] decides. A new connection takes
// several round trips: give a store that is far away four of them at least, which redisstore.Check measures. A request
// that is cancelled meanwhile is decided all the same, so that nobody goes uncounted by hanging up.
//
// What the limiter asks on its own, to see whether the store is back and to tell it what was admitted without it,
// may take several times as long.
func WithTimeout(d time.Duration) Option {
	return func(c *config) {
		c.once("WithTimeout")
		if d < time.Millisecond || d > time.Minute {
			c.fault("WithTimeout", d.String(), "a decision may take 1ms to 1m")
			return
		}
		c.timeout = d
	}
}

// WithDenyCache is how long at most a denial is answered from memory while the store is there, so that a client who
// is denied and keeps trying does not reach it: 0, which is never, to 1m. The default is 1s. After that one try asks
// the store, and the others that come meanwhile are denied for up to a sixteenth longer.
//
// Until the wait of a denial is over it stays true, because a log loses entries only by time; so this denies nobody
// whom the store would admit. What another process undoes or resets is seen that much later. Only a request of the same
// cost is answered, because another cost has another wait. The wait counts from when the store's answer arrived, so
// who sleeps exactly that long is not too early, however far away the store is.
//
// While the store does not answer, [FailLocal] goes by a denial for its whole wait, and by an admission that has used up
// a quota until its oldest unit leaves. It knows as many as [WithFailLocalKeys] says. In tests whose store has a clock
// of its own, turn it off.
func WithDenyCache(d time.Duration) Option {
	return func(c *config) {
		c.once("WithDenyCache")
		if d < 0 || d > time.Minute {
			c.fault("WithDenyCache", d.String(), "a denial is remembered for 0 (never) to 1m")
			return
		}
		c.denyCache = d
	}
}

const defaultFailLocalKeys = 524_288

// WithFailLocalKeys is how many keys [FailLocal] keeps apart while the store does not answer: 1 to 100,000,000. The
// default is 524,288. A key takes about 550 bytes until what was admitted has left its window, and 24 to 50
// bytes for each further admission; one of which only a denial is known takes 200.
//
// Further keys share logs, as in a [MemoryStore]: none of them gets more than its quota, but they may be denied early.
// What they are admitted is replayed as well, for as many keys again. Beyond that, requests are still decided, but what is
// admitted is not replayed; the log tells how many units that were when the outage is over.
func WithFailLocalKeys(n int) Option {
	return func(c *config) {
		c.once("WithFailLocalKeys")
		if n < 1 || n > 100_000_000 {
			c.fault("WithFailLocalKeys", strconv.Itoa(n), "an outage may have 1 to 100,000,000 keys")
			return
		}
		c.failLocalKeys = n
	}
}

const defaultTimeout = 100 * time.Millisecond

func newGuard(c *config) *guard.Guard {
	failures := map[Failure]guard.Failure{FailLocal: guard.Local, FailOpen: guard.Open, FailClosed: guard.Closed}
	return guard.New(guard.Config{
		Store: c.store, Policy: c.name, Failure: failures[c.failure], Label: c.failure.String(),
		Timeout: c.timeout, DenyCache: c.denyCache, LocalKeys: c.failLocalKeys,
	})
}

// Close replays what [FailLocal] has admitted and the store does not know yet, for 5 s at most, and ends what the limiter
// does on its own: a goroutine that waits for the store to come back. Where nothing is left to replay, it returns at
// once, and where the store still does not answer, as soon as it is seen that it does not. The error then says how many
// units the store was not told of; later calls return the same. The store stays open: it is yours. A closed limiter goes
// on deciding.
func (l *Limiter) Close() error {
	if l.guard == nil {
		return nil
	}
	return l.guard.Close()
}
