package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

const (
	maxReplays    = 4                // keys that replayAll replays at the same time
	maxRuns       = 8                // keys that are replayed at the same time, those because of requests included
	retryReplay   = retryStore / 4   // how often replayInBackground looks whether an open breaker admits a probe
	tidyRecord    = 10 * time.Second // how often the record is tidied during an outage
	closeTimeout  = 5 * time.Second  // of Close
	closeAttempts = 2                // of Close, since the first call may be on a dead connection
)

var errReplaying = &store.StoreError{
	Err: errors.New("what was admitted without the store is still being replayed for this key"), OneKey: true,
}

// replay replays a backlog part by part, in a turn of the breaker, for the caller that has begun its run.
func (g *Guard) replay(b *backlog, turn int) (err error) {
	defer func() { g.record.end(b, err) }()
	for err == nil {
		p := g.record.next(b)
		if len(p.merged)+len(p.settled) == 0 {
			return nil
		}
		if err = g.replayPart(b, p, turn); err == nil {
			err = g.background.Err()
		}
	}
	return err
}

// replayPart adds entries to the store's log, and then changes the costs of those that were settled. What the store
// has is marked at once, so that it is not sent again if later calls fail.
func (g *Guard) replayPart(b *backlog, p part, turn int) error {
	if len(p.merged) > 0 {
		err := g.callPatiently(g.background, &b.key, turn, event.Merge, func(ctx context.Context) error {
			m := store.MergeRequest{Key: b.key, Keep: p.keep, Varies: p.varies}
			now := g.record.now() // the ages are those at the time of each attempt
			for _, e := range p.merged {
				m.Entries = append(m.Entries, store.Entry{ID: e.id, Cost: int(e.cost), Age: time.Duration(now - e.at)})
			}
			return g.store.merger.Merge(ctx, m)
		})
		if err != nil {
			return err
		}
		g.record.replayed.Add(uint64(len(p.merged)))
		g.record.markMerged(b)
		g.denials.UnitsAdded(&b.key)
	}
	for _, e := range p.settled {
		s := store.Settlement{Key: b.key, ID: e.id, Cost: int(e.cost)}
		if err := g.callPatiently(g.background, &b.key, turn, event.Settle, g.store.settling(s)); err != nil {
			return err
		}
		g.record.markSettled(b, e)
		g.denials.Invalidate(&b.key)
	}
	return nil
}

// startReplay replays a key's backlog in the background. It reports whether it has started the replay, or else returns
// the one in progress, or nil without a backlog.
func (g *Guard) startReplay(key *store.Key, turn int) (r *run, started bool) {
	b, r := g.record.begin(key)
	if b != nil {
		go func() {
			g.replays <- struct{}{}
			defer func() { <-g.replays }()
			g.replay(b, turn) //nolint:errcheck // r has it
		}()
	}
	return r, b != nil
}

// startReplays starts the goroutine that replays all backlogs, unless it runs or there is nothing to replay.
func (g *Guard) startReplays() {
	if g.record.entries.Load() > 0 && g.replaying.CompareAndSwap(false, true) {
		go g.replayInBackground()
	}
}

// replayInBackground replays all keys again and again until nothing is left or the guard is closed.
func (g *Guard) replayInBackground() {
	wait, tidied := jitter(), time.Now()
	for {
		select {
		case <-g.closed:
			return
		case <-time.After(wait):
		}
		if g.breaker.state() != open {
			g.replayAll(g.background) //nolint:errcheck // it is repeated
		}
		wait = jitter()
		if g.breaker.state() != closed {
			wait = retryReplay
		}
		if g.record.entries.Load() == 0 || time.Since(tidied) >= tidyRecord {
			g.record.tidy()
			tidied = time.Now()
		}
		if g.record.entries.Load() == 0 {
			g.logLost()
			g.replaying.Store(false)
			// Entries added before the Store have started no other goroutine, so this one handles them.
			if g.record.entries.Load() == 0 || !g.replaying.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

// replayAll replays each key once, several at the same time, until the store does not answer. If the breaker is not
// closed, the first replay is the probe. It returns the error of one of the replays that have failed.
func (g *Guard) replayAll(ctx context.Context) (err error) {
	var runs []*run // oldest first
	alone := g.breaker.state() != closed
	for b := range g.record.all {
		if run, _ := g.startReplay(&b.key, aside); run != nil {
			runs = append(runs, run)
		}
		if len(runs) == maxReplays || alone && len(runs) > 0 {
			err = cmp.Or(runs[0].wait(ctx), err)
			runs, alone = runs[1:], false
		}
		if store.IsOutage(err) {
			break
		}
	}
	for _, run := range runs {
		err = cmp.Or(run.wait(ctx), err)
	}
	return err
}

// logLost logs how many units could not be replayed.
func (g *Guard) logLost() {
	if lost := g.record.lost.Load(); lost > g.lostLogged {
		slog.Default().LogAttrs(context.Background(), slog.LevelWarn,
			"sash: not all that was admitted without the store could be replayed",
			slog.String("policy", g.log.policy), slog.Uint64("units", lost-g.lostLogged),
			slog.String("advice", "the outage had more keys than WithFailLocalKeys has room for"))
		g.lostLogged = lost
	}
}

// Close replays what is left, for closeTimeout at most, and ends the guard's goroutines. The error says how many units
// were not replayed; later calls return the same error. A closed guard still decides, but replays nothing.
func (g *Guard) Close() error { return g.finished() }

func (g *Guard) finish() error {
	close(g.closed)
	defer g.cancel()
	g.finishing.Store(true)
	defer g.finishing.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var err error
	for n := 0; n < closeAttempts && g.record.entries.Load() > 0; n++ {
		err = g.replayAll(ctx)
	}
	units, takes := g.record.close()
	if takes == 0 || g.failure != Local {
		return nil
	}
	unit := "units"
	if units == 1 {
		unit = "unit"
	}
	return fmt.Errorf("sash: Close: %d %s admitted without the store, in %d takes or corrections, not replayed: %w",
		units, unit, takes, cmp.Or(err, error(g.lastError.Load())))
}
