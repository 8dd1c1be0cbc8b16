package guard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

const (
	pageSize    = 500         // entries added to a log of the store by one call
	fewOwed     = 16          // settlements that a request waits for
	mostReplays = 32          // logs that are replayed at the same time, and settlements of one log
	mostFailed  = 16          // replays in a row, until the others are not tried
	mostRuns    = 3           // of one log in a row
	retryOne    = time.Second // after an error about one log

	tidyInterval = 10 * time.Second // of the record while the store does not answer

	// backgroundTimeouts is how long calls may take for which no request waits, in timeouts: a new connection takes
	// several round trips.
	backgroundTimeouts = 4
)

var errReplaying = &store.StoreError{
	Class: "replay", OneKey: true,
	Err:    errors.New("what was admitted without the store is still being replayed for this key"),
	Advice: "wait: the replay ends by itself",
}

var errNoAnswer = &store.StoreError{
	Class: "timeout", Err: errors.New("a call before the request was not answered in time"),
	Advice: "find out why the store is slow",
}

// run is a replay.
type run struct {
	since  time.Duration // entries of this process from then on are still to be merged
	takes  int           // that were decided here before it began
	isLong bool          // it has more than a page, so no request waits for it
	done   chan struct{} // closed when it is
	err    error         // once it is done
}

// replayFirst waits until the store has what it lacks of the logs of a request, so that it can decide it. It fails if
// that takes long. Once all logs were replayed, what is decided here is decided by requests that have waited for this,
// and nobody waits for it: where a reply takes more than half the time of a decision, there would always be something
// to wait for.
func (g *Guard) replayFirst(ctx context.Context, takes []store.Take) (waited bool, err error) {
	for i := range takes {
		for b := g.record.behind(&takes[i].Key, takes[i].Limit); b != nil; {
			waited = true
			r, err := g.startReplay(b)
			if err == nil && r.isLong {
				err = errReplaying
			}
			if err != nil {
				return waited, err
			}
			select {
			case <-r.done:
				if r.err != nil {
					return waited, r.err
				}
			case <-ctx.Done():
				if g.breaker.isFailing() {
					return waited, g.lastError.Load() // which tells why there is no answer
				}
				return waited, errNoAnswer
			}
			b = g.record.behind(&takes[i].Key, takes[i].Limit)
		}
	}
	return waited, nil
}

// startReplay starts a replay, or returns the one that is under way. It returns an error if there should be none now.
func (g *Guard) startReplay(b *backlog) (*run, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.run != nil:
		return b.run, nil
	case g.record.now() < b.retry:
		return nil, b.err
	}
	due, since := slices.Collect(maps.Keys(b.book)), b.since
	r := &run{
		since: since, takes: b.takes, isLong: b.takes > pageSize || b.due > fewOwed, done: make(chan struct{}),
	}
	b.since, b.run = nothing, r
	go func() {
		r.err = g.replay(b, due, since)
		g.record.changed(b, func() {
			if b.run, b.err = nil, r.err; r.since == nothing {
				b.takes -= r.takes
			}
			b.since = min(b.since, r.since)
			if r.err != nil && !errors.Is(r.err, errReplaying) && !store.IsOutage(r.err) {
				b.retry = g.record.now() + retryOne
			}
		})
		close(r.done)
	}()
	return r, nil
}

