package guard

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

const (
	patience    = 8  // timeouts that a question lasts which no request waits for: a new connection takes several round trips
	connections = 16 // that are made before requests need them, where one of them could not make its own in time
)

// isClosed reports whether nothing may go on in the background any more.
func (g *Guard) isClosed() bool { return g.lasting.Err() != nil }

// persist puts a question to the store that no request waits for, if the breaker lets it. Where that is the probe which
// closes the breaker, connections are made first that requests will need.
func (g *Guard) persist(ctx context.Context, key *store.Key, question func(context.Context) error) error {
	p, ok := g.breaker.admit()
	if !ok {
		return g.lastError.Load()
	}
	err := g.attempt(ctx, key, p.probe, question)
	if ctx.Err() != nil { // which says nothing of the store
		g.breaker.withdraw(p)
		return ctx.Err()
	}
	g.told(p, err)
	return g.explain(key, err)
}

// persistFreely is persist without the breaker.
func (g *Guard) persistFreely(ctx context.Context, key *store.Key, question func(context.Context) error) error {
	return g.explain(key, g.attempt(ctx, key, false, question))
}

// attempt asks, and asks again on another connection while there is no answer: one that has gone dead says nothing. The
// questions are of a kind that may be asked twice.
func (g *Guard) attempt(parent context.Context, key *store.Key, probes bool, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(parent, max(patience*g.timeout, retryStore))
	defer cancel()
	answers := make(chan error, patience+1)
	again := time.NewTicker(max(g.timeout, retryStore))
	defer again.Stop()
	var trip atomic.Int64
	ask := func() {
		asked := time.Now()
		err := protect(func() error { return question(ctx) })
		trip.Store(int64(time.Since(asked)))
		answers <- err
	}
	go ask()
	for asking := 1; ; {
		select {
		case err := <-answers:
			if asking--; store.IsOutage(err) && asking > 0 {
				continue
			}
			if probes && !store.IsOutage(err) && time.Duration(trip.Load()) > g.timeout/4 && g.lister != nil && !g.hasConnected() {
				g.connect(ctx, key) //nolint:errcheck // it has answered
			}
			return err
		case <-again.C:
			asking++
			go ask()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connect asks something small several times at once, so that as many connections are made. It fails if all do.
func (g *Guard) connect(ctx context.Context, key *store.Key) error {
	answers := make(chan error, connections)
	for range connections {
		go func() {
			answers <- protect(func() error {
				_, err := g.lister.Log(ctx, *key, time.Millisecond)
				return err
			})
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

// hasConnected reports whether connections were made a moment ago. More would only keep requests from using those.
func (g *Guard) hasConnected() bool {
	last := g.connected.Load()
	return last > 0 && time.Since(g.start)-time.Duration(last) < 2*max(g.timeout, retryStore)
}

// reconnect is called when the store has let a request wait in vain. It looks for it with more time, so that there are
// connections when it answers again, though late.
func (g *Guard) reconnect(of *store.Key) {
	if g.lister == nil || g.isClosed() || g.hasConnected() || !g.reconnecting.CompareAndSwap(false, true) {
		return
	}
	kept := of.Stored(true)
	key := kept.Key() // the request's may be in memory that is used again
	go func() {
		defer g.reconnecting.Store(false)
		began := time.Now()
		err := g.attempt(g.lasting, &key, false, func(ctx context.Context) error { return g.connect(ctx, &key) })
		// It was not there for want of connections, so the failures in a row begin anew; but once only until a take succeeds.
		if err == nil && time.Since(began) > g.timeout/4 && g.breaker.state() == closed {
			if n := g.breaker.failuresAtSuccess.Load() + 1; g.forgiven.Swap(n) != n {
				g.breaker.forget()
			}
		}
	}()
}

// probe asks the store for a request when the breaker lets one through. The question goes on when the request cannot wait any
// more, so that also a store is found again whose answers come late, or to which a connection has to be made.
func (g *Guard) probe(ctx context.Context, p pass, of *store.Take, a *store.Answer) error {
	t := *of
	key := t.Key.Stored(true)
	t.Key = key.Key() // the request's may be in memory that is used again
	answers := make(chan store.Answer, 1)
	ended := make(chan error, 1)
	var claimed atomic.Bool // by who is first: the request, or the answer
	go func() {
		err := g.attempt(g.lasting, &t.Key, true, func(ctx context.Context) error {
			answer, err := g.store.Take(ctx, t)
			if err == nil {
				select {
				case answers <- answer:
				default: // it is there already, and the same
				}
			}
			return err
		})
		g.told(p, err)
		if claimed.CompareAndSwap(false, true) {
			ended <- err
		} else if err == nil && g.failure != Local && t.Mode == store.ModeCharge && (<-answers).Allowed {
			g.takeBack(&t)
		}
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		if claimed.CompareAndSwap(false, true) {
			return g.lastError.Load()
		}
		err = <-ended
	}
	if err == nil {
		*a = <-answers
	}
	return err
}

// takeBack undoes a take whose request was not admitted by it.
func (g *Guard) takeBack(t *store.Take) {
	if g.settler == nil {
		return // it stays counted, as a late one does
	}
	ctx, cancel := context.WithTimeout(g.lasting, patience*g.timeout)
	defer cancel()
	protect(func() error { //nolint:errcheck // then it is counted, as a late one is
		return g.settler.Settle(ctx, store.Settlement{Key: t.Key, ID: t.ID})
	})
}

// protect makes a panic of the store an error: nobody would recover it in a goroutine.
func protect(question func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanicked
		}
	}()
	return question()
}
