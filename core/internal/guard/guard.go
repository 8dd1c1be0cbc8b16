// Package guard stands between a limiter and a store outside the process, which may not answer. Its parts:
//
//   - deadline: every question of a decision ends after a timeout;
//   - breaker: a store that has failed several times in a row is asked about once a second only;
//   - deny cache: a denial is remembered for as long as it holds, so that a client who keeps trying does not reach the
//     store;
//   - journal: what is decided without the store, by the same limits, in this process;
//   - replay: the journal's entries are added to the store's logs when it is back; a probe finds out when.
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

// Failure is what decides while the store does not answer.
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

const (
	FromStore Source = iota
	FromCache        // the deny cache
	FromLocal        // the failure policy
)

// Config is how a [Guard] is made.
type Config struct {
	Store     store.Store // Local replays only to one that is a store.Settler and a store.Merger as well
	Policy    string      // for the log
	Failure   Failure
	Label     string        // of Failure, for the log
	Timeout   time.Duration // of a decision
	DenyCache time.Duration // how long a denial is answered from memory at most; 0 is never
	LocalKeys int           // that Local keeps apart
}

// Guard asks a store that may not answer.
type Guard struct {
	deadlines // of each decision

	store   store.Store
	settler store.Settler // that is the store, or nil
	merger  store.Merger
	lister  store.Lister
	failure Failure
	start   time.Time
	breaker breaker
	denials *denyCache
	journal *journal // of Local
	log     outageLog

	lastError atomic.Pointer[store.StoreError] // for questions that are not even put

	replaying    atomic.Bool // a goroutine replays what the journal holds
	reconnecting atomic.Bool
	forgiven     atomic.Uint64 // breaker.failuresAtSuccess, plus 1, when failures in a row were forgotten because connections were made
	connected    atomic.Int64  // when connections were made last, in nanoseconds since start
	slots        chan struct{} // for replays that requests ask for
	lasting      context.Context
	cancel       context.CancelFunc // of lasting, which ends with Close
	closed       chan struct{}
	closing      sync.Once
	closeErr     error
}

// New makes a guard. It does no I/O and starts nothing.
func New(c Config) *Guard {
	g := &Guard{store: c.Store, failure: c.Failure, start: time.Now()}
	g.settler, _ = c.Store.(store.Settler)
	g.merger, _ = c.Store.(store.Merger)
	g.lister, _ = c.Store.(store.Lister)
	g.timeout = c.Timeout
	g.log = outageLog{policy: c.Policy, failure: c.Label}
	g.log.attrs.Store(new([]slog.Attr))
	g.breaker.start, g.breaker.change = g.start, g.log.change
	g.closed, g.slots = make(chan struct{}), make(chan struct{}, replaysAsked)
	g.lasting, g.cancel = context.WithCancel(context.Background())
	g.denials = newDenyCache(c.DenyCache, g.start)
	if g.failure == Local {
		g.denials.holdFor(c.LocalKeys)
	}
	g.journal = newJournal(c.LocalKeys)
	g.journal.replays = g.merger != nil && g.settler != nil
	g.lastError.Store(&store.StoreError{Err: errors.New("it has not answered")})
	return g
}

// Open reports whether what the failure policy admits is counted nowhere.
func (g *Guard) Open() bool { return g.failure == Open }

// ask puts a question to the store unless that has just failed too often.
func (g *Guard) ask(key *store.Key, question func() error) (err error) {
	p, ok := g.breaker.admit()
	if !ok {
		return g.lastError.Load()
	}
	err = errPanicked // unless it returns
	defer func() {
		g.told(p, err)
		err = g.explain(key, err)
	}()
	return question()
}

// told tells the breaker how a question has ended. An error that is about one key says that the store answers.
func (g *Guard) told(p pass, err error) {
	if store.IsOutage(err) {
		g.breaker.failure(p)
	} else {
		g.breaker.success(p)
	}
}

// explain returns why the store has not answered, and keeps it for questions that are not even put.
func (g *Guard) explain(key *store.Key, err error) error {
	if err == nil {
		return nil
	}
	if err = store.Error(err); store.IsOutage(err) {
		var failed *store.StoreError
		errors.As(err, &failed)
		if failed == g.lastError.Load() {
			return err
		}
		waiting := *failed
		waiting.Err = fmt.Errorf("not asked, because of: %w", failed.Err)
		g.lastError.Store(&waiting)
		attrs := logAttrs(failed, key)
		g.log.attrs.Store(&attrs)
	}
	return err
}

// Take is the store's Take, or FromLocal, with an error that says why, what decides instead of it. Without an answer the
// error is all there is. It gives t an ID.
func (g *Guard) Take(ctx context.Context, t *store.Take, a *store.Answer) (from Source, err error) {
	if g.denials.answer(t, a) {
		return FromCache, nil
	}
	now := time.Now()
	t.ID = newID(now)
	if _, ok := ctx.(bounded); !ok {
		ctx = g.Within(ctx, now)
	}
	begun := now.Sub(g.start)
	expected := g.denials.expect(t, begun)
	sent := fateSent
	if p, quiet := g.breaker.quiet(); quiet && g.journal.count.Load() == 0 {
		err = g.direct(ctx, begun, t, a)
	} else if sent, err = g.guarded(ctx, begun, t, a); err == nil {
		g.breaker.calm(p)
	}
	err = g.explain(&t.Key, err)
	switch {
	case err == nil:
		g.denials.note(t, a, expected)
		return FromStore, nil
	case sent == fateSent && store.IsOutage(err) && time.Since(now) > g.timeout/2:
		g.reconnect(&t.Key)
	}
	switch {
	case errors.As(err, new(*store.ConfigError)) || g.failure == Closed:
		return FromStore, err
	case g.failure == Open:
		*a = store.Answer{Allowed: true}
		return FromLocal, err
	}
	if sent == fateSent && !store.IsOutage(err) {
		sent = fateUnsent // the store has answered that it cannot
	}
	g.decide(t, a, sent)
	return FromLocal, err
}

