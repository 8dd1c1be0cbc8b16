// Package guard stands between a limiter and a store outside the process, which may not answer. Its parts:
//
//   - deadline: all calls to the store for one decision end after a timeout;
//   - breaker: a store that has failed several times in a row is called about once a second only;
//   - deny cache: denials are answered from memory, so that a client which keeps retrying does not reach the store;
//   - journal: during outages the same limits are enforced in this process;
//   - replay: the entries of the journal are added to the store's logs after an outage. A probe finds out when.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

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

// Source is what has answered a take.
type Source int

// What answers takes.
const (
	FromStore Source = iota
	FromCache        // the deny cache
	FromLocal        // the failure policy
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
}

// Guard calls a store that may not answer.
type Guard struct {
	deadlines // of each decision

	store   store.Store
	settler store.Settler // the store, or nil if it is none
	merger  store.Merger
	lister  store.Lister
	failure Failure
	start   time.Time
	breaker breaker
	denials *denyCache
	journal *journal // of Local
	log     outageLog

	lastError atomic.Pointer[store.StoreError] // is returned for calls that the breaker does not admit

	replaying    atomic.Bool // a goroutine replays the journal
	reconnecting atomic.Bool
	resetAt      atomic.Uint64 // breaker.failuresAtSuccess, plus 1, when reconnect last reset the breaker's count
	connected    atomic.Int64  // when connections were last made, in nanoseconds since start
	replaySlots  chan struct{} // limits the replays that requests have started
	background   context.Context
	cancel       context.CancelFunc // of background
	closed       chan struct{}
	closing      sync.Once
	closeErr     error
}

// New makes a guard. It does no I/O and starts no goroutine.
func New(c Config) *Guard {
	g := &Guard{store: c.Store, failure: c.Failure, start: time.Now()}
	g.settler, _ = c.Store.(store.Settler)
	g.merger, _ = c.Store.(store.Merger)
	g.lister, _ = c.Store.(store.Lister)
	g.timeout = c.Timeout
	g.log = outageLog{policy: c.Policy, failure: c.Label}
	g.log.attrs.Store(new([]slog.Attr))
	g.breaker.start, g.breaker.onChange = g.start, g.log.change
	g.closed, g.replaySlots = make(chan struct{}), make(chan struct{}, maxRequested)
	g.background, g.cancel = context.WithCancel(context.Background())
	g.denials = newDenyCache(c.DenyCache, g.start)
	if g.failure == Local {
		g.denials.keepForOutages(c.LocalKeys)
	}
	g.journal = newJournal(c.LocalKeys)
	g.journal.replays = g.merger != nil && g.settler != nil
	g.lastError.Store(&store.StoreError{Err: errors.New("it has not answered")})
	return g
}

// Open reports whether the failure policy admits requests that are counted nowhere.
func (g *Guard) Open() bool { return g.failure == Open }

// call makes a call to the store if the breaker admits it.
func (g *Guard) call(key *store.Key, f func() error) (err error) {
	p, ok := g.breaker.admit()
	if !ok {
		return g.lastError.Load()
	}
	err = errPanicked // unless f returns
	defer func() {
		g.report(p, err)
		err = g.noteError(key, err)
	}()
	return f()
}

// report reports the outcome of a call to the breaker. An error that concerns one key shows that the store answers.
func (g *Guard) report(p pass, err error) {
	if store.IsOutage(err) {
		g.breaker.failure(p)
	} else {
		g.breaker.success(p)
	}
}

// noteError returns err as an error of package store. If the store has not answered, it keeps the error for calls that
// the breaker will not admit.
func (g *Guard) noteError(key *store.Key, err error) error {
	if err == nil {
		return nil
	}
	if err = store.Error(err); store.IsOutage(err) {
		var failed *store.StoreError
		errors.As(err, &failed)
		if failed == g.lastError.Load() {
			return err
		}
		last := *failed
		last.Err = fmt.Errorf("not asked, because of: %w", failed.Err)
		g.lastError.Store(&last)
		attrs := logAttrs(failed, key)
		g.log.attrs.Store(&attrs)
	}
	return err
}

// Take decides t by the store or the deny cache, or, if the store does not answer, by the failure policy: then it
// returns FromLocal and the store's error. If it returns another source and an error, there is no decision. Take sets
// the ID of t.
func (g *Guard) Take(ctx context.Context, t *store.Take, a *store.Answer) (from Source, err error) {
	if g.denials.lookup(t, a) {
		return FromCache, nil
	}
	now := time.Now()
	t.ID = newID(now)
	if _, ok := ctx.(bounded); !ok {
		ctx = g.Within(ctx, now)
	}
	begun := now.Sub(g.start)
	version := g.denials.version(t, begun)
	sent := unconfirmed
	if p, ok := g.breaker.bypass(); ok && g.journal.entries.Load() == 0 {
		err = g.takeDirect(ctx, begun, t, a)
	} else if sent, err = g.takeGuarded(ctx, begun, t, a); err == nil {
		g.breaker.allowBypass(p)
	}
	err = g.noteError(&t.Key, err)
	switch {
	case err == nil:
		g.denials.update(t, a, version)
		return FromStore, nil
	case sent == unconfirmed && store.IsOutage(err) && time.Since(now) > g.timeout/2:
		g.reconnect(&t.Key)
	}
	switch {
	case errors.As(err, new(*store.ConfigError)) || g.failure == Closed:
		return FromStore, err
	case g.failure == Open:
		*a = store.Answer{Allowed: true}
		return FromLocal, err
	}
	if sent == unconfirmed && !store.IsOutage(err) {
		sent = unsent // the store has answered that it did not record the take
	}
	g.takeLocal(t, a, sent)
	return FromLocal, err
}

