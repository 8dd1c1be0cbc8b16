package guard

import (
	"context"
	"errors"
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
	start time.Time

	failing  atomic.Bool // a call has failed, and none was answered since
	open     atomic.Bool
	failures atomic.Uint64
	outages  atomic.Uint64 // how often it has opened

	mu   sync.Mutex
	row  int           // failures since the last answer
	last time.Duration // when one was counted last, since start
}

func (b *breaker) now() time.Duration { return time.Since(b.start) }

// failed notes that a call was not answered that has begun at an instant. It reports whether the breaker has opened.
func (b *breaker) failed(begun time.Duration) (opened bool) {
	b.failures.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last > 0 && begun < b.last {
		return false
	}
	b.last = b.now()
	b.row++
	b.failing.Store(true)
	if b.row < failuresToOpen || b.open.Load() {
		return false
	}
	b.outages.Add(1)
	b.open.Store(true)
	return true
}

// answered notes that a call was answered. It reports whether others have failed before. An answer to a call that has
// begun before the last failure does not close the breaker.
func (b *breaker) answered(begun time.Duration) (again bool) {
	if !b.failing.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open.Load() && begun < b.last {
		return false
	}
	again = b.failing.Swap(false)
	b.row = 0
	b.open.Store(false)
	return again
}

// isOpen reports whether the store is not asked. A closed guard asks always, as it has no pings.
func (g *Guard) isOpen() bool { return g.breaker.open.Load() && !g.closing.Load() }

// report tells the breaker of the outcome of a call. An error that concerns one key shows that the store answers.
func (g *Guard) report(begun time.Duration, err error) {
	switch {
	case store.IsOutage(err):
		if g.breaker.failed(begun) {
			g.unanswered.Add(1)
			go g.pingUntilAnswered()
		}
	case g.breaker.answered(begun):
		g.log.answered()
		g.Permits.Hasten() // the store may have lost some
		g.wakeReplays()
	}
}

// pingUntilAnswered pings the store while the breaker is open.
func (g *Guard) pingUntilAnswered() {
	for g.isOpen() {
		select {
		case <-g.background.Done():
			return
		case <-time.After(jitter()):
			g.ping() //nolint:errcheck // whether it is open tells
		}
	}
}

var errPings = errors.New("earlier pings are still under way")

// ping asks the store for an answer, and reports the outcome to the breaker.
func (g *Guard) ping() error {
	if g.pings.Load() >= mostPings {
		return errPings
	}
	g.pings.Add(1)
	begun := g.breaker.now()
	ctx, cancel := context.WithTimeout(g.background, g.config.Timeout)
	defer cancel()
	var err error
	if g.store.pinger != nil {
		err = protect(ctx, g.store.pinger.Ping)
	} else {
		peek := []store.Take{*g.lastFailed.Load()}
		err = g.store.take(ctx, peek, make([]store.Answer, 1))
	}
	var left *store.LeftError
	if errors.As(err, &left) {
		left.Then(func(bool, error) { g.pings.Add(-1) })
	} else {
		g.pings.Add(-1)
	}
	g.report(begun, err)
	// The call that has failed may not have noted it yet, and Close ends a ping.
	if failed := g.lastFailed.Load(); failed != nil && g.background.Err() == nil {
		g.noteError(err, &failed.Key, failed.Limit) //nolint:errcheck // it logs an outage that began soon after another
	}
	return err
}
