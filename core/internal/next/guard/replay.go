package guard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/next/store"
)

const (
	pageSize    = 500         // entries added to a log of the store by one call
	fewOwed     = 16          // settlements that a request waits for
	mostReplays = 16          // logs that are replayed at the same time, and settlements of one log
	mostFailed  = 16          // replays in a row, until the others are not tried
	retryOne    = time.Second // after an error about one log

	// backgroundTimeouts is how long calls may take for which no request waits, in timeouts: a new connection takes
	// several round trips.
	backgroundTimeouts = 8
)

var errReplaying = &store.StoreError{
	Class: "replay", OneKey: true,
	Err:    errors.New("what was admitted without the store is still being replayed for this key"),
	Advice: "wait: the replay ends by itself",
}

// replayFirst replays what the store lacks of the logs of a request, so that the store can decide it. It fails if that
// takes long.
func (g *Guard) replayFirst(ctx context.Context, takes []store.Take) error {
	for i := 0; i < len(takes); {
		b := g.record.behind(&takes[i].Key, takes[i].Limit)
		if b == nil {
			i++
			continue
		}
		running, err := g.record.begin(b)
		switch {
		case err != nil:
			return err
		case running != nil:
			select {
			case <-running:
				continue // look again
			case <-ctx.Done():
				return errReplaying
			}
		}
		done, err := g.replay(ctx, b, true)
		if err != nil {
			return err
		} else if !done {
			g.replayAside(b)
			return errReplaying
		}
	}
	return nil
}

// replayAside replays a backlog in the background, unless that is done already.
func (g *Guard) replayAside(b *backlog) {
	if g.background.Err() != nil {
		return
	}
	if running, err := g.record.begin(b); running == nil && err == nil {
		go g.replay(g.background, b, false) //nolint:errcheck // it is done again
	}
}

// begin begins a replay, which its caller has to do, or returns the end of the one that is under way. It returns an
// error if there should be none now.
func (rec *record) begin(b *backlog) (running chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.running != nil && b.long:
		return nil, errReplaying
	case b.running != nil:
		return b.running, nil
	case rec.now() < b.retry:
		return nil, b.err
	}
	b.running = make(chan struct{})
	return nil, nil
}

// replay replays a backlog whose replay has begun. A request that waits for it replays a page at most. Done reports
// whether the store has all that it can get now.
func (g *Guard) replay(ctx context.Context, b *backlog, waited bool) (done bool, err error) {
	rec := g.record
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		close(b.running)
		b.running, b.long, b.err = nil, false, err
		if err != nil && !store.IsOutage(err) {
			b.retry = rec.now() + retryOne
		}
		rec.removeIfDone(b)
	}()
	for !done && ctx.Err() == nil {
		b.mu.Lock()
		changes, since, now := b.changes, b.since, rec.now()
		due := rec.due(b, now)
		b.merged = now
		b.mu.Unlock()
		// What is settled first is then found by a merge, which looks for an entry of the same cost.
		if waited && len(due) > fewOwed {
			return false, nil
		}
		err = parallel(due, 1, func(s *store.Settlement) error { return g.settleOwed(ctx, b, s) })
		if err != nil {
			return false, err
		}
		entries, read := rec.from(b, since), rec.now()
		if waited && len(entries) > pageSize {
			return false, nil
		}
		b.setLong(len(entries) > pageSize)
		for page := range slices.Chunk(entries, pageSize) {
			again, err := g.mergePage(ctx, b, page, read)
			if err != nil {
				return false, err
			} else if again {
				break
			}
		}
		b.setLong(false) // so that requests wait for the rest, and add nothing to it
		b.mu.Lock()
		if done = b.changes == changes; done {
			rec.takes.Add(int64(len(b.owed) - b.takes))
			b.since, b.takes = nothing, len(b.owed)
		}
		b.mu.Unlock()
	}
	return done, nil
}

// setLong has requests not wait for a replay, or wait for it again.
func (b *backlog) setLong(long bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.long = long
}

// due returns the settlements that are owed, but not those of takes of which a call is under way. The caller holds the
// lock.
func (rec *record) due(b *backlog, now time.Duration) (all []store.Settlement) {
	for id, o := range b.owed {
		if age := now - o.at; age > b.limit.Window+ageSlack { // the take has left the window
			rec.forgive(b, id)
		} else if !o.flying {
			all = append(all, store.Settlement{
				Key: b.key, Limit: b.limit, ID: id, Was: o.was, Cost: o.cost, Age: age,
			})
		}
	}
	return all
}

