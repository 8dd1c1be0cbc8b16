// Package dashboard is a live page about limiters, to be mounted in the program that has them:
//
//	var board dashboard.Board
//	limiter, err := core.New(core.PerMinute(100), core.ByIP(), core.WithObserver(board.Observe))
//	...
//	board.Add(limiter)
//	mux.Handle("/limits/", adminsOnly(dashboard.Handler(&board)))
//
// It shows what policies have admitted and denied in the last minutes, what went wrong, what stores hold, the keys with
// the most requests, and the sliding window of one key. It needs no build step, no assets from elsewhere and no
// Prometheus. It counts the decisions of this process only; for several processes use package prommetrics.
//
// Anybody who can reach the page can read it, so put authentication in front of it, as for any other page for
// administrators. Identities appear as hashes unless [WithIdentities] is given, and nothing can be changed unless
// [WithActions] is.
package dashboard

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// Board counts the decisions of limiters for the page of [Handler]. The zero Board is ready for use, and must not be
// copied. It may be used by any number of limiters and goroutines. While no page is open, a decision costs a few
// additions.
type Board struct {
	policies policies
	keys     keys

	mu       sync.Mutex
	limiters []*core.Limiter
	pages    int         // that are open
	unseen   *time.Timer // since the last one was closed
	closed   chan struct{}
	stores   []*core.Stats
	storesAt time.Time
}

// Add adds limiters whose stores and limits the page shows, and whose keys can be looked up by name. Of several
// limiters of one policy, it shows the first. The decisions of a limiter are counted whether it was added or not, if it
// has Observe as its observer.
func (b *Board) Add(limiters ...*core.Limiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range limiters {
		if l != nil && !slices.Contains(b.open(), l) {
			b.limiters = append(b.limiters, l)
		}
	}
}

// Forget forgets the limiters of a policy and what was counted for it, such as that of a customer who has left. A later
// decision begins at 0. The limiters of a policy are forgotten when they are closed; its counts stay.
func (b *Board) Forget(policy string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.policies.forget(policy)
	b.limiters = slices.DeleteFunc(b.limiters, func(l *core.Limiter) bool { return l.Inside().Policy() == policy })
	b.keys.remove(policy)
}

// Observe counts a decision. It is for [core.WithObserver].
func (b *Board) Observe(_ context.Context, e core.Event) {
	if e.Mode == store.ModePeek && e.Outcome != event.Listed && e.Outcome != event.Skipped {
		return // it was Peek, which asks for nothing; pages use it too
	}
	b.policies.add(&e)
	if e.Outcome == event.Allowed || e.Outcome == event.Denied || e.Outcome == event.Banned {
		b.keys.add(&e)
	}
}

// open drops limiters that are closed, so that they can be collected. The lock must be held.
func (b *Board) open() []*core.Limiter {
	b.limiters = slices.DeleteFunc(b.limiters, func(l *core.Limiter) bool { return l.Inside().IsClosed() })
	return b.limiters
}

// limiterOfEach returns a limiter of each policy, the first that was added.
func (b *Board) limiterOfEach() (all []*core.Limiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.open() {
		if named(all, l.Inside().Policy()) == nil {
			all = append(all, l)
		}
	}
	return all
}

// named returns the limiter of a policy, or nil.
func named(limiters []*core.Limiter, policy string) *core.Limiter {
	for _, l := range limiters {
		if l.Inside().Policy() == policy {
			return l
		}
	}
	return nil
}
