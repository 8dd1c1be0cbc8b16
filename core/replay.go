package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
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

var errReplaying = &StoreError{
	Err: errors.New("what was admitted without the store is still being replayed for this key"), OneKey: true,
}

// replay tells the store what it does not know of a key, part by part.
func (r *remote) replay(ctx context.Context, key *StorageKey, b *backlog, run *run, ask asker) {
	var err error
	defer func() { r.journal.end(key, run, err) }()
	for err == nil {
		p := r.journal.part(key, b, replayedAtOnce)
		if len(p.entries) == 0 {
			return
		}
		if err = r.merge(ctx, b, p, ask); err == nil {
			err = r.correct(ctx, b, p, ask)
		}
		if err == nil {
			err = ctx.Err()
		}
	}
}

// replayKey has a key's backlog replayed in the background, or, after Close, within the request. It reports whether it
// was not under way already.
func (r *remote) replayKey(ctx context.Context, of *StorageKey) (under *run, started bool) {
	b, under, started := r.journal.begin(of)
	if !started {
		return under, false
	}
	key := b.key.key() // the caller's may be in memory that is used again
	if r.isClosed() {
		r.replay(ctx, &key, b, under, r.persist)
		return under, true
	}
	go func() {
		r.slots <- struct{}{}
		defer func() { <-r.slots }()
		r.replay(r.lasting, &key, b, under, r.persist)
	}()
	return under, true
}

// asker is persist, or persistFreely.
type asker func(ctx context.Context, key *StorageKey, question func(context.Context) error) error

// merge adds a part to the store's log. It is marked at once, whatever becomes of the questions after that.
func (r *remote) merge(ctx context.Context, b *backlog, p part, ask asker) error {
	m := Merge{Key: *p.key, Keep: p.keep, Varies: p.varies}
	var instants []int64
	for _, e := range p.entries {
		if e.cost > 0 && e.fate != fateStored {
			m.Entries = append(m.Entries, Recorded{ID: e.id, Cost: int(e.cost)})
			instants = append(instants, e.at)
		}
	}
	if len(m.Entries) == 0 {
		return nil
	}
	err := ask(ctx, p.key, func(ctx context.Context) error {
		try, now := m, r.journal.now() // ages grow from one attempt to the next
		try.Entries = make([]Recorded, len(m.Entries))
		for i, e := range m.Entries {
			try.Entries[i] = Recorded{ID: e.ID, Cost: e.Cost, Age: time.Duration(now - instants[i])}
		}
		return r.store.Merge(ctx, try)
	})
	if err == nil {
		r.journal.merged(b, p)
		r.denials.longer(p.key)
	}
	return err
}

// correct tells the store what was settled of a part: it may know another cost.
func (r *remote) correct(ctx context.Context, b *backlog, p part, ask asker) error {
	for _, e := range p.entries {
		if !e.set {
			continue
		}
		s := Settle{Key: *p.key, ID: e.id, Cost: int(e.cost)}
		if err := ask(ctx, p.key, func(ctx context.Context) error { return r.store.Settle(ctx, s) }); err != nil {
			return err
		}
		r.journal.settled(p.key, b, e)
		r.denials.drop(p.key)
	}
	return nil
}

// replayInBackground tries until all is replayed or has left its window.
func (r *remote) replayInBackground() {
	wait, tidied := jitter(retryStore), time.Now()
	for {
		select {
		case <-r.closed:
			return
		case <-time.After(wait):
		}
		if r.breaker.State() != gobreaker.StateOpen {
			r.replayAll(r.lasting, r.persist, false)
		}
		wait = jitter(retryStore)
		if r.breaker.State() != gobreaker.StateClosed {
			wait = retryReplay
		}
		if r.journal.count.Load() == 0 || time.Since(tidied) >= tidyJournal {
			r.journal.tidy()
			tidied = time.Now()
		}
		if r.journal.count.Load() == 0 {
			r.tellLost()
			r.replaying.Store(false)
			// Whoever has recorded something in between has seen that somebody is at it.
			if r.journal.count.Load() == 0 || !r.replaying.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

// replayAll replays each key once, several at the same time, until the store does not answer. Where the breaker is not
// closed, the first is the probe. Keys that are being replayed already are left out, unless this is the last time.
func (r *remote) replayAll(ctx context.Context, ask asker, last bool) {
	var all sync.WaitGroup
	var away atomic.Bool
	slots := make(chan struct{}, replays)
	alone := r.breaker.State() != gobreaker.StateClosed
	for key := range r.journal.backlogs() {
		if away.Load() || ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			b, run, started := r.journal.begin(key)
			for last && run != nil && !started && wait(ctx, run.done) {
				b, run, started = r.journal.begin(key)
			}
			if started {
				r.replay(ctx, key, b, run, ask)
				if isOutage(run.err) {
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
func (r *remote) tellLost() {
	if lost := r.journal.lost.Swap(0); lost > 0 {
		slog.Default().LogAttrs(context.Background(), slog.LevelWarn,
			"sash: not all that was admitted without the store could be replayed",
			slog.String("policy", r.name), slog.Int64("units", lost),
			slog.String("advice", "the outage had more keys than WithFailLocalKeys has room for"))
	}
}

// Close replays what [FailLocal] has admitted and the store does not know yet, for 5 s at most, and ends what the limiter
// does on its own: a goroutine that waits for the store to come back. Where nothing is left to replay, it returns at
// once, and where the store still does not answer, as soon as it is seen that it does not. The error then says how many
// units the store was not told of; later calls return the same. The store stays open: it is yours. A closed limiter goes
// on deciding.
func (l *Limiter) Close() error {
	if l.remote == nil {
		return nil
	}
	l.remote.close.Do(func() { l.remote.closeErr = l.remote.finish() })
	return l.remote.closeErr
}

func (r *remote) finish() error {
	close(r.closed)
	defer r.cancel()
	r.journal.tidy()
	if r.journal.count.Load() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for range closePasses {
		r.replayAll(ctx, r.persistFreely, true)
		if r.journal.tidy(); r.journal.count.Load() == 0 {
			return nil
		}
	}
	units, corrections, leaves := r.journal.left()
	time.AfterFunc(leaves+time.Second, r.journal.tidy)
	return fmt.Errorf("sash: Close: %d %s admitted without the store and %d %s not been replayed: %w",
		units, plural(units, "unit", "units"), corrections, plural(corrections, "correction has", "corrections have"), r.why.Load())
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