// decide is Take without the store.
func (g *Guard) decide(t *store.Take, a *store.Answer, sent fate) {
	var held store.Answer
	known := g.denials.held(t, &held)
	*a = held
	switch {
	case !known || t.Mode == store.ModeChargeDenied: // which counts denials as well
		*a = store.Answer{}
		g.journal.take(t, a, sent)
	default:
		g.journal.denied(t, sent)
	}
	if known {
		held.Retry = max(held.Retry, a.Retry)
		*a = held
	}
	if g.journal.count.Load() > 0 && g.replaying.CompareAndSwap(false, true) {
		go g.replayInBackground()
	}
}

// direct asks the store without the breaker, which hears of it if that fails.
func (g *Guard) direct(ctx context.Context, begun time.Duration, t *store.Take, a *store.Answer) (err error) {
	err = errPanicked // unless it returns
	defer func() {
		if store.IsOutage(err) {
			g.breaker.unasked(begun)
		}
	}()
	*a, err = g.store.Take(ctx, *t)
	return err
}

var errPanicked = errors.New("the store has panicked")

// guarded asks the store if the breaker lets it.
func (g *Guard) guarded(ctx context.Context, begun time.Duration, t *store.Take, a *store.Answer) (sent fate, err error) {
	state := g.breaker.state()
	if state == open {
		return fateUnsent, g.lastError.Load()
	}
	var backlog backlogState
	replay := false
	if g.journal.count.Load() > 0 {
		backlog, replay = g.journal.waiting(&t.Key)
	}
	if replay && (state != closed || backlog.units > replayedAtOnce) {
		run, mine := g.replayKey(ctx, &t.Key)
		if state == closed || !mine {
			return fateUnsent, errReplaying // it takes long, or is the probe of another request
		}
		if !wait(ctx, run.done) || run.err != nil {
			return fateUnsent, g.lastError.Load()
		}
		replay = false
	}
	p, ok := g.breaker.admit()
	if !ok {
		return fateUnsent, g.lastError.Load()
	}
	p.begun = begun
	if p.probe && !g.isClosed() {
		return fateSent, g.probe(ctx, p, t, a)
	}
	if err = g.toldTake(ctx, p, t, a); err == nil && replay {
		return g.rejoin(ctx, t, a, &backlog)
	}
	return fateSent, err
}

// toldTake is the store's Take, of which the breaker hears.
func (g *Guard) toldTake(ctx context.Context, p pass, t *store.Take, a *store.Answer) (err error) {
	err = errPanicked
	defer func() { g.told(p, err) }()
	*a, err = g.store.Take(ctx, *t)
	return err
}

// rejoin is called with what the store has answered about a key without knowing a backlog. Now that it answers
// they are replayed. Where they might make its answer another, it is asked again afterwards if there is time for
// that, and else this process decides; so decisions come from the store again however late its answers are.
func (g *Guard) rejoin(ctx context.Context, t *store.Take, a *store.Answer, backlog *backlogState) (sent fate, err error) {
	run, _ := g.replayKey(ctx, &t.Key)
	recorded := a.Allowed && t.Mode != store.ModePeek
	holds := holdsWith(a, t, backlog)
	if holds && recorded {
		return fateStored, nil
	}
	if run != nil && (!wait(ctx, run.done) || run.err != nil) {
		if holds {
			return fateStored, nil
		}
		return fateStored, errReplaying
	}
	if recorded {
		if err := g.settler.Settle(ctx, store.Settlement{Key: t.Key, ID: t.ID}); err != nil {
			return fateSent, err // and nobody knows whether it is still there
		}
		t.ID = newID(time.Now())
	}
	*a, err = g.store.Take(ctx, *t)
	return fateSent, err
}

// holdsWith reports whether the answer would be the same with the backlog in the log, and adds it to the answer. Where a
// part of the backlog may be in the log already, it counts twice in what the answer tells, until it has been replayed.
func holdsWith(a *store.Answer, t *store.Take, backlog *backlogState) bool {
	if !a.Allowed {
		return true
	}
	with := *a
	backlog.add(t, &with)
	if t.Plan.Judge(&with, t.Cost, t.Mode); with.Allowed {
		*a = with
	}
	return with.Allowed
}

// Settle changes the cost of a take. A degraded one is that of a decision which this process has made by itself.
func (g *Guard) Settle(ctx context.Context, s store.Settlement, degraded bool) error {
	defer g.denials.drop(&s.Key) // an answer that was under way may have been noted meanwhile
	g.denials.drop(&s.Key)
	if degraded && (g.journal.settle(s) || !g.journal.replays) {
		return nil // the store is told when it is told of the take, or never
	}
	if g.settler == nil {
		return &store.ConfigError{
			Option: "Settle", Value: fmt.Sprintf("%T", g.store),
			Reason: "this store cannot change what was recorded: it has no method Settle (store.Settler)",
		}
	}
	ctx = g.Within(ctx, time.Now())
	return g.ask(&s.Key, func() error { return g.settler.Settle(ctx, s) })
}

// Reset forgets a log.
func (g *Guard) Reset(ctx context.Context, key store.Key) error {
	defer g.denials.drop(&key)
	g.denials.drop(&key)
	ctx = g.Within(ctx, time.Now())
	if run := g.journal.reset(key); run != nil {
		wait(ctx, run.done) // otherwise it would add what it has read after the log was forgotten
	}
	return g.ask(&key, func() error { return g.store.Reset(ctx, key) })
}
