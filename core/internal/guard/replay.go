package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

const (
	maxReplays    = 4                // keys that replayAll replays at the same time
	retryReplay   = retryStore / 4   // how often replayInBackground looks whether an open breaker admits a probe
	tidyJournal   = 10 * time.Second // how often the journal is tidied during an outage
	closeTimeout  = 5 * time.Second  // of Close
	closeAttempts = 2                // of Close, since the first call may be on a dead connection
)

var errReplaying = &store.StoreError{
	Err: errors.New("what was admitted without the store is still being replayed for this key"), OneKey: true,
}

// replay replays a backlog part by part, for the caller that has started its run.
func (g *Guard) replay(ctx context.Context, b *backlog, call callFunc) (err error) {
	defer func() { g.journal.endReplay(b, err) }()
	for err == nil {
		p := g.journal.nextPart(b)
		if len(p.entries) == 0 {
			return nil
		}
		if err = g.merge(ctx, b, p, call); err == nil {
			err = g.settle(ctx, b, p, call)
		}
		if err == nil {
			err = ctx.Err()
		}
	}
	return err
}

// startReplay replays a key's backlog in the background, or, after Close, before it returns. It reports whether it has
// started the replay, or else returns the one in progress.
func (g *Guard) startReplay(ctx context.Context, key *store.Key) (r *run, started bool) {
	b, r := g.journal.beginReplay(key)
	if b == nil {
		return r, false
	}
	if g.isClosed() {
		g.replay(ctx, b, g.callPatiently) //nolint:errcheck // r has it
		return r, true
	}
	go func() {
		g.replaySlots <- struct{}{}
		defer func() { <-g.replaySlots }()
		g.replay(g.background, b, g.callPatiently) //nolint:errcheck // r has it
	}()
	return r, true
}

// merge adds a part to the store's log. It marks the part at once, so that it is not merged again if later calls fail.
func (g *Guard) merge(ctx context.Context, b *backlog, p part, call callFunc) error {
	var added []journalEntry
	for _, e := range p.entries {
		if e.cost > 0 && e.delivery != delivered {
			added = append(added, e)
		}
	}
	if len(added) == 0 {
		return nil
	}
	err := call(ctx, &b.key, func(ctx context.Context) error {
		m := store.MergeRequest{Key: b.key, Keep: p.keep, Varies: p.varies}
		now := g.journal.now() // the ages are those at the time of each attempt
		for _, e := range added {
			m.Entries = append(m.Entries, store.Entry{ID: e.id, Cost: int(e.cost), Age: time.Duration(now - e.at)})
		}
		return g.store.merge(ctx, m)
	})
	if err == nil {
		g.journal.replayed.Add(uint64(len(added)))
		g.journal.markMerged(b, p)
		g.denials.markStale(&b.key)
	}
	return err
}

// settle changes the costs of a part's entries in the store, if they were settled.
func (g *Guard) settle(ctx context.Context, b *backlog, p part, call callFunc) error {
	for _, e := range p.entries {
		if !e.settled {
			continue
		}
		s := store.Settlement{Key: b.key, ID: e.id, Cost: int(e.cost)}
		if err := call(ctx, &b.key, func(ctx context.Context) error { return g.store.settle(ctx, s) }); err != nil {
			return err
		}
		g.journal.markSettled(b, e)
		g.denials.invalidate(&b.key)
	}
	return nil
}

// replayInBackground replays all keys again and again until the journal is empty or the guard is closed.
func (g *Guard) replayInBackground() {
	wait, tidied := jitter(), time.Now()
	for {
		select {
		case <-g.closed:
			return
		case <-time.After(wait):
		}
		if g.breaker.state() != open {
			g.replayAll(g.background, g.callPatiently, false) //nolint:errcheck // it is repeated
		}
		wait = jitter()
		if g.breaker.state() != closed {
			wait = retryReplay
		}
		if g.journal.entries.Load() == 0 || time.Since(tidied) >= tidyJournal {
			g.journal.tidy()
			tidied = time.Now()
		}
		if g.journal.entries.Load() == 0 {
			g.logLost()
			g.replaying.Store(false)
			// Entries added before the Store have started no other goroutine, so this one handles them.
			if g.journal.entries.Load() == 0 || !g.replaying.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

// replayAll replays each key once, several at the same time, until the store does not answer. If the breaker is not
// closed, the first replay is the probe. Keys whose replay is in progress are skipped, unless this is the last call:
// then it waits for them and replays what remains. It returns the error of one of the replays that have failed.
func (g *Guard) replayAll(ctx context.Context, call callFunc, last bool) error {
	var all sync.WaitGroup
	var outage atomic.Bool
	var failed atomic.Pointer[error]
	slots := make(chan struct{}, maxReplays)
	alone := g.breaker.state() != closed
	for b := range g.journal.all() {
		if outage.Load() || ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := g.replayOne(ctx, &b.key, call, last); err != nil {
				failed.Store(&err)
				if store.IsOutage(err) {
					outage.Store(true)
				}
			}
		})
		if alone {
			all.Wait()
			alone = false
		}
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// replayOne is replayAll for one key.
func (g *Guard) replayOne(ctx context.Context, key *store.Key, call callFunc, last bool) error {
	b, run := g.journal.beginReplay(key)
	for last && run != nil && b == nil && wait(ctx, run.done) {
		b, run = g.journal.beginReplay(key)
	}
	if b == nil {
		return nil
	}
	return g.replay(ctx, b, call)
}

// logLost logs how many units could not be replayed.
func (g *Guard) logLost() {
	if lost := g.journal.lost.Load(); lost > g.lostLogged {
		slog.Default().LogAttrs(context.Background(), slog.LevelWarn,
			"sash: not all that was admitted without the store could be replayed",
			slog.String("policy", g.log.policy), slog.Uint64("units", lost-g.lostLogged),
			slog.String("advice", "the outage had more keys than WithFailLocalKeys has room for"))
		g.lostLogged = lost
	}
}

// Close replays the journal, for closeTimeout at most, and ends the guard's goroutines. The error says how many units
// were not replayed; later calls return the same error. A closed guard still decides.
func (g *Guard) Close() error {
	g.closing.Do(func() { g.closeErr = g.finish() })
	return g.closeErr
}

func (g *Guard) finish() error {
	close(g.closed)
	defer g.cancel()
	g.journal.tidy()
	if g.journal.entries.Load() == 0 || g.failure != Local {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var err error
	for range closeAttempts {
		err = g.replayAll(ctx, g.callWithoutBreaker, true)
		if g.journal.tidy(); g.journal.entries.Load() == 0 {
			return nil
		}
	}
	units, corrections, leaves := g.journal.remaining()
	time.AfterFunc(leaves+time.Second, g.journal.tidy)
	return fmt.Errorf("sash: Close: %d %s admitted without the store and %d %s not been replayed: %w",
		units, plural(units, "unit", "units"), corrections, plural(corrections, "correction has", "corrections have"),
		cmp.Or(err, error(g.lastError.Load())))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
