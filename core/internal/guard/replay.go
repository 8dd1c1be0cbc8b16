package guard

import (
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
	replayedAtOnce = 500              // units that one question adds to a log of the store
	replays        = 4                // keys that are replayed at the same time on their own
	replaysAsked   = 16               // ... and because requests ask for them
	retryReplay    = retryStore / 4   // until the breaker is asked again whether the store may be
	tidyJournal    = 10 * time.Second // while the store is away
	closeTimeout   = 5 * time.Second  // of Close
	closePasses    = 2                // ... in which it asks so often, since a first question may find a dead connection
)

var errReplaying = &store.StoreError{
	Err: errors.New("what was admitted without the store is still being replayed for this key"), OneKey: true,
}

// replay tells the store what it does not know of a key, part by part.
func (g *Guard) replay(ctx context.Context, key *store.Key, b *backlog, run *run, ask asker) {
	var err error
	defer func() { g.journal.end(key, run, err) }()
	for err == nil {
		p := g.journal.part(key, b, replayedAtOnce)
		if len(p.entries) == 0 {
			return
		}
		if err = g.merge(ctx, b, p, ask); err == nil {
			err = g.correct(ctx, b, p, ask)
		}
		if err == nil {
			err = ctx.Err()
		}
	}
}

// replayKey has a key's backlog replayed in the background, or, after Close, within the request. It reports whether it
// was not under way already.
func (g *Guard) replayKey(ctx context.Context, of *store.Key) (under *run, started bool) {
	b, under, started := g.journal.begin(of)
	if !started {
		return under, false
	}
	key := b.key.Key() // the caller's may be in memory that is used again
	if g.isClosed() {
		g.replay(ctx, &key, b, under, g.persist)
		return under, true
	}
	go func() {
		g.slots <- struct{}{}
		defer func() { <-g.slots }()
		g.replay(g.lasting, &key, b, under, g.persist)
	}()
	return under, true
}

// asker is persist, or persistFreely.
type asker func(ctx context.Context, key *store.Key, question func(context.Context) error) error

// merge adds a part to the store's log. It is marked at once, whatever becomes of the questions after that.
func (g *Guard) merge(ctx context.Context, b *backlog, p part, ask asker) error {
	m := store.MergeRequest{Key: *p.key, Keep: p.keep, Varies: p.varies}
	var instants []int64
	for _, e := range p.entries {
		if e.cost > 0 && e.fate != fateStored {
			m.Entries = append(m.Entries, store.Entry{ID: e.id, Cost: int(e.cost)})
			instants = append(instants, e.at)
		}
	}
	if len(m.Entries) == 0 {
		return nil
	}
	err := ask(ctx, p.key, func(ctx context.Context) error {
		try, now := m, g.journal.now() // ages grow from one attempt to the next
		try.Entries = make([]store.Entry, len(m.Entries))
		for i, e := range m.Entries {
			try.Entries[i] = store.Entry{ID: e.ID, Cost: e.Cost, Age: time.Duration(now - instants[i])}
		}
		return g.merger.Merge(ctx, try)
	})
	if err == nil {
		g.journal.merged(b, p)
		g.denials.longer(p.key)
	}
	return err
}

// correct tells the store what was settled of a part: it may know another cost.
func (g *Guard) correct(ctx context.Context, b *backlog, p part, ask asker) error {
	for _, e := range p.entries {
		if !e.set {
			continue
		}
		s := store.Settlement{Key: *p.key, ID: e.id, Cost: int(e.cost)}
		if err := ask(ctx, p.key, func(ctx context.Context) error { return g.settler.Settle(ctx, s) }); err != nil {
			return err
		}
		g.journal.settled(p.key, b, e)
		g.denials.drop(p.key)
	}
	return nil
}

// replayInBackground tries until all is replayed or has left its window.
func (g *Guard) replayInBackground() {
	wait, tidied := jitter(retryStore), time.Now()
	for {
		select {
		case <-g.closed:
			return
		case <-time.After(wait):
		}
		if g.breaker.state() != open {
			g.replayAll(g.lasting, g.persist, false)
		}
		wait = jitter(retryStore)
		if g.breaker.state() != closed {
			wait = retryReplay
		}
		if g.journal.count.Load() == 0 || time.Since(tidied) >= tidyJournal {
			g.journal.tidy()
			tidied = time.Now()
		}
		if g.journal.count.Load() == 0 {
			g.tellLost()
			g.replaying.Store(false)
			// Whoever has recorded something in between has seen that somebody is at it.
			if g.journal.count.Load() == 0 || !g.replaying.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

// replayAll replays each key once, several at the same time, until the store does not answer. Where the breaker is not
// closed, the first is the probe. Keys that are being replayed already are left out, unless this is the last time.
func (g *Guard) replayAll(ctx context.Context, ask asker, last bool) {
	var all sync.WaitGroup
	var away atomic.Bool
	slots := make(chan struct{}, replays)
	alone := g.breaker.state() != closed
	for key := range g.journal.backlogs() {
		if away.Load() || ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			b, run, started := g.journal.begin(key)
			for last && run != nil && !started && wait(ctx, run.done) {
				b, run, started = g.journal.begin(key)
			}
			if started {
				g.replay(ctx, key, b, run, ask)
				if store.IsOutage(run.err) {
					away.Store(true)
				}
			}
		})
		if alone {
			all.Wait()
			alone = false
		}
	}
	all.Wait()
}

// tellLost tells the operator what could not be replayed.
func (g *Guard) tellLost() {
	if lost := g.journal.lost.Swap(0); lost > 0 {
		slog.Default().LogAttrs(context.Background(), slog.LevelWarn,
			"sash: not all that was admitted without the store could be replayed",
			slog.String("policy", g.log.policy), slog.Int64("units", lost),
			slog.String("advice", "the outage had more keys than WithFailLocalKeys has room for"))
	}
}

// Close replays what the journal holds, for closeTimeout at most, and ends what the guard does on its own. The error
// says how many units the store was not told of; later calls return the same. A closed guard goes on deciding.
func (g *Guard) Close() error {
	g.closing.Do(func() { g.closeErr = g.finish() })
	return g.closeErr
}

func (g *Guard) finish() error {
	close(g.closed)
	defer g.cancel()
	g.journal.tidy()
	if g.journal.count.Load() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for range closePasses {
		g.replayAll(ctx, g.persistFreely, true)
		if g.journal.tidy(); g.journal.count.Load() == 0 {
			return nil
		}
	}
	units, corrections, leaves := g.journal.left()
	time.AfterFunc(leaves+time.Second, g.journal.tidy)
	return fmt.Errorf("sash: Close: %d %s admitted without the store and %d %s not been replayed: %w",
		units, plural(units, "unit", "units"), corrections, plural(corrections, "correction has", "corrections have"), g.lastError.Load())
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func wait(ctx context.Context, done <-chan struct{}) (came bool) {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