// takeLocal decides t in this process.
func (g *Guard) takeLocal(t *store.Take, a *store.Answer, sent delivery) {
	var cached store.Answer
	found := g.denials.lookupInOutage(t, &cached)
	*a = cached
	switch {
	case !found || t.Mode == store.ModeChargeDenied: // this mode records denied takes as well
		*a = store.Answer{}
		g.journal.take(t, a, sent)
	default:
		g.journal.denied(t, sent)
	}
	if found {
		cached.Retry = max(cached.Retry, a.Retry)
		*a = cached
	}
	if g.journal.entries.Load() > 0 && g.replaying.CompareAndSwap(false, true) {
		go g.replayInBackground()
	}
}

// takeDirect calls the store's Take without the breaker's admission.
func (g *Guard) takeDirect(ctx context.Context, begun time.Duration, t *store.Take, a *store.Answer) (err error) {
	err = errPanicked // unless Take returns
	defer func() {
		if store.IsOutage(err) {
			g.breaker.bypassFailure(begun)
		}
	}()
	*a, err = g.store.Take(ctx, *t)
	return err
}

var errPanicked = errors.New("the store has panicked")

// takeGuarded calls the store's Take if the breaker admits it and the key's backlog permits it.
func (g *Guard) takeGuarded(
	ctx context.Context, begun time.Duration, t *store.Take, a *store.Answer,
) (sent delivery, err error) {
	state := g.breaker.state()
	if state == open {
		return unsent, g.lastError.Load()
	}
	var backlog backlogSnapshot
	replay := false
	if g.journal.entries.Load() > 0 {
		backlog, replay = g.journal.snapshot(&t.Key)
	}
	if replay && (state != closed || backlog.units > maxPart) {
		run, started := g.startReplay(ctx, &t.Key)
		if state == closed || !started {
			return unsent, errReplaying // the replay takes long, or is another request's probe
		}
		if !wait(ctx, run.done) || run.err != nil {
			return unsent, g.lastError.Load()
		}
		replay = false
	}
	p, ok := g.breaker.admit()
	if !ok {
		return unsent, g.lastError.Load()
	}
	p.begun = begun
	if p.probe && !g.isClosed() {
		return unconfirmed, g.probe(ctx, p, t, a)
	}
	if err = g.takeReported(ctx, p, t, a); err == nil && replay {
		return g.takeWithBacklog(ctx, t, a, &backlog)
	}
	return unconfirmed, err
}

// takeReported calls the store's Take and reports the outcome to the breaker.
func (g *Guard) takeReported(ctx context.Context, p pass, t *store.Take, a *store.Answer) (err error) {
	err = errPanicked // unless Take returns
	defer func() { g.report(p, err) }()
	*a, err = g.store.Take(ctx, *t)
	return err
}

// takeWithBacklog completes a take whose answer a does not take the key's backlog into account. It starts the replay,
// since the store answers now. If the backlog might change the answer, it repeats the take after the replay if there is
// time, and otherwise fails, so that this process decides. Thus the store decides again however slow it is.
func (g *Guard) takeWithBacklog(
	ctx context.Context, t *store.Take, a *store.Answer, backlog *backlogSnapshot,
) (sent delivery, err error) {
	run, _ := g.startReplay(ctx, &t.Key)
	recorded := a.Allowed && t.Mode != store.ModePeek
	same := sameWithBacklog(a, t, backlog)
	if same && recorded {
		return delivered, nil
	}
	if run != nil && (!wait(ctx, run.done) || run.err != nil) {
		if same {
			return delivered, nil
		}
		return delivered, errReplaying
	}
	if recorded {
		if err := g.settler.Settle(ctx, store.Settlement{Key: t.Key, ID: t.ID}); err != nil {
			return unconfirmed, err // it is unknown whether the store still has the take
		}
		t.ID = newID(time.Now())
	}
	*a, err = g.store.Take(ctx, *t)
	return unconfirmed, err
}

// sameWithBacklog reports whether the decision would be the same with the backlog in the log, and adds the backlog to
// an answer that admits. Until the replay has ended, entries that the log has already count twice in that answer.
func sameWithBacklog(a *store.Answer, t *store.Take, backlog *backlogSnapshot) bool {
	if !a.Allowed {
		return true
	}
	with := *a
	backlog.addTo(t, &with)
	if t.Plan.Judge(&with, t.Cost, t.Mode); with.Allowed {
		*a = with
	}
	return with.Allowed
}

// Settle changes the cost of a take. Degraded is what Take has returned for it.
func (g *Guard) Settle(ctx context.Context, s store.Settlement, degraded bool) error {
	defer g.denials.invalidate(&s.Key) // again, as an answer that was on its way may have been cached meanwhile
	g.denials.invalidate(&s.Key)
	if degraded && (g.journal.settle(s) || !g.journal.replays) {
		return nil // a replay tells the store, or the store never knows the take
	}
	if g.settler == nil {
		return &store.ConfigError{
			Option: "Settle", Value: fmt.Sprintf("%T", g.store),
			Reason: "this store cannot change what was recorded: it has no method Settle (store.Settler)",
		}
	}
	ctx = g.Within(ctx, time.Now())
	return g.call(&s.Key, func() error { return g.settler.Settle(ctx, s) })
}

// Reset forgets the log of a key.
func (g *Guard) Reset(ctx context.Context, key store.Key) error {
	defer g.denials.invalidate(&key)
	g.denials.invalidate(&key)
	ctx = g.Within(ctx, time.Now())
	if run := g.journal.reset(key); run != nil {
		wait(ctx, run.done) // otherwise the replay could add entries to the log after it was reset
	}
	return g.call(&key, func() error { return g.store.Reset(ctx, key) })
}
