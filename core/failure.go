package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
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
		if f < FailLocal || f > FailClosed {
			c.fault("WithFailure", strconv.Itoa(int(f)), "choose FailLocal, FailOpen or FailClosed")
			return
		}
		c.failure = f
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
		if d < time.Millisecond || d > time.Minute {
			c.fault("WithTimeout", d.String(), "a decision may take 1ms to 1m")
			return
		}
		c.timeout = d
	}
}

const (
	defaultTimeout = 100 * time.Millisecond
	failuresToOpen = 5
	retryStore     = time.Second      // until the store is asked again, and up to half as much more
	logInterval    = 10 * time.Second // between outages of one limiter's store that are told
)

// remote asks a store that may not answer.
type remote struct {
	deadlines // of each decision

	store   Store
	name    string // of the policy
	failure Failure
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	denials *denials
	journal *journal                    // of FailLocal
	why     atomic.Pointer[StoreError]  // the last failure, for who is not even let near the store
	logWhy  atomic.Pointer[[]slog.Attr] // the same for the log
	start   time.Time
	failed  atomic.Int64 // when a failure was last counted, in nanoseconds since start

	// The breaker, which has a lock, is asked while something has failed since it last heard of a success.
	failures, calm atomic.Uint64 // how many there have been, counted when the breaker has heard of them; and how many before that success

	replaying    atomic.Bool // a goroutine replays what the journal holds
	reconnecting atomic.Bool
	forgiven     atomic.Uint64 // calm, plus 1, when failures in a row were forgotten because connections have been made
	connected    atomic.Int64  // when connections were made last, in nanoseconds since start
	slots        chan struct{} // for replays that requests ask for
	lasting      context.Context
	cancel       context.CancelFunc // of lasting, which ends with Close
	closed       chan struct{}
	close        sync.Once
	closeErr     error

	mu      sync.Mutex
	logged  time.Time // when an outage's beginning was
	logs    bool      // ... and so its end will be
	skipped int
}

func newRemote(c *config) *remote {
	r := &remote{store: c.store, name: c.name, failure: c.failure, start: time.Now()}
	r.timeout = c.timeout
	r.closed, r.slots = make(chan struct{}), make(chan struct{}, replaysAsked)
	r.lasting, r.cancel = context.WithCancel(context.Background())
	r.denials = newDenials(c.denyCache, r.start)
	if r.failure == FailLocal {
		r.denials.holdFor(c.failLocalKeys)
	}
	r.journal = newJournal(c.failLocalKeys)
	r.why.Store(&StoreError{Err: errors.New("it has not answered")})
	r.logWhy.Store(new([]slog.Attr))
	r.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:       jitter(retryStore),
		ReadyToTrip:   func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= failuresToOpen },
		IsSuccessful:  func(err error) bool { return !isOutage(err) },
		IsExcluded:    func(err error) bool { return err != nil && errors.As(err, new(*sameError)) },
		OnStateChange: r.log,
	})
	return r
}

// jitter keeps processes from doing at once what they do now and then.
func jitter(d time.Duration) time.Duration { return d + rand.N(d/2) }

// isOutage tells that the store does not answer from that it cannot answer this.
func isOutage(err error) bool {
	if err == nil || errors.As(err, new(*ConfigError)) {
		return false
	}
	var failed *StoreError
	return !errors.As(err, &failed) || !failed.OneKey
}

// ask puts a question to the store unless that has just failed too often.
func (r *remote) ask(key *StorageKey, question func() error) (err error) {
	heard, err := r.breaker.Allow()
	if err != nil {
		return r.reason(key, err)
	}
	begun := time.Since(r.start)
	err = errPanicked // unless it returns
	defer func() {
		r.hear(heard, begun, err)
		err = r.reason(key, err)
	}()
	return question()
}

// hear tells the breaker how a question has ended.
func (r *remote) hear(heard func(error), begun time.Duration, err error) {
	heard(r.count(begun, err))
	if isOutage(err) {
		r.failures.Add(1)
	}
}

// count tells the breaker of a failure once. Those who were waiting when another had failed have failed by the same fault:
// that is one, not many in a row.
func (r *remote) count(begun time.Duration, err error) error {
	if !isOutage(err) {
		return err
	}
	if last := r.failed.Load(); int64(begun) < last || !r.failed.CompareAndSwap(last, int64(time.Since(r.start))) {
		return &sameError{err}
	}
	return err
}

