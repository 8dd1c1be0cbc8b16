package core

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

const (
	patience    = 8  // timeouts that a question lasts which no request waits for: a new connection takes several round trips
	connections = 16 // that are made before requests need them, where one of them could not make its own in time
)

// isClosed reports whether nothing may go on in the background any more.
func (r *remote) isClosed() bool { return r.lasting.Err() != nil }

// persist puts a question to the store that no request waits for, if the breaker lets it. Where that is the probe which
// closes the breaker, connections are made first that requests will need.
func (r *remote) persist(ctx context.Context, key *StorageKey, question func(context.Context) error) error {
	heard, err := r.breaker.Allow()
	if err != nil {
		return r.reason(key, err)
	}
	begun, probes := time.Since(r.start), r.breaker.State() != gobreaker.StateClosed
	err = r.attempt(ctx, key, probes, question)
	if ctx.Err() != nil { // which says nothing of the store
		heard(&sameError{ctx.Err()})
		return ctx.Err()
	}
	if probes { // nobody else has asked since it began
		begun = max(begun, time.Duration(r.failed.Load()))
	}
	r.hear(heard, begun, err)
	return r.reason(key, err)
}

// persistFreely is persist without the breaker.
func (r *remote) persistFreely(ctx context.Context, key *StorageKey, question func(context.Context) error) error {
	return r.reason(key, r.attempt(ctx, key, false, question))
}

// attempt asks, and asks again on another connection while there is no answer: one that has gone dead says nothing. The
// questions are of a kind that may be asked twice.
func (r *remote) attempt(parent context.Context, key *StorageKey, probes bool, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(parent, max(patience*r.timeout, retryStore))
	defer cancel()
	answers := make(chan error, patience+1)
	again := time.NewTicker(max(r.timeout, retryStore))
	defer again.Stop()
	var trip atomic.Int64
	ask := func() {
		asked := time.Now()
		err := Guard(func() error { return question(ctx) })
		trip.Store(int64(time.Since(asked)))
		answers <- err
	}
	go ask()
	for asking := 1; ; {
		select {
		case err := <-answers:
			if asking--; isOutage(err) && asking > 0 {
				continue
			}
			if probes && !isOutage(err) && time.Duration(trip.Load()) > r.timeout/4 && !r.hasConnected() {
				r.connect(ctx, key) //nolint:errcheck // it has answered
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
func (r *remote) connect(ctx context.Context, key *StorageKey) error {
	answers := make(chan error, connections)
	for range connections {
		go func() {
			answers <- Guard(func() error {
				_, err := r.store.Log(ctx, *key, MinWindow)
				return err
			})
		}()
	}
	var failed error
	good := 0
	for range connections {
		if err := <-answers; isOutage(err) {
			failed = err
		} else {
			good++
		}
	}
	if good == 0 {
		return failed
	}
	r.connected.Store(int64(time.Since(r.start)))
	return nil
}

// hasConnected reports whether connections were made a moment ago. More would only keep requests from using those.
func (r *remote) hasConnected() bool {
	last := r.connected.Load()
	return last > 0 && time.Since(r.start)-time.Duration(last) < 2*max(r.timeout, retryStore)
}

// reconnect is called when the store has let a request wait in vain. It looks for it with more time, so that there are
// connections when it answers again, though late.
func (r *remote) reconnect(of *StorageKey) {
	if r.isClosed() || r.hasConnected() || !r.reconnecting.CompareAndSwap(false, true) {
		return
	}
	kept := of.kept(true)
	key := kept.key() // the request's may be in memory that is used again
	go func() {
		defer r.reconnecting.Store(false)
		began := time.Now()
		err := r.attempt(r.lasting, &key, false, func(ctx context.Context) error { return r.connect(ctx, &key) })
		// It was not there for want of connections, so the failures in a row begin anew; but once only until a take succeeds.
		if err == nil && time.Since(began) > r.timeout/4 && r.breaker.State() == gobreaker.StateClosed &&
			r.forgiven.Swap(r.calm.Load()+1) != r.calm.Load()+1 {
			if heard, err := r.breaker.Allow(); err == nil {
				heard(nil)
			}
		}
	}()
}

// probe asks the store for a request when the breaker lets one through. The question goes on when the request cannot wait any
// more, so that also a store is found again whose answers come late, or to which a connection has to be made.
func (r *remote) probe(ctx context.Context, heard func(error), of *Take, a *Answer) error {
	t := *of
	key := t.Key.kept(true)
	t.Key = key.key() // the request's may be in memory that is used again
	answers := make(chan Answer, 1)
	ended := make(chan error, 1)
	var claimed atomic.Bool // by who is first: the request, or the answer
	go func() {
		begun := time.Since(r.start)
		err := r.attempt(r.lasting, &t.Key, true, func(ctx context.Context) error {
			answer, err := r.store.Take(ctx, t)
			if err == nil {
				select {
				case answers <- answer:
				default: // it is there already, and the same
				}
			}
			return err
		})
		r.hear(heard, max(begun, time.Duration(r.failed.Load())), err)
		if claimed.CompareAndSwap(false, true) {
			ended <- err
		} else if err == nil && r.failure != FailLocal && t.Mode == ModeCharge && (<-answers).Allowed {
			r.takeBack(&t)
		}
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		if claimed.CompareAndSwap(false, true) {
			return r.why.Load()
		}
		err = <-ended
	}
	if err == nil {
		*a = <-answers
	}
	return err
}

// takeBack undoes a take whose request was not admitted by it.
func (r *remote) takeBack(t *Take) {
	ctx, cancel := context.WithTimeout(r.lasting, patience*r.timeout)
	defer cancel()
	Guard(func() error { //nolint:errcheck // then it is counted, as a late one is
		return r.store.Settle(ctx, Settle{Key: t.Key, ID: t.ID})
	})
}
