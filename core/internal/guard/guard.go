// Package guard stands between a limiter and a store outside the process, which may not answer. Its parts:
//
//   - deadline: all calls to the store for one decision end after a timeout;
//   - breaker: a store that has failed several times in a row is called about once a second only;
//   - deny cache: denials are answered from memory, so that a client which keeps retrying does not reach the store;
//   - record: during outages the same limits are enforced in this process, which notes what it admits;
//   - replay: the store's logs get what they lack after an outage. A probe finds out when.
package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/internal/denycache"
	"github.com/sashlimit/sash/core/internal/slots"
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
	Store     store.Store // Local replays to it only if it is a store.Settler and a store.Merger as well
	Policy    string      // for the log
	Failure   Failure
	Label     string        // the name of Failure, for the log
	Timeout   time.Duration // of a decision
	DenyCache time.Duration // how long a denial is answered from memory at most; 0 disables the cache
	LocalKeys int           // keys that Local counts separately
	Lease     time.Duration // of units that are booked ahead; 0: none are. The store is a store.Leaser otherwise
	Beside    *Guard        // with another Failure, for takes of the same logs, or nil: they share denials and slots

	StoreCalls func(context.Context, event.StoreCall) // is called after each call to the store, unless it is nil
}

// backgroundTimeouts is the duration of background calls, in timeouts: a new connection takes several round trips.
const backgroundTimeouts = 8

// Guard calls a store that may not answer.
type Guard struct {
	*deadline.Deadlines                     // of each decision
	patient             *deadline.Deadlines // of calls for which no request waits

	store    remote
	timeout  time.Duration
	patience time.Duration // the time of calls for which no request waits
	failure  Failure
	start    time.Time
	breaker  breaker
	denials  *denycache.Cache
	Slots    *slots.Set // held by requests in flight
	record   *record
	leases   *leases // or nil
	log      outageLog

	lastError atomic.Pointer[store.StoreError] // is returned for calls that the breaker does not admit

	reconnected atomic.Int64  // when connections were last made, in nanoseconds since start
	replaying   atomic.Bool   // a goroutine replays all backlogs
	lostLogged  uint64        // units, by that goroutine
	replays     chan struct{} // those that run
	background  context.Context
	cancel      context.CancelFunc // of background
	closed      chan struct{}
	finishing   atomic.Bool  // Close replays what is left
	finished    func() error // calls finish once
}

// New makes a guard. It does no I/O and starts no goroutine.
func New(c Config) *Guard {
	g := &Guard{store: newRemote(&c), timeout: c.Timeout, failure: c.Failure, start: time.Now()}
	g.patience = max(backgroundTimeouts*c.Timeout, retryStore)
	g.log = outageLog{policy: c.Policy, failure: c.Label}
	g.Deadlines, g.patient = deadline.New(c.Timeout, g.log.stalled), deadline.New(g.patience, nil)
	g.finished = sync.OnceValue(g.finish)
	g.closed, g.replays = make(chan struct{}), make(chan struct{}, maxRuns)
	g.background, g.cancel = context.WithCancel(context.Background())
	if c.Lease > 0 { // a denial is wrong when a booking that counts is settled
		g.leases, c.DenyCache = &leases{length: c.Lease}, min(c.DenyCache, c.Lease)
	}
	g.record = newRecord(c.LocalKeys, &g.store)
	g.record.added = g.startReplays
	if other := c.Beside; other != nil {
		g.start, g.denials, g.Slots = other.start, other.denials, other.Slots
	} else {
		g.denials = denycache.New(c.DenyCache, g.start, g.failure == Local, c.LocalKeys)
		g.Slots = slots.New(slotLogs{g})
	}
	g.breaker.start, g.breaker.onSuccess = g.start, g.log.succeeded
	g.breaker.onChange = func(open bool) {
		if open {
			g.log.outages.Add(1)
		} else {
			g.Slots.Hasten() // the store may have lost slots
		}
	}
	g.lastError.Store(&store.StoreError{Err: errors.New("it has not answered")})
	return g
}

// isClosed reports whether the guard was closed, so that it does nothing in the background any more.
func (g *Guard) isClosed() bool { return g.background.Err() != nil }

// Open reports whether the failure policy admits requests that are counted nowhere.
func (g *Guard) Open() bool { return g.failure == Open }

// Settle changes the cost of a take. Degraded is what Take has returned for it.
func (g *Guard) Settle(ctx context.Context, s store.Settlement, degraded bool) error {
	defer g.denials.Invalidate(&s.Key) // again, as an answer that was on its way may have been cached meanwhile
	g.denials.Invalidate(&s.Key)
	if degraded && (g.record.settle(&s) || !g.record.merges) {
		return nil // a replay will change the store's entry, or there will be none
	}
	if g.store.settler == nil {
		return &store.ConfigError{
			Option: "Settle", Value: fmt.Sprintf("%T", g.store.Store),
			Problem: "this store cannot change what was recorded: it has no method Settle (store.Settler)",
			Remedy:  "add it; a wrapper embeds store.Full",
		}
	}
	return g.call(ctx, &s.Key, event.Settle, g.store.settling(s))
}

