package guard

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	failuresToOpen = 5
	retryStore     = time.Second // an open breaker waits this long before a probe, plus a jitter of up to half of it
)

// jitter returns retryStore plus up to half of it at random, so that processes do not retry at the same instants.
func jitter() time.Duration { return retryStore + rand.N(retryStore/2) }

// breaker is a circuit breaker to which the outcomes of calls to the store are reported. It opens after
// failuresToOpen consecutive failures and then admits no calls. After retryStore it is half-open: it admits one call,
// the probe. If the probe succeeds, the breaker closes; if it fails, the breaker stays open for another retryStore.
// Calls for which no request waits take turns of their own: they are mostly about the node of a cluster that has
// failed, and would keep requests from finding out that other nodes answer.
//
// Calls that were in flight when another one failed usually fail for the same reason. Such failures are coincident and
// count once.
type breaker struct {
	start     time.Time
	onChange  func(open bool) // is called when the breaker opens or closes, but not when a probe fails
	onSuccess func()          // is called when a call has succeeded after others had failed

	// While nothing has failed since a call that succeeded began, calls bypass the breaker, because it takes a lock.
	failures          atomic.Uint64 // reported so far
	failuresAtSuccess atomic.Uint64 // the value of failures when the last call that succeeded began

	mu          sync.Mutex
	consecutive int           // failures since the last success
	excused     bool          // so were failures that do not count any more
	successes   uint64        // of calls that were admitted
	lastFailure time.Duration // when a failure was last counted, since start
	open        bool
	turns       [2]turn
	generation  uint64 // is incremented on each change; outcomes of calls that began before it are ignored
}

// The turns of a breaker are of calls for which a request waits, and of others.
const (
	awaited = iota
	aside
)

// turn is when a probe is admitted.
type turn struct {
	retryAt time.Duration // since start
	probing bool          // it is in flight
}

// pass describes an admitted call. The caller reports the outcome of the call with it.
type pass struct {
	generation uint64
	failures   uint64        // the breaker's failures when the call began
	begun      time.Duration // since the breaker's start
	probe      bool
	turn       int
	bypassed   bool // the breaker was not asked; only a failure is reported
}

type state int

const (
	closed   state = iota
	open           // no call is admitted
	halfOpen       // a probe is admitted or in flight
)

func (s state) String() string { return [...]string{"closed", "open", "half open"}[s] }

func (b *breaker) now() time.Duration { return time.Since(b.start) }

// isBypassed reports whether calls are made without admit.
func (b *breaker) isBypassed() bool { return b.failures.Load() == b.failuresAtSuccess.Load() }

func (b *breaker) state() state {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return closed
	case !b.turns[awaited].probing && b.now() < b.turns[awaited].retryAt:
		return open
	}
	return halfOpen
}

// admit returns a pass for a call, or false if the breaker admits none now.
func (b *breaker) admit() (p pass, ok bool) { return b.admitIn(awaited) }

// admitIn is admit in one of the turns.
func (b *breaker) admitIn(turn int) (p pass, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	p = pass{generation: b.generation, failures: b.failures.Load(), begun: now, probe: b.open, turn: turn}
	if t := &b.turns[turn]; b.open {
		if t.probing || now < t.retryAt {
			return p, false
		}
		t.probing = true
	}
	return p, true
}

// success reports that the store has answered a call. Calls may then bypass the breaker, unless another one has failed
// since this one began.
func (b *breaker) success(p pass) {
	b.failuresAtSuccess.Store(p.failures)
	b.mu.Lock()
	b.successes++
	closes, ends := false, false
	if p.generation == b.generation {
		ends = b.consecutive > 0
		b.consecutive, b.excused = 0, false
		if closes = p.probe; closes {
			b.open, b.turns = false, [2]turn{}
			b.generation++
		}
	}
	b.mu.Unlock()
	if closes {
		b.onChange(false)
	}
	if ends {
		b.onSuccess()
	}
}

// isFailing reports whether a call has failed and none has succeeded since then.
func (b *breaker) isFailing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.consecutive > 0
}

// failure reports that the store has not answered a call. If the call began before the last failure that was counted,
// its own is coincident.
func (b *breaker) failure(p pass) {
	b.mu.Lock()
	opens := false
	now := b.now()
	switch {
	case p.bypassed && b.open, !p.bypassed && p.generation != b.generation:
	case p.probe:
		b.lastFailure = now
		b.turns[p.turn] = turn{retryAt: now + jitter()}
	case p.begun >= b.lastFailure:
		b.lastFailure = now
		if b.consecutive++; b.consecutive >= failuresToOpen {
			b.open, opens = true, true
			b.turns[awaited].retryAt = now + jitter()
			b.turns[aside] = b.turns[awaited]
			b.generation++
		}
	}
	b.mu.Unlock()
	b.failures.Add(1) // comes last, so that a call which sees it finds the failure counted
	if opens {
		b.onChange(true)
	}
}

// watch ends the bypass until a call succeeds. It returns how many calls have succeeded so far.
func (b *breaker) watch() (successes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failuresAtSuccess.Store(b.failures.Load() - 1)
	return b.successes
}

// suspect makes the next failure open the breaker: a call was made twice, each time for longer than usual. It does not
// if a call has succeeded since the second one began and watch was called, as other nodes of a cluster may answer.
func (b *breaker) suspect(successes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.successes == successes {
		b.consecutive = max(b.consecutive, failuresToOpen-1)
	}
}

// excuse forgets all failures but one. It does so only once until a call succeeds, or else the breaker might never
// open.
func (b *breaker) excuse() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.excused {
		b.consecutive, b.excused = min(b.consecutive, 1), true
	}
}
