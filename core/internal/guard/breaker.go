package guard

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	failuresToOpen = 5
	retryStore     = time.Second // until the store is asked again, and up to half as much more
)

// jitter keeps processes from doing at once what they do now and then.
func jitter(d time.Duration) time.Duration { return d + rand.N(d/2) }

// breaker is a circuit breaker that is told how questions to the store have ended. After failuresToOpen failures in a
// row it opens: nothing is asked any more. After retryStore it lets one question through, the probe, whose end closes
// it or keeps it open.
//
// Questions that were waiting when another failed fail by the same fault. These are coincident: they count as one.
type breaker struct {
	start  time.Time
	change func(open bool) // is called when it opens or closes, but not for a probe that fails

	// Questions need not ask the breaker, which has a lock, while nothing has failed since one succeeded.
	failures          atomic.Uint64 // heard so far
	failuresAtSuccess atomic.Uint64 // the same, when the latest question that succeeded was put

	mu         sync.Mutex
	row        int           // failures since the last success
	failed     time.Duration // when a failure was last counted, since start
	open       bool
	until      time.Duration // when the probe may be put, since start
	probing    bool
	generation uint64 // of changes: what was put before one says nothing afterwards
}

// pass is what a question has from the breaker, to tell how it has ended.
type pass struct {
	generation uint64
	failures   uint64        // when it was put
	begun      time.Duration // since the breaker's start
	probe      bool
}

type state int

const (
	closed  state = iota
	open          // nothing is asked
	waiting       // for a probe, or for the end of one
)

func (b *breaker) now() time.Duration { return time.Since(b.start) }

// quiet reports whether a question may be put without asking the breaker.
func (b *breaker) quiet() (p pass, ok bool) {
	n := b.failures.Load()
	return pass{failures: n}, n == b.failuresAtSuccess.Load()
}

func (b *breaker) state() state {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return closed
	case !b.probing && b.now() < b.until:
		return open
	}
	return waiting
}

// admit returns a pass for a question unless none may be put now.
func (b *breaker) admit() (p pass, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	p = pass{generation: b.generation, failures: b.failures.Load(), begun: now, probe: b.open}
	if b.open {
		if b.probing || now < b.until {
			return p, false
		}
		b.probing = true
	}
	return p, true
}

// unasked is told of the end of a question that was put without a pass.
func (b *breaker) unasked(begun time.Duration) {
	b.mu.Lock()
	p := pass{generation: b.generation, begun: begun}
	open := b.open
	b.mu.Unlock()
	if open {
		b.failures.Add(1)
		return
	}
	b.failure(p)
}

// success is told of a question that the store has answered.
func (b *breaker) success(p pass) {
	b.mu.Lock()
	closes := false
	if p.generation == b.generation {
		b.row = 0
		if closes = p.probe; closes {
			b.open, b.probing = false, false
			b.generation++
		}
	}
	b.mu.Unlock()
	if closes {
		b.change(false)
	}
}

// calm lets questions be put without a pass again, unless others have failed since this one was put.
func (b *breaker) calm(p pass) { b.failuresAtSuccess.Store(p.failures) }

// failure is told of a question that the store has not answered. One that was put before another failure was counted
// is coincident.
func (b *breaker) failure(p pass) {
	b.mu.Lock()
	opens := false
	now := b.now()
	switch {
	case p.generation != b.generation:
	case p.probe:
		b.probing, b.failed = false, now
		b.until = now + jitter(retryStore)
	case p.begun >= b.failed:
		b.failed = now
		if b.row++; b.row >= failuresToOpen {
			b.open, b.row, opens = true, 0, true
			b.until = now + jitter(retryStore)
			b.generation++
		}
	}
	b.mu.Unlock()
	b.failures.Add(1) // last, so that nobody takes the breaker for quiet before it has heard
	if opens {
		b.change(true)
	}
}

// withdraw is told of a question whose end says nothing of the store.
func (b *breaker) withdraw(p pass) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.probe && p.generation == b.generation {
		b.probing = false
	}
}

// forget has failures in a row begin anew.
func (b *breaker) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.row = 0
}
