// Package guard stands between a limiter and a store outside the process, which may not answer. Its parts:
//
//   - breaker: a store that has failed several times in a row is called about once a second only;
//   - deny cache: denials are answered from memory, so that a client which keeps retrying does not reach the store;
//   - local log: during outages this process enforces the same limits, and its log is the record of what it admits;
//   - replay: the store's logs get what they lack after an outage;
//   - leases: busy keys get several units at once;
//   - permits of requests in flight are renewed.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/denycache"
	"github.com/sashlimit/sash/core/internal/permits"
	"github.com/sashlimit/sash/core/internal/within"
	"github.com/sashlimit/sash/core/store"
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
	Freed      func(*store.Key)                       // is called when a unit is given back later
}

// Guard calls a store that may not answer. [New] makes one. It is safe for concurrent use.
type Guard struct {
	Permits *permits.Set // held by requests in flight

	config  Config
	store   remote
	breaker breaker
	denials *denycache.Cache
	record  *record
	leases  *leases // or nil
	log     outageLog

	lastError  atomic.Pointer[store.StoreError] // is returned for calls that are not made
	lastFailed atomic.Pointer[store.Take]       // a peek that may be a ping
	pings      atomic.Int32                     // under way

	// How many requests the store has not answered since all logs were replayed, of those that had not waited for that.
	unanswered atomic.Uint64

	replaying  atomic.Bool // a goroutine replays all backlogs
	wake       chan struct{}
	background context.Context //nolint:containedctx // of what goes on until Close has ended
	cancel     context.CancelFunc
	closing    atomic.Bool
	closed     func() error
}

// New makes a guard. It does no I/O and starts no goroutine.
func New(c Config) *Guard {
	g := &Guard{config: c, store: newRemote(&c), wake: make(chan struct{}, 1)}
	if c.Lease > 0 {
		g.leases = &leases{start: time.Now(), length: c.Lease}
		c.DenyCache = min(c.DenyCache, c.Lease) // as units come back when leases of other processes are settled
	}
	inOutages := 0
	if c.Failure == Local {
		inOutages = c.LocalKeys
	}
	g.denials = denycache.New(c.DenyCache, inOutages)
	g.record = newRecord(c.LocalKeys, g.startReplays)
	g.log = outageLog{policy: c.Policy, failure: c.Label}
	g.Permits = permits.New(permitLogs{g}, c.Freed)
	g.background, g.cancel = context.WithCancel(context.Background())
	g.closed = sync.OnceValue(g.close)
	g.lastError.Store(&store.StoreError{Err: errors.New("it has not answered")})
	return g
}

// Within returns a context for several calls about one decision, which end within one timeout together. It does not end
// with ctx, since a take whose caller has left is counted nevertheless.
func (g *Guard) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return g.within(ctx)
}

func (g *Guard) within(ctx context.Context) (c *within.Context, end context.CancelFunc) {
	if c, ok := ctx.(*within.Context); ok {
		return c, func() {}
	}
	c = within.New(ctx, g.config.Timeout)
	return c, c.Cancel
}

// Open reports whether the failure policy admits requests that are counted nowhere.
func (g *Guard) Open() bool { return g.config.Failure == Open }

// Answers reports whether the store is asked.
func (g *Guard) Answers() bool { return !g.isOpen() }

// Stats is a snapshot of a guard. The counters are of the time since it was made.
type Stats struct {
	Breaker  string // "closed" or "open"
	Outages  uint64 // how often the breaker has opened
	Failures uint64 // calls that the store has not answered
	Denials  int    // in the deny cache
	Leases   int    // in hand
	Booked   int    // units that these have left
	Backlog  int64  // takes that were decided here, or are to be settled, and of which the store does not know
	Replayed uint64 // takes
	Lost     uint64 // units that cannot be replayed
}

// Stats returns a snapshot.
func (g *Guard) Stats() Stats {
	s := Stats{
		Breaker:  "closed",
		Outages:  g.breaker.outages.Load(),
		Failures: g.breaker.failures.Load(),
		Denials:  g.denials.Len(),
		Backlog:  g.record.takes.Load(),
		Replayed: g.record.replayed.Load(),
		Lost:     g.record.lost.Load(),
	}
	if g.isOpen() {
		s.Breaker = "open"
	}
	s.Leases, s.Booked = g.leases.inHand()
	return s
}

const (
	closeTimeout  = 5 * time.Second
	closeAttempts = 2 // to replay, since the first call may be on a dead connection
)

var errLost = errors.New("there were more keys than WithFailLocalKeys has room for")

// Close settles the leases, replays what is left, for 5 seconds at most, and ends the guard's goroutines. The error
// says how many units were not replayed; later calls return the same error. A closed guard still decides, but replays
// nothing.
func (g *Guard) Close() error { return g.closed() }

func (g *Guard) close() error {
	defer g.cancel()
	g.closing.Store(true)
	g.Permits.Close()
	ctx, cancel := context.WithTimeout(g.background, closeTimeout)
	defer cancel()
	for _, h := range g.leases.all() {
		g.endLeases(ctx, h)
	}
	var err error
	for n := 0; n < closeAttempts && g.record.takes.Load() > 0 && ctx.Err() == nil; n++ {
		err = g.replayAll(ctx)
	}
	units, takes := g.record.close()
	if lost := g.record.lost.Load(); lost > 0 {
		units += int(lost)
		err = cmp.Or(err, errLost)
	}
	if units+takes == 0 || g.config.Failure != Local {
		return nil
	}
	unit := "units"
	if units == 1 {
		unit = "unit"
	}
	return fmt.Errorf("sash: Close: %d %s admitted without the store, in %d takes or corrections, not replayed: %w",
		units, unit, takes, cmp.Or(err, error(g.lastError.Load())))
}
