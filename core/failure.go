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
	// FailLocal enforces the same limits in this process, exactly, each process by itself. What it
	// admits is added to the store's logs when the store is back, at the true instants, so that an outage gives no
	// second quota. It is the default.
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
// After five failures in a row the store is asked once in a while only, by one request, so that all others are
// decided at once. A [MemoryStore] always answers.
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
// several round trips: give a store that is far away four of them at least. A request that is
// cancelled meanwhile is decided all the same, so that nobody goes uncounted by hanging up.
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
	breaker *gobreaker.CircuitBreaker[struct{}]
	denials *denials
	why     atomic.Pointer[StoreError]  // the last failure, for who is not even let near the store
	logWhy  atomic.Pointer[[]slog.Attr] // the same for the log
	start   time.Time
	failed  atomic.Int64 // when a failure was last counted, in nanoseconds since start

	// The breaker, which has a lock, is asked while something has failed since it last heard of a success.
	failures, calm atomic.Uint64 // how many there have been, counted when the breaker has heard of them; and how many before that success

	outage   *MemoryStore // what FailLocal has recorded and the store does not know yet
	bringing atomic.Bool  // a goroutine brings it there
	settled  sync.Map     // costs by id, of what was settled meanwhile
	closed   chan struct{}
	close    sync.Once

	mu      sync.Mutex
	logged  time.Time // when an outage's beginning was
	logs    bool      // ... and so its end will be
	skipped int
}

func newRemote(c *config) *remote {
	r := &remote{store: c.store, name: c.name, deadlines: deadlines{timeout: c.timeout}, failure: c.failure, closed: make(chan struct{}), start: time.Now()}
	r.denials = newDenials(c.denyCache, r.start)
	r.outage = NewMemoryStore()
	r.outage.mergeable = true
	r.why.Store(&StoreError{Err: errors.New("it has not answered")})
	r.logWhy.Store(new([]slog.Attr))
	r.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
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
func (r *remote) ask(key *StorageKey, question func() error) error {
	begun := time.Since(r.start)
	_, err := r.breaker.Execute(func() (struct{}, error) { return struct{}{}, r.count(begun, question()) })
	if isOutage(err) {
		r.failures.Add(1)
	}
	return r.reason(key, err)
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
	if same := (*sameError)(nil); errors.As(err, &same) {
		err = same.error
	}
	if err = storeError(err); isOutage(err) {
		var failed *StoreError
		errors.As(err, &failed)
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
	if failures := r.failures.Load(); failures == r.calm.Load() && r.outage.Keys() == 0 {
		err = r.direct(ctx, begun, t, a)
	} else if err = r.guarded(ctx, begun, t, a); err == nil {
		r.calm.Store(failures)
	}
	err = r.reason(&t.Key, err)
	switch {
	case err == nil:
		r.denials.note(t, a, ticket)
		return false, nil
	case errors.As(err, new(*ConfigError)) || r.failure == FailClosed:
		return false, err
	case r.failure == FailOpen:
		*a = Answer{Allowed: true}
		return true, err
	}
	*a = Answer{}
	r.outage.take(&t.Key, t, a)
	if t.Mode != ModePeek && r.bringing.CompareAndSwap(false, true) {
		go r.bringAll()
	}
	return true, err
}

// direct asks the store, and the breaker hears of it if that fails.
func (r *remote) direct(ctx context.Context, begun time.Duration, t *Take, a *Answer) (err error) {
	err = errPanicked // unless it returns
	defer func() {
		if isOutage(err) {
			err = r.count(begun, err)
			r.breaker.Execute(func() (none struct{}, _ error) { return none, err }) //nolint:errcheck // it is the same, or the breaker is open already
			r.failures.Add(1)
		}
	}()
	*a, err = r.store.Take(ctx, *t)
	return err
}

var errPanicked = errors.New("the store has panicked")

// guarded asks the store if the breaker lets it.
func (r *remote) guarded(ctx context.Context, begun time.Duration, t *Take, a *Answer) (err error) {
	err = errPanicked
	defer func() {
		if isOutage(err) {
			r.failures.Add(1)
		}
	}()
	_, err = r.breaker.Execute(func() (none struct{}, err error) { // not by ask, which would make a function more
		if r.outage.Keys() > 0 {
			err = r.bring(ctx, t, a)
		} else {
			*a, err = r.store.Take(ctx, *t)
		}
		return none, r.count(begun, err)
	})
	return err
}

func (r *remote) settle(ctx context.Context, s Settle, degraded bool) error {
	defer r.denials.drop(&s.Key) // an answer that was under way may have been noted meanwhile
	r.denials.drop(&s.Key)
	if degraded && r.outage.Keys() > 0 {
		r.settled.Store(s.ID, s.Cost)
		r.outage.Settle(ctx, s) //nolint:errcheck // it never fails
	}
	ctx = r.within(ctx, time.Now())
	// Also where the decision was made here: it may have been brought there since.
	err := r.ask(&s.Key, func() error { return r.store.Settle(ctx, s) })
	if degraded && isOutage(err) {
		return nil
	}
	return err
}

func (r *remote) reset(ctx context.Context, key StorageKey) error {
	defer r.denials.drop(&key)
	r.denials.drop(&key)
	r.outage.Reset(ctx, key) //nolint:errcheck // it never fails
	ctx = r.within(ctx, time.Now())
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

// logAttrs is what the log tells of an error about key. A store that names no class has not looked at its error, whose text
// may then hold whatever the store was asked.
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

// Close ends what the limiter does on its own: while the store is away, a goroutine waits to bring there what
// [FailLocal] has recorded, and ends by itself when it has or when that has left its window. The store stays open: it is
// yours. A closed limiter goes on deciding.
func (l *Limiter) Close() error {
	if l.remote != nil {
		l.remote.close.Do(func() { close(l.remote.closed) })
	}
	return nil
}
