package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

const (
	backgroundTimeouts = 8  // the duration of background calls, in timeouts: a new connection takes several round trips
	connections        = 24 // are made in advance if a request could not make its own in time
)

// isClosed reports whether the guard was closed, so that it does nothing in the background any more.
func (g *Guard) isClosed() bool { return g.background.Err() != nil }

// callFunc calls f, which makes a call to the store about key.
type callFunc func(ctx context.Context, key *store.Key, f func(context.Context) error) error

// callPatiently makes a call for which no request waits, if the breaker admits it.
func (g *Guard) callPatiently(ctx context.Context, key *store.Key, f func(context.Context) error) error {
	p, ok := g.breaker.admit()
	if !ok {
		return g.lastError.Load()
	}
	err := g.attempt(ctx, f)
	if ctx.Err() != nil { // the outcome says nothing about the store
		g.breaker.withdraw(p)
		return ctx.Err()
	}
	g.report(p, err)
	return g.noteError(err, func(text string) bool { return isIn(key, text) })
}

// callWithoutBreaker is callPatiently without the breaker.
func (g *Guard) callWithoutBreaker(ctx context.Context, key *store.Key, f func(context.Context) error) error {
	err := g.attempt(ctx, f)
	return g.noteError(err, func(text string) bool { return isIn(key, text) })
}

// attempt calls f, and calls it again while there is no answer, because the connection may be dead without an error.
// Hence f must be idempotent. Before attempt returns, it ends the calls that are still under way, so that none of them
// is executed after what the caller does next. It waits for that for a timeout at most.
func (g *Guard) attempt(parent context.Context, f func(context.Context) error) error {
	g.patient.Begin()
	defer g.patient.End()
	ctx, cancel := context.WithCancel(g.patient.Within(parent, time.Now()))
	defer context.AfterFunc(parent, cancel)()
	answers := make(chan error, backgroundTimeouts+1)
	pending := 0
	call := func() {
		pending++
		go func() { answers <- protect(func() error { return f(ctx) }) }()
	}
	defer func() {
		cancel()
		drain(answers, pending, g.timeout)
	}()
	again := time.NewTicker(max(g.timeout, retryStore))
	defer again.Stop()
	call()
	for {
		select {
		case err := <-answers:
			if pending--; pending == 0 || !store.IsOutage(err) {
				return err
			}
		case <-again.C:
			call()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drain receives n answers, for d at most.
func drain(answers <-chan error, n int, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for range n {
		select {
		case <-answers: //nolint:errcheck // another call has answered
		case <-timer.C:
			return
		}
	}
}

// connect makes several small calls at the same time, so that the store's client makes as many connections. It fails if
// all calls do.
func (g *Guard) connect(ctx context.Context, key *store.Key) error {
	answers := make(chan error, connections)
	for range connections {
		go func() {
			answers <- protect(func() error { return g.store.ping(ctx, *key) })
		}()
	}
	var failed error
	good := 0
	for range connections {
		if err := <-answers; store.IsOutage(err) {
			failed = err
		} else {
			good++
		}
	}
	if good == 0 {
		return failed
	}
	g.connected.Store(int64(time.Since(g.start)))
	return nil
}

// hasConnected reports whether connections were made a short time ago. Making more would occupy those.
func (g *Guard) hasConnected() bool {
	last := g.connected.Load()
	return last > 0 && time.Since(g.start)-time.Duration(last) < 2*max(g.timeout, retryStore)
}

// reconnect is called when a request has timed out. It makes connections with a longer timeout, so that requests find
// them when the store answers again, though slowly.
func (g *Guard) reconnect(of *store.Key) {
	if g.store.lister == nil || g.isClosed() || g.hasConnected() || !g.reconnecting.CompareAndSwap(false, true) {
		return
	}
	key := cloneKey(of)
	go func() {
		defer g.reconnecting.Store(false)
		begun := time.Now()
		err := g.attempt(g.background, func(ctx context.Context) error { return g.connect(ctx, &key) })
		// The requests failed because there were no connections, so the breaker counts anew. This happens only once
		// until a take succeeds, or else the breaker might never open.
		if err == nil && time.Since(begun) > g.timeout/4 && g.breaker.state() == closed {
			if n := g.breaker.failuresAtSuccess.Load() + 1; g.resetAt.Swap(n) != n {
				g.breaker.resetCount()
			}
		}
	}()
}

var errNotRepeated = errors.New("a take that would count twice is not repeated")

// probe asks the store about a request whose pass is the breaker's probe. The call goes on when the request has timed
// out, so that a store is detected even if it answers late or a connection has to be made first.
func (g *Guard) probe(ctx context.Context, p pass, of *request) error {
	r := of.clone() // as the caller's memory may be reused
	var asked atomic.Bool
	var answered atomic.Pointer[request]
	ended := make(chan error) // only while the request waits
	go func() {
		err := g.attempt(g.background, func(ctx context.Context) error {
			if asked.Swap(true) && !r.keepEntries() {
				return errNotRepeated
			}
			try := r.clone() // calls may overlap
			err := g.ask(ctx, try)
			if err == nil {
				answered.Store(try) // a repeated call gives the same answer
			}
			return err
		})
		g.report(p, err)
		select {
		case ended <- err:
		case <-ctx.Done():
			if err == nil && g.failure != Local && answered.Load().admitted() {
				g.takeBack(r)
			}
		}
	}()
	select {
	case err := <-ended:
		if err == nil {
			of.setAnswersOf(answered.Load())
		}
		return err
	case <-ctx.Done():
		return g.lastError.Load()
	}
}

// takeBack undoes what the store has admitted too late for its request. What cannot be undone stays counted, as any other
// take whose answer is late. Of a mode that counts denials as well, only slots are given back.
func (g *Guard) takeBack(r *request) {
	if mode := r.first.Mode; mode != store.ModeCharge && mode != store.ModeUpTo {
		g.giveBack(r)
		return
	}
	if g.store.settler == nil {
		return
	}
	ctx, cancel := context.WithTimeout(g.background, backgroundTimeouts*g.timeout)
	defer cancel()
	for i := range r.len() {
		t, _ := r.at(i)
		if !keepsEntries(t) {
			continue
		}
		protect(func() error { //nolint:errcheck // the take stays counted
			return g.store.settle(ctx, store.Settlement{Key: t.Key, ID: t.ID})
		})
	}
}

// protect turns a panic of the store into an error, because in a goroutine nothing else recovers it.
func protect(f func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanicked
		}
	}()
	return f()
}
