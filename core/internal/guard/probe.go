package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// connections is how many are made in advance if a request could not make its own in time.
const connections = 24

// reconnect is called when a request has timed out. It makes connections with a longer timeout, so that requests find
// them when the store answers again, though slowly: it makes several small calls at the same time, and the store's
// client a connection for each. It does not while it may have made some a short time ago, since more would occupy them.
func (g *Guard) reconnect(key *store.Key) {
	now, last := g.breaker.now(), g.reconnected.Load()
	if g.store.lister == nil || g.isClosed() ||
		last > 0 && now-time.Duration(last) < g.patience || !g.reconnected.CompareAndSwap(last, int64(now)) {
		return
	}
	own := cloneKey(key)
	go func() {
		err := g.attempt(g.background, func(ctx context.Context) (err error) {
			answers := make(chan error, connections)
			for range connections {
				go func() { answers <- protect(func() error { return g.ping(ctx, own) }) }()
			}
			for i := range connections {
				if answer := <-answers; i == 0 || !store.IsOutage(answer) {
					err = answer
				}
			}
			return err
		})
		if err == nil && g.breaker.now()-now > g.timeout/4 { // requests have failed because there were none
			g.breaker.excuse()
		}
	}()
}

// ping makes a call that changes nothing.
func (g *Guard) ping(ctx context.Context, key store.Key) error {
	return g.store.call(ctx, event.Log, func(ctx context.Context) error {
		_, err := g.store.lister.Log(ctx, key, time.Millisecond)
		return err
	})
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

// takeBack removes what the store has admitted too late for its request. What cannot be removed stays counted, as any
// other take whose answer is late.
func (g *Guard) takeBack(r *request) {
	if mode := r.mode(); mode != store.ModeCharge && mode != store.ModeUpTo {
		return
	}
	for i := range r.takes {
		if t := &r.takes[i]; keepsEntries(t) {
			g.record.remove(t)
		}
	}
}
