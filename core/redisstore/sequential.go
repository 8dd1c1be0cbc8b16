package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/store"
)

// If no script may use all logs of a request, the logs are asked one after the other. As soon as one denies, the units
// that others have recorded are removed, and the logs that were not asked are peeked at.
//
// Limits of other algorithms than the sliding log come last, since nothing can be removed from their numbers. If there
// are several, they are peeked at first: so a request that one of them denies is counted by another only if the
// requests of others have used it up in between.

// sequential is a request whose logs are asked one after the other.
type sequential struct {
	store   *redisStore
	takes   []store.Take
	answers []store.Answer
	keys    []string // as they are stored
	id      string
	most    int // in ModeUpTo the cost of the next take: what the logs so far have granted
	began   time.Time
}

func (r *sequential) run(ctx context.Context) (err error) {
	if err = r.store.afterUndo(ctx, func(id uint64) bool { return id == r.takes[0].ID }); err != nil {
		return err
	}
	mode, order := r.takes[0].Mode, r.order()
	if mode == store.ModePeek || mode == store.ModeRecord { // each for itself
		err = r.each(order, func(i int) error { return r.take(ctx, i, mode) })
		if err != nil && mode == store.ModeRecord {
			err = r.undone(err, r.undo(ctx, order))
		}
		return err
	}
	if enough, err := r.peekAtCounters(ctx, order); err != nil || !enough {
		return err // nothing was recorded but a denial
	}
	for n, i := range order {
		if err = r.take(ctx, i, mode); err != nil {
			return r.undone(err, r.undo(ctx, order[:n+1])) // the call that has failed may have recorded its take
		}
		if !r.answers[i].Allowed {
			return r.denied(ctx, order, n, n+1)
		}
		if mode == store.ModeUpTo {
			r.most = r.answers[i].Granted
		}
	}
	if mode == store.ModeUpTo {
		if err = r.grantLeast(ctx, order); err != nil {
			return r.undone(err, r.undo(ctx, order))
		}
	}
	return nil
}

// grantLeast corrects the logs that have granted more units than a later one.
func (r *sequential) grantLeast(ctx context.Context, order []int) error {
	return r.each(order, func(i int) error {
		if r.answers[i].Granted == r.most {
			return nil
		}
		if r.answers[i].Granted = r.most; r.takes[i].Plan.Slots || isCounter(r.takes[i].Plan) {
			return nil
		}
		return r.store.Settle(ctx, store.Settlement{Key: r.takes[i].Key, ID: r.takes[i].ID, Cost: r.most})
	})
}