// replay replays what is in a backlog when it begins: the takes that are due and the entries since an instant. What is
// settled meanwhile is done by the next one.
func (g *Guard) replay(b *backlog, due []uint64, since time.Duration) error {
	// What is settled first is then found by a merge, which looks for an entry of the same cost.
	err := parallel(due, 1, func(id *uint64) error { return g.settleOwed(b, *id) })
	if err != nil {
		return err
	}
	g.record.sent.Store(int64(g.record.now())) // before the entries are read
	for page := range slices.Chunk(g.record.from(b, since), pageSize) {
		if again, err := g.mergePage(b, page); again || err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.run.since = nothing
	return nil
}

// settleOwed settles a take, which is then not owed any more unless it was settled again meanwhile: to the same cost
// too, since the renewal of a permit may have come between.
func (g *Guard) settleOwed(b *backlog, id uint64) error {
	var s store.Settlement
	changes := 0
	g.record.changed(b, func() {
		o := b.book[id]
		if o == nil || o.calls > 0 {
			return
		}
		s = store.Settlement{
			Key: b.key, Limit: b.limit, ID: id, Was: o.was, Cost: o.cost, Age: g.record.now() - o.at,
		}
		b.call(id)
		if changes = o.changes; s.Age > b.limit.Window+ageSlack { // the take has left the window
			o.isOwed, s.Limit = false, nil
			g.record.land(b, id)
		}
	})
	if s.Limit == nil {
		return nil
	}
	err := g.aside(b, event.Settle, func(ctx context.Context) error { return g.store.settler.Settle(ctx, s) })
	if g.ended(b, id, changes, err == nil); err == nil {
		g.config.Freed(&b.key)
	}
	return err
}

// mergePage adds entries to the store's log. If one of them was settled since they were read, it adds nothing, and is
// to be done again after that. It also waits for calls that may record one with the cost that it had, as the store
// would have both.
func (g *Guard) mergePage(b *backlog, page []store.Entry) (again bool, err error) {
	now := g.record.now()
	b.mu.Lock()
	for i := range page {
		page[i].Age = now - g.record.at(&page[i])
		if o := b.book[page[i].ID]; o != nil && o.isOwed {
			if again = true; o.calls > 0 {
				err = errReplaying
			}
		}
	}
	b.mu.Unlock()
	if again {
		return true, err
	}
	m := store.MergeRequest{Key: b.key, Limit: b.limit, Entries: page}
	err = g.aside(b, event.Merge, func(ctx context.Context) error { return g.store.merger.Merge(ctx, m) })
	if err != nil {
		return false, err
	}
	g.record.replayed.Add(uint64(len(page)))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run.since < nothing { // otherwise it was reset
		b.run.since = g.record.at(&page[len(page)-1])
	}
	return false, nil
}

// aside makes a call of a replay, and waits for its end even if the store leaves it, since another replay of the log
// could overtake it. A failure does not count for the breaker, as it is mostly about the node of a cluster that is
// away.
func (g *Guard) aside(b *backlog, op event.Operation, f func(context.Context) error) error {
	defer g.denials.ForgetForNow(&b.key, b.limit)
	if g.isOpen() {
		return g.lastError.Load()
	}
	patience := max(backgroundTimeouts*g.config.Timeout, pingInterval)
	ctx, cancel := context.WithTimeout(g.background, patience)
	defer cancel()
	before := g.breaker.counted.Load()
	err := g.store.call(ctx, op, f)
	ended := make(chan struct{})
	whenEnded(err, func() { close(ended) })
	<-ended
	if !store.IsOutage(err) {
		g.report(before, err)
	}
	return g.noteError(err, &b.key, b.limit)
}

// parallel calls f for each item, several at the same time, until the store has not answered most times in a row. It
// returns one of the errors.
func parallel[T any](items []T, most int64, f func(*T) error) error {
	var all sync.WaitGroup
	var next, row atomic.Int64
	var failed atomic.Pointer[error]
	for range min(mostReplays, len(items)) {
		all.Go(func() {
			for row.Load() < most {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return
				}
				switch err := f(&items[i]); {
				case store.IsOutage(err):
					row.Add(1)
					failed.Store(&err)
				case err != nil:
					failed.CompareAndSwap(nil, &err)
				default:
					row.Store(0)
				}
			}
		})
	}
	if all.Wait(); failed.Load() != nil {
		return *failed.Load()
	}
	return nil
}

// startReplays starts the goroutine that replays all backlogs, unless it runs.
func (g *Guard) startReplays() {
	if !g.replaying.Load() && g.background.Err() == nil && g.replaying.CompareAndSwap(false, true) {
		go g.replayInBackground()
	}
}

// wakeReplays has all backlogs replayed now.
func (g *Guard) wakeReplays() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// replayInBackground replays all backlogs again and again until nothing is left or the guard is closed.
func (g *Guard) replayInBackground() {
	for tidied := time.Now(); ; {
		select {
		case <-g.background.Done():
			return
		case <-g.wake:
		case <-time.After(jitter()):
		}
		if !g.isOpen() {
			unanswered := g.unanswered.Load()
			if g.replayAll(g.background) == nil { // otherwise it is repeated
				g.unanswered.CompareAndSwap(unanswered, 0)
			}
		} else if time.Since(tidied) >= tidyInterval {
			g.record.all()
			tidied = time.Now()
		}
		if g.record.backlogs.Load() > 0 {
			continue
		}
		g.replaying.Store(false)
		// What was added before the Store has started no other goroutine, so this one does it.
		if g.record.backlogs.Load() == 0 || !g.replaying.CompareAndSwap(false, true) {
			return
		}
	}
}

// replayAll replays each log, several at the same time, until the store does not answer. What is decided or settled
// meanwhile is replayed too, but not for ever.
func (g *Guard) replayAll(ctx context.Context) error {
	return parallel(g.record.all(), mostFailed, func(b **backlog) error {
		for n := 0; n < mostRuns && g.record.behind(&(*b).key, (*b).limit) == *b; n++ {
			r, err := g.startReplay(*b)
			if err != nil {
				return err
			}
			if await(ctx, r.done); ctx.Err() != nil {
				return ctx.Err()
			} else if r.err != nil {
				return r.err
			}
		}
		return nil
	})
}
