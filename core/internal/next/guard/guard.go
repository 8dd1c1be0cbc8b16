// Package guard stands between a limiter and a store outside the process, which may not answer. Its parts:
//
//   - breaker: a store that has failed several times in a row is called about once a second only;
//   - deny cache: denials are answered from memory, so that a client which keeps retrying does not reach the store;
//   - local log: during outages the same limits are enforced in this process, whose log is the record of what it admits;
//   - replay: the store's logs get what they lack after an outage;
//   - leases: busy keys get several units at once;
//   - permits of requests in flight are renewed.
package guard

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/next/permits"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// Failure says how requests are decided while the store does not answer.
type Failure int

const (
	// Local enforces the limits in this process, and replays what it has admitted.
	Local Failure = iota
	// Open admits everything and counts nothing.
	Open
	// Closed refuses everything.
	Closed
)

// Config configures a [Guard].
type Config struct {
	Store     store.Store // Local needs a store.Settler and a store.Merger
	Policy    string      // for the log
	Failure   Failure
	Label     string        // the name of Failure, for the log
	Timeout   time.Duration // of a decision
	DenyCache time.Duration // how long a denial is answered from memory at most; 0 disables the cache
	LocalKeys int           // keys that Local counts separately
	Lease     time.Duration // of units that are taken ahead, which the windows of all limits have in addition; 0: none

	StoreCalls func(context.Context, event.StoreCall) // is called after each call to the store, unless it is nil
	Freed      func(*store.Key)                       // is called when a unit is given back later, unless it is nil
}

// Guard calls a store that may not answer. [New] makes one. It is safe for concurrent use.
type Guard struct {
	Permits *permits.Set // held by requests in flight

	config Config
}

// New makes a guard. It does no I/O and starts no goroutine.
func New(c Config) *Guard { return &Guard{config: c} }

// Within returns a context for several calls about one decision, which end within one timeout together. It does not end
// with ctx, since a take whose caller has left is counted nevertheless.
func (g *Guard) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), g.config.Timeout)
}

// Take decides a request, as [store.Store] describes it, by the deny cache, by the store, or, if that does not answer,
// by the failure policy: then it returns event.Local and the store's error. If it returns another source and an error,
// there is no decision. Answers are zero before.
//
// It sets the ID of the takes. An answer of event.Cache or of Open has no numbers where it is not Known.
func (g *Guard) Take(ctx context.Context, takes []store.Take, answers []store.Answer) (event.Source, error) {
	return event.Store, g.config.Store.Take(ctx, takes, answers)
}

// TakeLeased is [Guard.Take] of a guard with leases. If units that were taken ahead have served the request, the source
// is event.Lease, and SettleLeased changes its cost. The limits of takes of more than one key are asked one by one.
func (g *Guard) TakeLeased(
	ctx context.Context, takes []store.Take, answers []store.Answer,
) (u Use, from event.Source, err error) {
	from, err = g.Take(ctx, takes, answers)
	return u, from, err
}

// Use is one unit that was spent of a lease. The zero Use is none.
type Use struct {
	of *lease
	at time.Duration // by the monotonic clock
}

type lease struct{}

// IsLeased reports whether there is a use. If so, [Guard.SettleLeased] settles it in all its logs, and otherwise
// [Guard.Settle] in each.
func (u Use) IsLeased() bool { return u.of != nil }

// SettleLeased changes the cost of a use of a lease in all its logs. The ID is that of its takes.
func (g *Guard) SettleLeased(ctx context.Context, u Use, id uint64, cost int) error { return nil }

// Settle changes the cost of a take. Degraded reports whether [Guard.Take] has returned event.Local for it.
func (g *Guard) Settle(ctx context.Context, s store.Settlement, degraded bool) error { return nil }

// GiveBack is Settle to 0, which is done later if the store does not answer.
func (g *Guard) GiveBack(ctx context.Context, s store.Settlement, degraded bool) error { return nil }

// Add records a take that its log was not asked for, as if it had been recorded age ago, or changes its cost. During an
// outage it is recorded here.
func (g *Guard) Add(ctx context.Context, t *store.Take, age time.Duration) error { return nil }

// Reset forgets the logs that limits have of a key. With leases it leaves those of other processes.
func (g *Guard) Reset(ctx context.Context, key store.Key, limits []*store.Limit) error { return nil }

// Log returns the entries of a log, as [store.Lister] does.
func (g *Guard) Log(ctx context.Context, key store.Key, l *store.Limit) ([]store.Entry, error) { return nil, nil }

// Open reports whether the failure policy admits requests that are counted nowhere.
func (g *Guard) Open() bool { return g.config.Failure == Open }

// Answers reports whether the store is asked.
func (g *Guard) Answers() bool { return true }

// Overrides returns the overrides of a policy, as [store.Overrider] does. Its errors are no failures of the store.
func (g *Guard) Overrides(
	ctx context.Context, policy, known string,
) (version string, all []store.Override, err error) {
	return "", nil, nil
}

// SetOverride keeps an override of a policy, as [store.Overrider] does.
func (g *Guard) SetOverride(ctx context.Context, policy string, o store.Override) error { return nil }

// Stats is a snapshot of a guard. The counters are of the time since it was made.
type Stats struct {
	Breaker  string // "closed" or "open"
	Outages  uint64 // how often the breaker has opened
	Failures uint64 // calls that the store has not answered
	Denials  int    // in the deny cache
	Leases   int    // in hand
	Booked   int    // units that these have left
	Backlog  int64  // keys whose logs in the store lack something
	Replayed uint64 // entries
	Lost     uint64 // units that cannot be replayed
}

// Stats returns a snapshot.
func (g *Guard) Stats() Stats { return Stats{} }

// Close settles the leases, replays what is left, for 5 seconds at most, and ends the guard's goroutines. The error
// says how many units were not replayed; later calls return the same error. A closed guard still decides, but replays
// nothing.
func (g *Guard) Close() error { return nil }
