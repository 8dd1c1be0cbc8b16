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

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/deadline"
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

	StoreCalls func(context.Context, event.StoreCall) // is told of each call to the store, unless it is nil
}

// Guard calls a store that may not answer.
type Guard struct {
	*deadline.Deadlines                     // of each decision
	patient             *deadline.Deadlines // of calls for which no request waits

	store   remote
	timeout time.Duration
	failure Failure
	start   time.Time
	breaker breaker
	denials *denyCache
	slots   *slots.Set // held by requests in flight; see NewSlots
	journal *journal   // of Local
	log     outageLog

	unclaimed unclaimed // slots, unless failure is Local

	lastError atomic.Pointer[store.StoreError] // is returned for calls that the breaker does not admit

	replaying    atomic.Bool // a goroutine replays the journal
	lostLogged   uint64      // units, by that goroutine
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
	g := &Guard{store: newRemote(&c), timeout: c.Timeout, failure: c.Failure, start: time.Now()}
	g.log = outageLog{policy: c.Policy, failure: c.Label}
	g.Deadlines = deadline.New(c.Timeout, g.log.stalled)
	g.patient = deadline.New(max(backgroundTimeouts*c.Timeout, retryStore), nil)
	g.breaker.start, g.breaker.onChange, g.breaker.onSuccess = g.start, g.log.change, g.log.succeeded
	g.closed, g.replaySlots = make(chan struct{}), make(chan struct{}, maxRequested)
	g.background, g.cancel = context.WithCancel(context.Background())
	g.denials = newDenyCache(c.DenyCache, g.start)
	if g.failure == Local {
		g.denials.keepForOutages(c.LocalKeys)
	}
	g.journal = newJournal(c.LocalKeys)
	g.journal.replays = g.store.merger != nil && g.store.settler != nil
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
	g.Begin()
	defer g.End()
	err = errPanicked // unless f returns
	defer func() {
		g.report(p, err)
		err = g.noteError(err, func(text string) bool { return isIn(key, text) })
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
// the breaker will not admit. isIn reports whether a text contains an identity that was asked about.
func (g *Guard) noteError(err error, isIn func(text string) bool) error {
	if err == nil || err == error(g.lastError.Load()) { //nolint:errorlint // it is returned as it is, and As is slow
		return err
	}
	if err = store.Error(err); store.IsOutage(err) {
		var failed *store.StoreError
		errors.As(err, &failed)
		last := *failed
		last.Err = fmt.Errorf("not asked, because of: %w", failed.Err)
		g.lastError.Store(&last)
		g.log.failed(failed.Class, g.breaker.isFailing, func() []slog.Attr { return logAttrs(failed, isIn) })
	}
	return err
}

// Take decides t by the store or the deny cache, or, if the store does not answer, by the failure policy: then it
// returns FromLocal and the store's error. If it returns another source and an error, there is no decision. Take sets
// the ID of t.
func (g *Guard) Take(ctx context.Context, t *store.Take, a *store.Answer) (from Source, err error) {
	r := request{first: t, answer: a}
	return g.take(ctx, &r)
}

// TakeAll is Take for one request over several logs, as [store.Joint] describes it. It sets the ID of all takes. An
// answer of the deny cache or of Open which allows a take has no numbers. If the store is no store.Joint, there is no
// decision about more than one log.
func (g *Guard) TakeAll(
	ctx context.Context, takes []store.Take, answers []store.Answer,
) (from Source, err error) {
	if len(takes) == 1 && len(answers) == 1 {
		return g.Take(ctx, &takes[0], &answers[0])
	}
	for i := range takes {
		takes[i].ID = 0 // take sets them
	}
	if err := store.ValidateAll(takes, answers); err != nil {
		return FromStore, err
	}
	if g.store.joint == nil {
		return FromStore, &store.ConfigError{
			Option: "TakeAll", Value: fmt.Sprintf("%T", g.store.Store),
			Problem: "this store cannot decide over several logs: it has no method TakeAll (store.Joint)",
			Remedy:  "add it; a wrapper embeds store.Full",
		}
	}
	r := request{first: &takes[0], answer: &answers[0], takes: takes, answers: answers}
	return g.take(ctx, &r)
}

// take is Take for a request over one log or several.
func (g *Guard) take(ctx context.Context, r *request) (from Source, err error) {
	if g.denials.lookup(r) {
		return FromCache, nil
	}
	now := time.Now()
	r.setID(newID())
	g.Begin()
	defer g.End()
	if _, ok := ctx.(deadline.Context); !ok {
		ctx = g.Within(ctx, now)
	}
	begun := now.Sub(g.start)
	var versions [store.MaxLimits]denyVersion
	g.denials.readVersions(r, begun, &versions)
	sent := unconfirmed
	if p, ok := g.breaker.bypass(begun); ok && g.journal.entries.Load() == 0 {
		err = g.takeReported(ctx, p, r)
	} else {
		sent, err = g.takeGuarded(ctx, begun, r)
	}
	if err == nil {
		g.denials.update(r, &versions)
		return FromStore, nil
	}
	err = g.noteError(err, r.isIn)
	if sent == unconfirmed && timedOut(err) {
		g.reconnect(&r.first.Key)
	}
	if g.failure != Local && sent == unconfirmed && store.IsOutage(err) {
		g.giveBack(r)
	}
	switch {
	case errors.As(err, new(*store.ConfigError)) || g.failure == Closed:
		return FromStore, err
	case g.failure == Open:
		r.setAnswers(store.Answer{Allowed: true})
		return FromLocal, err
	}
	if sent == unconfirmed && !store.IsOutage(err) && !r.several() {
		sent = unsent // the store has answered that it did not record the take
	}
	g.takeLocal(r, sent)
	return FromLocal, err
}

// takeLocal decides a request in this process.
func (g *Guard) takeLocal(r *request, sent delivery) {
	r.setAnswers(store.Answer{})
	for i := range r.len() {
		if t, _ := r.at(i); t.Plan.Slots && g.slots != nil {
			g.slots.Merge(&t.Key, func(ids []uint64) { g.journal.hold(t, ids) })
		}
	}
	var known [store.MaxLimits]bool
	if g.denials.lookupInOutage(r, &known) {
		g.journal.deny(r, &known, sent)
	} else {
		g.journal.take(r, sent)
	}
	g.startReplays()
}

// startReplays starts the goroutine that replays the journal, unless it runs or there is nothing to replay.
func (g *Guard) startReplays() {
	if g.journal.entries.Load() > 0 && g.replaying.CompareAndSwap(false, true) {
		go g.replayInBackground()
	}
}

// ask asks the store. If it fails, the answers are of no use. If the store may have answered, and this process could
// not run, it asks once more, unless the store has failed before.
func (g *Guard) ask(ctx context.Context, r *request) error {
	err := g.store.take(ctx, r)
	if !maybeAnswered(ctx, err) || g.breaker.isFailing() {
		return err
	}
	if r.keepEntries() {
		ctx = g.Again(ctx, time.Now())
		if err = g.store.take(ctx, r); timedOut(err) {
			g.breaker.suspect()
		}
	}
	return missed(ctx, err)
}

// takeGuarded asks the store if the breaker admits it and the backlogs of the keys permit it.
func (g *Guard) takeGuarded(ctx context.Context, begun time.Duration, r *request) (sent delivery, err error) {
	state := g.breaker.state()
	if state == open {
		return unsent, g.lastError.Load()
	}
	var backlogs [store.MaxLimits]backlogSnapshot
	replay, long := false, false
	if g.journal.entries.Load() > 0 {
		replay, long = g.journal.snapshots(r, &backlogs)
	}
	if replay && (state != closed || long || !r.keepEntries()) {
		if err = g.replayFirst(ctx, r, &backlogs, state); err != nil {
			return unsent, err
		}
		replay = false
	}
	p, ok := g.breaker.admit()
	if !ok {
		return unsent, g.lastError.Load()
	}
	p.begun = begun
	if p.probe && !g.isClosed() {
		return unconfirmed, g.probe(ctx, p, r)
	}
	if err = g.takeReported(ctx, p, r); err == nil && replay {
		return g.takeWithBacklog(ctx, r, &backlogs)
	}
	return unconfirmed, err
}

// replayFirst replays the backlogs of a request's keys before the store is asked. If the breaker is not closed, the
// first replay is its probe. It fails if a replay takes long or is another request's probe. If the breaker is closed,
// it waits for replays only if the request cannot be taken back after the store was asked.
func (g *Guard) replayFirst(
	ctx context.Context, r *request, backlogs *[store.MaxLimits]backlogSnapshot, state state,
) (err error) {
	for i := range r.len() {
		if !backlogs[i].replay {
			continue
		}
		t, _ := r.at(i)
		switch run, started := g.startReplay(ctx, &t.Key); {
		case state == closed && (backlogs[i].long || r.keepEntries()):
			err = errReplaying
		case run == nil: // nothing is left
		case !started && g.breaker.state() != closed:
			return errReplaying
		case !wait(ctx, run.done) || run.err != nil:
			return g.lastError.Load()
		}
	}
	return err
}

// takeReported asks the store and reports the outcome to the breaker.
func (g *Guard) takeReported(ctx context.Context, p pass, r *request) (err error) {
	err = errPanicked // unless ask returns
	defer func() { g.report(p, err) }()
	return g.ask(ctx, r)
}

// takeWithBacklog completes a request whose answers do not take the backlogs of its keys into account. It starts the
// replays, since the store answers now. If the backlogs might change the decision, it asks again after the replays if
// there is time, and otherwise fails, so that this process decides. Thus the store decides again however slow it is.
func (g *Guard) takeWithBacklog(
	ctx context.Context, r *request, backlogs *[store.MaxLimits]backlogSnapshot,
) (sent delivery, err error) {
	var runs [store.MaxLimits]*run
	for i := range r.len() {
		if t, _ := r.at(i); backlogs[i].replay {
			runs[i], _ = g.startReplay(ctx, &t.Key)
		}
	}
	mode := r.first.Mode
	recorded := mode != store.ModePeek && r.admitted()
	same := sameWithBacklogs(r, backlogs)
	// A denial that some logs have recorded and others have not cannot be repeated.
	if same && (recorded || r.several() && mode == store.ModeChargeDenied) {
		return delivered, nil
	}
	for _, run := range runs {
		if run == nil || wait(ctx, run.done) && run.err == nil {
			continue
		}
		if same {
			return delivered, nil
		}
		return delivered, errReplaying
	}
	if recorded {
		for i := range r.len() {
			t, _ := r.at(i)
			if err := g.store.settle(ctx, store.Settlement{Key: t.Key, ID: t.ID}); err != nil {
				return unconfirmed, err // it is unknown whether the store still has the take
			}
		}
		r.setID(newID())
	}
	return unconfirmed, g.ask(ctx, r)
}

// sameWithBacklogs reports whether the decision would be the same with the backlogs in the logs, and adds the backlogs
// to answers that admit. Until a replay has ended, entries that the log has already count twice in such an answer.
func sameWithBacklogs(r *request, backlogs *[store.MaxLimits]backlogSnapshot) bool {
	if !r.admitted() {
		return true
	}
	for i := range r.len() {
		t, a := r.at(i)
		with := *a
		backlogs[i].addTo(t, &with)
		t.Plan.Judge(&with, t.Cost, t.Mode)
		t.Plan.Grant(&with, a.Granted) // 0 unless the mode is ModeUpTo
		if !with.Allowed || with.Granted < a.Granted {
			return false
		}
		if t.Mode == store.ModeUpTo && a.Granted < t.Cost && backlogs[i].lowers { // then there is room for more
			return false
		}
		*a = with
	}
	return true
}

// Settle changes the cost of a take. Degraded is what Take has returned for it.
func (g *Guard) Settle(ctx context.Context, s store.Settlement, degraded bool) error {
	defer g.denials.invalidate(&s.Key) // again, as an answer that was on its way may have been cached meanwhile
	g.denials.invalidate(&s.Key)
	if degraded && (g.journal.settle(s) || !g.journal.replays) {
		return nil // a replay tells the store, or the store never knows the take
	}
	if g.store.settler == nil {
		return &store.ConfigError{
			Option: "Settle", Value: fmt.Sprintf("%T", g.store.Store),
			Problem: "this store cannot change what was recorded: it has no method Settle (store.Settler)",
			Remedy:  "add it; a wrapper embeds store.Full",
		}
	}
	ctx = g.Within(ctx, time.Now())
	return g.call(&s.Key, func() error { return g.store.settle(ctx, s) })
}

// Reset forgets the log of a key.
func (g *Guard) Reset(ctx context.Context, key store.Key) error {
	defer g.denials.invalidate(&key)
	g.denials.invalidate(&key)
	ctx = g.Within(ctx, time.Now())
	if run := g.journal.reset(&key); run != nil {
		wait(ctx, run.done) // otherwise the replay could add entries to the log after it was reset
	}
	return g.call(&key, func() error { return g.store.reset(ctx, key) })
}
