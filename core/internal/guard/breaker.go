package guard

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

const (
	failuresToOpen = 5
	pingInterval   = time.Second // plus up to half of it at random, so that processes do not ping at the same instants
	mostPings      = 2           // under way, or one that hangs would delay the others
)

func jitter() time.Duration { return pingInterval + rand.N(pingInterval/2) }

// breaker opens when calls have failed failuresToOpen times in a row, and then no calls are made but a ping about once
// a second. An answer closes it. Calls that were under way when another one failed mostly fail for the same reason, so
// they do not count.
type breaker struct {
	open     atomic.Bool
	failures atomic.Uint64
	counted  atomic.Uint64 // of the failures
	outages  atomic.Uint64 // how often it has opened

	mu  sync.Mutex
	row atomic.Int64 // failures since the last answer; changed under the lock
}

func (b *breaker) isFailing() bool { return b.row.Load() > 0 }

// failed notes that a call was not answered, before which so many failures were counted. If the breaker has opened, it
// returns how often it has, and otherwise 0.
func (b *breaker) failed(before uint64) (outage uint64) {
	b.failures.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if before < b.counted.Load() {
		return 0
	}
	b.counted.Add(1)
	if b.row.Add(1) < failuresToOpen || b.open.Load() {
		return 0
	}
	b.open.Store(true)
	return b.outages.Add(1)
}

// answered notes that a call was answered, before which so many failures were counted. It reports whether others have
// failed before. An answer to a call that has begun before the last failure does not close the breaker.
func (b *breaker) answered(before uint64) (again bool) {
	if !b.isFailing() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open.Load() && before < b.counted.Load() {
		return false
	}
	again = b.row.Swap(0) > 0
	b.open.Store(false)
	return again
}

// isOpen reports whether the store is not asked. A closed guard asks always, as it has no pings.
func (g *Guard) isOpen() bool { return g.breaker.open.Load() && !g.closing.Load() }

// report tells the breaker of the outcome of a call, before which so many failures were counted. An error that concerns
// one key shows that the store answers.
func (g *Guard) report(before uint64, err error) {
	switch {
	case store.IsOutage(err):
		if outage := g.breaker.failed(before); outage > 0 {
			g.unanswered.Add(1)
			go g.pingUntilAnswered(outage)
		}
	case g.breaker.answered(before):
		g.log.answered(g.record.lost.Load())
		g.Permits.Hasten() // the store may have lost some
		g.wakeReplays()
	}
}

// pingUntilAnswered pings the store while the breaker is open. The breaker may have closed and opened again meanwhile:
// then another goroutine pings.
func (g *Guard) pingUntilAnswered(outage uint64) {
	for g.isOpen() && g.breaker.outages.Load() == outage {
		select {
		case <-g.background.Done():
			return
		case <-time.After(jitter()):
			g.ping()
		}
	}
}

// ping asks the store for an answer, and reports the outcome to the breaker.
func (g *Guard) ping() {
	if g.pings.Load() >= mostPings {
		return
	}
	g.pings.Add(1)
	before := g.breaker.counted.Load()
	ctx, cancel := context.WithTimeout(g.background, g.config.Timeout)
	defer cancel()
	var err error
	if g.store.pinger != nil {
		err = protect(ctx, g.store.pinger.Ping)
	} else {
		peek := []store.Take{*g.lastFailed.Load()}
		err = g.store.take(ctx, peek, make([]store.Answer, 1))
	}
	whenEnded(err, func() { g.pings.Add(-1) })
	g.report(before, err)
	// The call that has failed may not have noted it yet, and Close ends a ping.
	if failed := g.lastFailed.Load(); failed != nil && g.background.Err() == nil {
		g.noteError(err, &failed.Key, failed.Limit) //nolint:errcheck // it logs an outage that began soon after another
	}
}