// order returns the numbers of the logs: those that never have room first, other algorithms than the sliding log last.
func (r *sequential) order() []int {
	order, rank := make([]int, len(r.takes)), make([]int, len(r.takes))
	for i := range order {
		order[i] = i
		switch t := &r.takes[i]; {
		case t.Mode != store.ModeUpTo && t.Plan.NeverFits(t.Cost):
			rank[i] = -1
		case isCounter(t.Plan):
			rank[i] = 1
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
	return order
}

// peekAtCounters asks the limits of other algorithms than the sliding log whether all have room, if there are several.
// If one has not, it asks all logs, and nothing is charged. In ModeUpTo it lowers the cost to what they have left.
func (r *sequential) peekAtCounters(ctx context.Context, order []int) (enough bool, err error) {
	first := slices.IndexFunc(order, func(i int) bool { return isCounter(r.takes[i].Plan) })
	if first < 0 || len(order)-first < 2 {
		return true, nil
	}
	asked, upTo := r.most, r.takes[0].Mode == store.ModeUpTo
	if upTo {
		r.most = 1
	}
	peek := func(i int) error { return r.take(ctx, i, store.ModePeek) }
	if err := r.each(order[first:], peek); err != nil {
		return false, err
	}
	enough = true
	for _, i := range order[first:] {
		enough = enough && r.answers[i].Allowed
		asked = min(asked, r.takes[i].Plan.Limits[0].Quota-r.answers[i].State[0].Used)
	}
	if !enough {
		return false, r.denied(ctx, slices.Concat(order[first:], order[:first]), 0, len(order)-first)
	}
	if upTo {
		r.most = asked
	}
	return true, nil
}

// take asks the log with number i.
func (r *sequential) take(ctx context.Context, i int, mode store.Mode) error {
	t := r.takes[i]
	if t.Mode == store.ModeUpTo {
		t.Cost = r.most
	}
	t.Mode = mode
	_, err := r.store.Logs.Take(ctx, []store.Take{t}, r.answers[i:i+1])
	return err
}

// denied removes what the first logs in the order have recorded. One of those behind them, up to asked, has denied; it
// asks the others.
func (r *sequential) denied(ctx context.Context, order []int, recorded, asked int) error {
	kept, rest, mode := slices.Clone(order[:recorded]), order[asked:], store.ModePeek
	removed := make(chan error, 1)
	go func() { removed <- r.undo(ctx, order[:recorded]) }()
	if r.takes[0].Mode == store.ModeUpTo {
		r.most = 1
	}
	if r.takes[0].Mode == store.ModeChargeDenied {
		mode = store.ModeChargeDenied // those without room record the denial
	}
	err := r.each(rest, func(i int) error {
		if isCounter(r.takes[i].Plan) { // which would keep what it has room for
			return r.take(ctx, i, store.ModePeek)
		}
		return r.take(ctx, i, mode)
	})
	if err != nil {
		return r.undone(err, r.undo(ctx, order[recorded:]), <-removed)
	}
	if mode == store.ModeChargeDenied {
		rest = slices.DeleteFunc(slices.Clone(rest), func(i int) bool { return !r.answers[i].Allowed })
		err = r.undo(ctx, rest)
		kept = append(kept, rest...)
	}
	if err = r.undone(nil, err, <-removed); err != nil {
		return err
	}
	return r.each(kept, func(i int) error { return r.peeked(ctx, i) })
}

// peeked makes the answer to a take that was recorded and removed one to a take that was not recorded. They differ
// where the take was the oldest unit of a window.
func (r *sequential) peeked(ctx context.Context, i int) error {
	a := &r.answers[i]
	a.Granted = 0
	for k := range r.takes[i].Plan.Limits {
		switch s := &a.State[k]; {
		case s.Used == 0:
			s.Reset = 0
		case s.Reset == r.takes[i].Plan.Limits[k].Window && !isCounter(r.takes[i].Plan): // the others are bookings
			return r.take(ctx, i, store.ModePeek)
		}
	}
	return nil
}

// each calls f for each of these logs, at the same time, and returns the first error.
func (r *sequential) each(logs []int, f func(i int) error) error {
	errs := make([]error, len(logs))
	var wg sync.WaitGroup
	for n, i := range logs {
		wg.Go(func() { errs[n] = f(i) })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// undo removes the take from these logs, also if the context ends meanwhile. It returns why it may still be there.
func (r *sequential) undo(ctx context.Context, logs []int) error {
	logs = slices.DeleteFunc(slices.Clone(logs), func(i int) bool { return isCounter(r.takes[i].Plan) })
	if len(logs) == 0 {
		return nil
	}
	own, cancel := context.WithTimeout(deadline.Without(ctx), r.store.undoTimeout)
	done, ended := make(chan error, 1), make(chan struct{})
	s, keys, id, began := r.store, r.keys, r.id, r.began // the caller's takes may be gone by then
	s.undos.Store(ended, r.takes[0].ID)
	go func() {
		defer cancel()
		done <- r.each(logs, func(i int) error { return s.undo(own, keys[i], id, began) })
		s.undos.Delete(ended)
		close(ended)
	}()
	if err, ok := redisclient.Await(ctx, done); ok {
		return err
	}
	return s.Failed(ctx.Err())
}

// afterUndo returns when no take with one of these IDs is being removed, so that what is recorded now stays. It fails
// if ctx ends before.
func (s *redisStore) afterUndo(ctx context.Context, has func(id uint64) bool) (err error) {
	s.undos.Range(func(ended, id any) bool {
		if has(id.(uint64)) { //nolint:forcetypeassert // see undo
			if _, ok := redisclient.Await(ctx, ended.(chan struct{})); !ok { //nolint:forcetypeassert // as above
				err = s.Failed(ctx.Err())
			}
		}
		return err == nil
	})
	return err
}

// undone returns err, or the first error of undo. It says so if the take may not have been removed.
func (r *sequential) undone(err error, failures ...error) error {
	failure := cmp.Or(failures...)
	var known *store.StoreError
	if failure == nil || !errors.As(cmp.Or(err, failure), &known) {
		return cmp.Or(err, failure)
	}
	uncertain := *known
	uncertain.Err = fmt.Errorf("%w; some of its logs may count the request nevertheless", known.Err)
	return &uncertain
}

// undo removes a take that was recorded since an instant. It leaves one that is older: this was admitted when the same
// request was decided before.
func (s *redisStore) undo(ctx context.Context, key, id string, began time.Time) error {
	for {
		// The age when the script runs is not known before. Twice what has passed will do, unless this call is slower
		// than those before it.
		limit := 2*time.Since(began) + time.Millisecond
		reply, err := s.RunOn(ctx, undoScript, key, id, limit.Microseconds())
		if err != nil {
			return err
		}
		if len(reply) != 1 || reply[0] < 0 {
			return redisclient.ProtocolError("a reply %v to the removal of a take", reply)
		}
		if reply[0] == 0 || time.Duration(reply[0])*time.Microsecond > time.Since(began) {
			return nil
		}
	}
}
