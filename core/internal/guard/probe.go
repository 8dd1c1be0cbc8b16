package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// connections is how many are made in advance if a request could not make its own in time.
const connections = 24

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
func (g *Guard) reconnect(key *store.Key) {
	if g.store.lister == nil || g.isClosed() || g.hasConnected() || !g.reconnecting.CompareAndSwap(false, true) {
		return
	}
	own := cloneKey(key)
	go func() {
		defer g.reconnecting.Store(false)
		begun := time.Now()
		err := g.attempt(g.background, func(ctx context.Context) error { return g.connect(ctx, &own) })
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
func (g *Guard) probe(ctx context.Context, p pass, waiting *request) error {
	r := waiting.clone() // as the caller's memory may be reused
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
			copy(waiting.answers, answered.Load().answers)
		}
		return err
	case <-ctx.Done():
		return g.lastError.Load()
	}
}

// takeBack undoes what the store has admitted too late for its request. What cannot be undone stays counted, as any
// other take whose answer is late. Of a mode that counts denials as well, only slots are given back.
func (g *Guard) takeBack(r *request) {
	if mode := r.mode(); mode != store.ModeCharge && mode != store.ModeUpTo {
		g.giveBack(r)
		return
	}
	if g.store.settler == nil {
		return
	}
	ctx, cancel := context.WithTimeout(g.background, backgroundTimeouts*g.timeout)
	defer cancel()
	for i := range r.takes {
		if !keepsEntries(&r.takes[i]) {
			continue
		}
		protect(func() error { //nolint:errcheck // the take stays counted
			return g.store.settle(ctx, settlementOf(&r.takes[i]))
		})
	}
}