// reason is why the store has not answered, for who asked and for those who will not even be let near it.
func (r *remote) reason(key *StorageKey, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return r.why.Load()
	}
	if err = storeError(err); isOutage(err) {
		var failed *StoreError
		errors.As(err, &failed)
		if failed == r.why.Load() {
			return err
		}
		waiting := *failed
		waiting.Err = fmt.Errorf("not asked, because of: %w", failed.Err)
		r.why.Store(&waiting)
		attrs := failed.logAttrs(key)
		r.logWhy.Store(&attrs)
	}
	return err
}

type sameError struct{ error }

// take is a store's Take, or, with an error that says why, what decides instead of it. Without an answer the error
// is all there is.
func (r *remote) take(ctx context.Context, t *Take, a *Answer) (degraded bool, err error) {
	if r.denials.answer(t, a) {
		return false, nil
	}
	now := time.Now()
	t.ID = newID(now)
	if _, ok := ctx.(bounded); !ok {
		ctx = r.within(ctx, now)
	}
	begun := now.Sub(r.start)
	ticket := r.denials.expect(t, begun)
	sent := fateSent
	if failures := r.failures.Load(); failures == r.calm.Load() && r.journal.count.Load() == 0 {
		err = r.direct(ctx, begun, t, a)
	} else if sent, err = r.guarded(ctx, begun, t, a); err == nil {
		r.calm.Store(failures)
	}
	err = r.reason(&t.Key, err)
	switch {
	case err == nil:
		r.denials.note(t, a, ticket)
		return false, nil
	case sent == fateSent && isOutage(err) && time.Since(now) > r.timeout/2:
		r.reconnect(&t.Key)
	}
	switch {
	case errors.As(err, new(*ConfigError)) || r.failure == FailClosed:
		return false, err
	case r.failure == FailOpen:
		*a = Answer{Allowed: true}
		return true, err
	}
	if sent == fateSent && !isOutage(err) {
		sent = fateUnsent // the store has answered that it cannot
	}
	r.decide(t, a, sent)
	return true, err
}

// decide is take without the store.
func (r *remote) decide(t *Take, a *Answer, sent fate) {
	var held Answer
	known := r.denials.held(t, &held)
	*a = held
	switch {
	case !known || t.Mode == ModeChargeDenied: // which counts denials as well
		*a = Answer{}
		r.journal.take(t, a, sent)
	default:
		r.journal.denied(t, sent)
	}
	if known {
		held.Retry = max(held.Retry, a.Retry)
		*a = held
	}
	if r.journal.count.Load() > 0 && r.replaying.CompareAndSwap(false, true) {
		go r.replayInBackground()
	}
}

// direct asks the store, and the breaker hears of it if that fails.
func (r *remote) direct(ctx context.Context, begun time.Duration, t *Take, a *Answer) (err error) {
	err = errPanicked // unless it returns
	defer func() {
		if isOutage(err) {
			if heard, refused := r.breaker.Allow(); refused == nil {
				heard(r.count(begun, err))
			}
			r.failures.Add(1)
		}
	}()
	*a, err = r.store.Take(ctx, *t)
	return err
}

var errPanicked = errors.New("the store has panicked")

// guarded asks the store if the breaker lets it.
func (r *remote) guarded(ctx context.Context, begun time.Duration, t *Take, a *Answer) (sent fate, err error) {
	state := r.breaker.State()
	if state == gobreaker.StateOpen {
		return fateUnsent, gobreaker.ErrOpenState
	}
	var backlog backlogState
	waiting := false
	if r.journal.count.Load() > 0 {
		backlog, waiting = r.journal.waiting(&t.Key)
	}
	if waiting && (state != gobreaker.StateClosed || backlog.units > replayedAtOnce) {
		run, mine := r.replayKey(ctx, &t.Key)
		if state == gobreaker.StateClosed || !mine {
			return fateUnsent, errReplaying // it takes long, or is the probe of another request
		}
		if !wait(ctx, run.done) || run.err != nil {
			return fateUnsent, r.why.Load()
		}
		state, waiting = gobreaker.StateClosed, false
	}
	heard, err := r.breaker.Allow()
	if err != nil {
		return fateUnsent, err
	}
	if state != gobreaker.StateClosed && !r.isClosed() {
		return fateSent, r.probe(ctx, heard, t, a)
	}
	if err = r.heardTake(ctx, begun, heard, t, a); err == nil && waiting {
		return r.rejoin(ctx, t, a, &backlog)
	}
	return fateSent, err
}