// settleOwed settles a take.
func (g *Guard) settleOwed(ctx context.Context, b *backlog, s *store.Settlement) error {
	err := g.aside(ctx, b, []store.Entry{{ID: s.ID}}, event.Settle, func(ctx context.Context) error {
		return g.store.settler.Settle(ctx, *s)
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	if o, ok := b.owed[s.ID]; ok && o.cost == s.Cost {
		g.record.forgive(b, s.ID)
	}
	b.mu.Unlock()
	g.freed(&b.key)
	return nil
}

// mergePage adds entries, which were read at an instant, to the store's log. If one of them was settled since then, it
// adds nothing, and is to be done again after that.
func (g *Guard) mergePage(
	ctx context.Context, b *backlog, page []store.Entry, read time.Duration,
) (again bool, err error) {
	rec, now := g.record, g.record.now()
	b.mu.Lock()
	since := b.since
	for i := range page {
		o, ok := b.owed[page[i].ID]
		if again = again || ok; ok && o.flying {
			err = errReplaying
		}
		page[i].Age += now - read
	}
	b.mu.Unlock()
	if again {
		return true, err
	}
	m := store.MergeRequest{Key: b.key, Limit: b.limit, Entries: page}
	err = g.aside(ctx, b, page, event.Merge, func(ctx context.Context) error { return g.store.merger.Merge(ctx, m) })
	if err != nil {
		return false, err
	}
	rec.replayed.Add(uint64(len(page)))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since == since { // otherwise there is something older now
		b.since = max(since, now-page[len(page)-1].Age)
	}
	return false, nil
}

// aside makes a call of a replay about takes. A failure does not count for the breaker, as it is mostly about the node of
// a cluster that is away.
func (g *Guard) aside(
	ctx context.Context, b *backlog, about []store.Entry, op event.Operation, f func(context.Context) error,
) error {
	defer g.denials.Forget(&b.key, b.limit)
	if g.isOpen() {
		return g.lastError.Load()
	}
	ctx, cancel := context.WithTimeout(ctx, max(backgroundTimeouts*g.config.Timeout, pingInterval))
	defer cancel()
	begun := g.breaker.now()
	err := g.store.call(ctx, op, f)
	var left *store.LeftError
	if errors.As(err, &left) {
		g.setFlying(b, about, left.Call)
	}
	if !store.IsOutage(err) {
		g.report(begun, err)
	}
	return g.noteError(err, &b.key, b.limit)
}

// setFlying notes that a call about takes is under way until it ends.
func (g *Guard) setFlying(b *backlog, about []store.Entry, call *store.Call) {
	takes := make([]store.Take, len(about))
	b.mu.Lock()
	for i, e := range about {
		takes[i] = store.Take{Key: b.key, Limit: b.limit, ID: e.ID}
		g.record.flights.depart(e.ID, &b.key, b.limit)
		if o, ok := b.owed[e.ID]; ok && !o.flying {
			o.flying = true
			b.owed[e.ID] = o
			b.owedNow--
		}
	}
	b.mu.Unlock()
	call.Then(func(bool, error) { g.landed(takes, true) })
}

// landed notes that a call about takes has ended, and has those settled that are to be.
func (g *Guard) landed(takes []store.Take, recorded bool) {
	for i := range takes {
		t := &takes[i]
		if due := g.record.landed(t.ID, &t.Key, t.Limit, recorded); due != nil {
			g.replayAside(due)
		}
	}
}

// parallel calls f for each item, several at the same time, until the store has not answered so many times in a row. It
// returns one of the errors.
func parallel[T any](items []T, mostFailed int64, f func(*T) error) error {
	var all sync.WaitGroup
	var next, row atomic.Int64
	var failed atomic.Pointer[error]
	for range min(mostReplays, len(items)) {
		all.Go(func() {
			for row.Load() < mostFailed {
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
	for {
		timer := time.NewTimer(jitter())
		select {
		case <-g.background.Done():
			timer.Stop()
			return
		case <-g.wake:
			timer.Stop()
		case <-timer.C:
		}
		if !g.isOpen() && (!g.breaker.failing.Load() || g.ping() == nil) {
			g.replayAll(g.background) //nolint:errcheck // it is repeated
		}
		if g.record.backlogs.Load() > 0 {
			continue
		}
		if lost := g.record.lost.Load(); lost > g.lostLogged {
			g.log.lost(lost - g.lostLogged)
			g.lostLogged = lost
		}
		g.replaying.Store(false)
		// What was added before the Store has started no other goroutine, so this one does it.
		if g.record.backlogs.Load() == 0 || !g.replaying.CompareAndSwap(false, true) {
			return
		}
	}
}

// replayAll replays each log once, several at the same time, until the store does not answer.
func (g *Guard) replayAll(ctx context.Context) (err error) {
	for page := range g.record.pages {
		failed := parallel(page, mostFailed, func(b **backlog) error {
			if running, err := g.record.begin(*b); running != nil || err != nil {
				return err
			}
			_, err := g.replay(ctx, *b, false)
			return err
		})
		if err = cmp.Or(failed, err); ctx.Err() != nil || g.isOpen() {
			return err
		}
	}
	return err
}
