package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Wait takes one unit of key's quota, as soon as there is one. Callers of one limiter wait for a key in
// the order in which they came, and sleep until the very instant when the next of them may pass: nobody polls. Other processes
// that share the log compete for each unit.
//
// It returns at once when ctx ends before that instant; the error then is [context.DeadlineExceeded], and
// the decision says how long it would have been. A wait that ends with ctx leaves no trace. Under [WithCountDenied] waiting
// counts as no try.
func (l *Limiter) Wait(ctx context.Context, key string) (Decision, error) {
	return l.WaitN(ctx, key, 1)
}

// WaitN waits for cost units, which it takes all at once. For a cost above a quota it does not wait: the
// error is [ErrCostExceedsQuota].
func (l *Limiter) WaitN(ctx context.Context, key string, cost int) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	who, err := l.named(key)
	if err != nil {
		return l.failed(ctx, who, err)
	}
	plan, err := l.planFor(ctx)
	if err != nil {
		return l.failed(ctx, who, err)
	}
	cost = min(cost, MaxQuota+1)
	k := StorageKey{space: l.space, identity: who}
	var space [192]byte
	turn, ahead := l.queues.join(string(k.appendRaw(space[:0])), cost)
	defer l.queues.leave(turn)
	if _, ends := ctx.Deadline(); ends && ahead > 0 {
		// Those ahead need their units first. When they need more than a quota, this is a lower bound.
		most := ahead + cost
		for i := range plan.limits {
			most = min(most, plan.limits[i].Quota)
		}
		d, err := l.decide(ctx, plan, &who, max(most, cost), ModePeek, false)
		if err != nil {
			return d, err
		}
		if err := tooLong(ctx, d.RetryAfter); err != nil {
			return d, err
		}
	}
	select {
	case <-turn.come:
	case <-ctx.Done():
		return Decision{}, ctx.Err()
	}
	for {
		d, err := l.decide(ctx, plan, &who, cost, ModeCharge, false)
		if err != nil {
			return d, err
		}
		if d.Allowed {
			if ctx.Err() == nil {
				return d, nil
			}
			return Decision{}, errors.Join(ctx.Err(), d.Undo(context.WithoutCancel(ctx)))
		}
		if d.Never() {
			return d, d.Err()
		}
		if err := tooLong(ctx, d.RetryAfter); err != nil {
			return d, err
		}
		timer := time.NewTimer(d.RetryAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Decision{}, ctx.Err()
		}
	}
}

// tooLong is an error if ctx will have ended after so long a wait.
func tooLong(ctx context.Context, wait time.Duration) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
		return fmt.Errorf("sash: there is a wait of %v, and the context ends before: %w", wait.Round(time.Microsecond), context.DeadlineExceeded)
	}
	return nil
}

// queues are who waits for which key.
type queues struct {
	mu sync.Mutex
	of map[string]*queue
}

type queue struct {
	turns []*turn // the first of them asks the store, the others wait for their turn
	units int     // that all of them want
}

type turn struct {
	key  string
	cost int
	come chan struct{}
}

// join takes a place in the queue for key, behind so many units of others.
func (q *queues) join(key string, cost int) (t *turn, ahead int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t = &turn{key: key, cost: cost, come: make(chan struct{})}
	line := q.of[key]
	if line == nil {
		if q.of == nil {
			q.of = make(map[string]*queue)
		}
		line = new(queue)
		q.of[key] = line
		close(t.come)
	}
	ahead = line.units
	line.turns = append(line.turns, t)
	line.units += cost
	return t, ahead
}

func (q *queues) leave(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.of[t.key]
	line.units -= t.cost
	if line.turns[0] != t {
		i := slices.Index(line.turns, t)
		line.turns = slices.Delete(line.turns, i, i+1)
		return
	}
	line.turns[0] = nil
	line.turns = line.turns[1:]
	if len(line.turns) == 0 {
		delete(q.of, t.key)
		return
	}
	close(line.turns[0].come)
}