// heardTake is the store's Take, of which the breaker hears.
func (r *remote) heardTake(
	ctx context.Context, begun time.Duration, heard func(error), t *Take, a *Answer,
) (err error) {
	err = errPanicked
	defer func() { r.hear(heard, begun, err) }()
	*a, err = r.store.Take(ctx, *t)
	return err
}

// rejoin is called with what the store has answered about a key without knowing a backlog. Now that it answers
// they are replayed. Where they might make its answer another, it is asked again afterwards if there is time for
// that, and else this process decides; so decisions come from the store again however late its answers are.
func (r *remote) rejoin(ctx context.Context, t *Take, a *Answer, backlog *backlogState) (sent fate, err error) {
	run, _ := r.replayKey(ctx, &t.Key)
	recorded := a.Allowed && t.Mode != ModePeek
	holds := a.holdsWith(t, backlog)
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
		if err := r.store.Settle(ctx, Settle{Key: t.Key, ID: t.ID}); err != nil {
			return fateSent, err // and nobody knows whether it is still there
		}
		t.ID = newID(time.Now())
	}
	*a, err = r.store.Take(ctx, *t)
	return fateSent, err
}

// holdsWith reports whether the answer would be the same with the backlog in the log, and adds it to the answer. Where a
// part of the backlog may be in the log already, it counts twice in what the answer tells, until it has been replayed.
func (a *Answer) holdsWith(t *Take, backlog *backlogState) bool {
	if !a.Allowed {
		return true
	}
	with := *a
	backlog.add(t, &with)
	for i := range t.Limits[:len(t.Limits)-t.Shadow] {
		if t.Mode != ModeRecord && with.State[i].Used+t.Cost > t.Limits[i].Quota {
			return false
		}
	}
	*a = with
	return true
}

func (r *remote) settle(ctx context.Context, s Settle, degraded bool) error {
	defer r.denials.drop(&s.Key) // an answer that was under way may have been noted meanwhile
	r.denials.drop(&s.Key)
	if degraded && r.journal.settle(s) {
		return nil // it is told when the take is
	}
	ctx = r.within(ctx, time.Now())
	return r.ask(&s.Key, func() error { return r.store.Settle(ctx, s) })
}

func (r *remote) reset(ctx context.Context, key StorageKey) error {
	defer r.denials.drop(&key)
	r.denials.drop(&key)
	ctx = r.within(ctx, time.Now())
	if run := r.journal.reset(key); run != nil {
		wait(ctx, run.done) // or it would add what it has read after the log was forgotten
	}
	return r.ask(&key, func() error { return r.store.Reset(ctx, key) })
}

// log tells the operator of the beginning and the end of an outage.
func (r *remote) log(_ string, from, to gobreaker.State) {
	over := to == gobreaker.StateClosed
	if !over && (to != gobreaker.StateOpen || from != gobreaker.StateClosed) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !over {
		if r.logs = time.Since(r.logged) >= logInterval; r.logs {
			r.logged = time.Now()
		}
	}
	if !r.logs { // an outage's end is told if its beginning was
		r.skipped++
		return
	}
	attrs := []slog.Attr{slog.String("policy", r.name), slog.String("failure", r.failure.String())}
	if r.skipped > 0 {
		attrs = append(attrs, slog.Int("lines left out", r.skipped))
	}
	r.skipped = 0
	level, text := slog.LevelInfo, "sash: the store answers again"
	if !over {
		level, text = slog.LevelError, "sash: the store does not answer, so the failure policy decides"
		attrs = append(attrs, *r.logWhy.Load()...)
	}
	slog.Default().LogAttrs(context.Background(), level, text, attrs...)
}

// logAttrs is what the log tells of an error about key. A store that names no class has not looked at its error,
// whose text may then hold whatever the store was asked.
func (e *StoreError) logAttrs(key *StorageKey) []slog.Attr {
	text, advice := typesOf(e.Err), e.Advice
	if e.Err != nil && e.Class != "" && !key.isIn(e.Err.Error()) {
		text = e.Err.Error()
	}
	if key.isIn(advice) {
		advice = ""
	}
	return []slog.Attr{slog.String("class", e.Class), slog.String("error", text), slog.String("advice", advice)}
}

// isIn reports whether a text tells whose key it is.
func (k *StorageKey) isIn(text string) bool {
	if k.addr.IsValid() {
		return strings.Contains(text, k.addr.String())
	}
	return k.kind != "all" && k.text != "" && strings.Contains(text, k.text)
}