// Withdraw has a replay remove a take from the store, which has not answered a settlement of it.
func (g *Guard) Withdraw(t *store.Take) { g.record.remove(t) }

// SettleLate changes the cost of a take that was not asked about, as if it had been recorded age ago. In an outage it
// is recorded now.
func (g *Guard) SettleLate(ctx context.Context, t *store.Take, age time.Duration) error {
	defer g.denials.Invalidate(&t.Key)
	g.denials.Invalidate(&t.Key)
	if g.store.merger == nil || g.store.settler == nil {
		return &store.ConfigError{
			Option: "SettleCosts", Value: fmt.Sprintf("%T", g.store.Store),
			Problem: "the store cannot add units later: it lacks Merge or Settle (store.Merger, store.Settler)",
			Remedy:  "add them; a wrapper embeds store.Full",
		}
	}
	s := store.Settlement{Key: t.Key, ID: t.ID, Cost: t.Cost}
	if g.record.settle(&s) {
		return nil // a replay will change the store's entry
	}
	m := store.MergeRequest{Key: t.Key, Keep: t.Plan.Keep, Varies: t.Plan.Varies}
	m.Entries = []store.Entry{{ID: t.ID, Cost: t.Cost, Age: age}}
	ctx = g.Within(ctx, time.Now())
	err := g.call(ctx, &t.Key, event.Merge, func(ctx context.Context) error {
		return g.store.merger.Merge(ctx, m)
	})
	if err == nil { // the log may have had it with another cost
		err = g.call(ctx, &t.Key, event.Settle, g.store.settling(s))
	}
	if !store.IsOutage(err) || g.failure != Local {
		return err
	}
	g.record.askOne(t)
	g.record.add(t, entry{id: t.ID, cost: int32(t.Cost), sent: unconfirmed, settled: true})
	return nil
}

// Reset forgets the log of a key.
func (g *Guard) Reset(ctx context.Context, key store.Key) error {
	defer g.denials.Invalidate(&key)
	g.denials.Invalidate(&key)
	ctx = g.Within(ctx, time.Now())
	if run := g.record.reset(&key); run != nil {
		run.wait(ctx) //nolint:errcheck // otherwise the replay could add entries to the log after it was reset
	}
	return g.call(ctx, &key, event.Reset, func(ctx context.Context) error { return g.store.Reset(ctx, key) })
}

// Answers reports whether the store is asked: after an outage it is when a take was answered.
func (g *Guard) Answers() bool { return g.breaker.state() == closed }

// askOverrider calls the store about overrides. Its errors are no failures of the store: it may answer takes and not be
// permitted to keep overrides. Nor is a call a probe, which would keep takes from finding a store that answers again.
func (g *Guard) askOverrider(ctx context.Context, op event.Operation, f func(context.Context) error) error {
	if !g.Answers() {
		return g.lastError.Load()
	}
	g.Begin()
	defer g.End()
	ctx = g.Within(ctx, time.Now())
	return store.Error(protect(func() error { return g.store.call(ctx, op, f) }))
}

// Overrides returns the overrides of a policy, as [store.Overrider] does.
func (g *Guard) Overrides(
	ctx context.Context, policy, known string,
) (version string, all []store.Override, err error) {
	err = g.askOverrider(ctx, event.Overrides, func(ctx context.Context) (err error) {
		version, all, err = g.store.overrider.Overrides(ctx, policy, known)
		return err
	})
	return version, all, err
}

// SetOverride keeps an override of a policy, as [store.Overrider] does.
func (g *Guard) SetOverride(ctx context.Context, policy string, o store.Override) error {
	return g.askOverrider(ctx, event.SetOverride, func(ctx context.Context) error {
		return g.store.overrider.SetOverride(ctx, policy, o)
	})
}

// Stats is a snapshot of a guard. The counters are of the time since it was made.
type Stats struct {
	Breaker  string        // "closed", "open" or "half open"
	Outages  uint64        // how often the breaker has opened
	Failures uint64        // calls that the store has not answered
	Stalled  time.Duration // in which requests waited and this process could not run
	Denials  int           // in the deny cache
	Leases   int           // in hand
	Booked   int           // units that these have left
	Backlog  int64         // entries that are to be replayed
	Replayed uint64        // entries
	Lost     uint64        // units that cannot be replayed
}

// Stats returns a snapshot.
func (g *Guard) Stats() Stats {
	leases, booked := g.leases.inHand()
	return Stats{
		Leases:   leases,
		Booked:   booked,
		Breaker:  g.breaker.state().String(),
		Outages:  g.log.outages.Load(),
		Failures: g.breaker.failures.Load(),
		Stalled:  g.Stalled(),
		Denials:  g.denials.Len(),
		Backlog:  g.record.entries.Load(),
		Replayed: g.record.replayed.Load(),
		Lost:     g.record.lost.Load(),
	}
}
