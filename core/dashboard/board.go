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
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/metricsum"
	"github.com/sashlimit/sash/core/store"
)

const (
	interval = time.Second     // between samples
	forget   = 2 * time.Minute // after the last page was closed, what is known about keys is forgotten
)

// Board counts the decisions of limiters for the page of [Handler]. The zero Board is ready for use, and must not be
// copied. It may be used by any number of limiters and goroutines.
//
// While no page is open, a decision costs a few additions, and one goroutine wakes up once a second until there has
// been no decision for five minutes.
type Board struct {
	events   metricsum.Events
	observed atomic.Uint64 // how many events there were
	running  atomic.Bool   // a goroutine reads the counts
	keys     keys

	readOverrides reads[core.KeyOverride]
	readVersions  reads[engine.Version]

	mu       sync.Mutex
	policies map[string]*policy
	limiters []added
	pages    map[*page]struct{}
	seen     uint64 // of observed
	quiet    int    // seconds without a decision
	unseen   int    // seconds without a page
	closed   chan struct{}
	stores   []*core.Stats
	storesAt time.Time
}

// added is a limiter with the name of its policy and its limits.
type added struct {
	*core.Limiter

	policy, limits string
}

// Add adds limiters whose stores and limits the page shows, and whose keys can be looked up by name. Of several
// limiters of one policy, it shows the first. The decisions of a limiter are counted whether it was added or not, if it
// has Observe as its observer.
func (b *Board) Add(limiters ...*core.Limiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range limiters {
		if l != nil && !slices.ContainsFunc(b.limiters, func(a added) bool { return a.Limiter == l }) {
			b.limiters = append(b.limiters, added{l, l.Inside().Policy(), l.Inside().Limits()})
		}
	}
}

// Forget forgets the limiters of a policy and what was counted for it, such as that of a customer who has left. A later
// decision begins at 0. The limiters of a policy are forgotten when they are closed; its counts stay.
func (b *Board) Forget(policy string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events.Forget(policy)
	b.limiters = slices.DeleteFunc(b.limiters, func(a added) bool { return a.policy == policy })
	delete(b.policies, policy)
	b.keys.remove(policy)
}

// Observe counts a decision. It is for [core.WithObserver].
func (b *Board) Observe(_ context.Context, e core.Event) {
	if e.Mode == store.ModePeek && e.Outcome != event.Listed && e.Outcome != event.Skipped {
		return // it was Peek, which asks for nothing; pages use it too
	}
	b.events.Add(&e)
	b.observed.Add(1)
	if e.Outcome == event.Allowed || e.Outcome == event.Denied || e.Outcome == event.Banned {
		b.keys.add(&e)
	}
	if !b.running.Load() && b.running.CompareAndSwap(false, true) {
		go b.run()
	}
}

// run reads the counts once a second, until nothing happens any more and nobody looks.
func (b *Board) run() {
	for range time.Tick(interval) {
		if b.sample() {
			continue
		}
		b.running.Store(false)
		if !b.changed() || !b.running.CompareAndSwap(false, true) {
			return // a decision that comes now starts another goroutine
		}
	}
}

// sample moves the counts into the histories and tells the pages. It reports whether it has to be called again. It
// drops limiters that are closed, so that they can be collected.
func (b *Board) sample() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limiters = slices.DeleteFunc(b.limiters, func(a added) bool { return a.Inside().IsClosed() })
	b.seen = b.observed.Load()
	if b.quiet++; b.addSecond() {
		b.quiet = 0
	}
	b.keys.tick()
	if b.unseen++; len(b.pages) > 0 {
		b.unseen = 0
		b.send()
	} else if time.Duration(b.unseen)*interval >= forget {
		b.keys.forget()
	}
	return b.quiet < seconds || b.unseen < int(forget/interval)
}

// changed reports whether there is something to read.
func (b *Board) changed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pages) > 0 || b.observed.Load() != b.seen
}

// limiterOf returns a limiter that was added, by the name of its policy, or nil.
func (b *Board) limiterOf(name string) *core.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.limiters {
		if a.policy == name {
			return a.Limiter
		}
	}
	return nil
}
