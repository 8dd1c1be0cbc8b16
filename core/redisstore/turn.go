package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// If the keys of a request may be on several servers, they are asked one after the other: first those that have
// counters last, since what others have recorded meanwhile is not given back there. As soon as one denies, what the
// keys before it have recorded is given back, and the keys behind it are not asked.

// part is the takes of one key.
type part struct {
	takes   []store.Take
	answers []store.Answer
	sent    time.Time
}

func (s *redisStore) takeInTurn(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	parts := partsOf(takes, answers)
	if m := takes[0].Mode; m == store.ModePeek || m == store.ModeRecord { // each for itself
		return each(parts, func(p *part) error { return s.takeAtOnce(ctx, p.takes, p.answers) })
	}
	granted := takes[0].Cost
	for i := range parts {
		p := &parts[i]
		p.sent = time.Now()
		if takes[0].Mode == store.ModeAtMost {
			granted = min(granted, least(p.takes))
			p.takes = slices.Clone(p.takes)
			for j := range p.takes {
				p.takes[j].Cost = granted
			}
		}
		if err := s.takeAtOnce(ctx, p.takes, p.answers); err != nil {
			if !errors.As(err, new(*store.LeftError)) { // whose caller decides what becomes of the request
				s.giveBack(ctx, parts[:i], 0) //nolint:errcheck // whoever gets the error settles the request
			}
			return err
		}
		if slices.ContainsFunc(p.answers, func(a store.Answer) bool { return !a.Allowed }) {
			return s.giveBack(ctx, parts[:i], 0)
		}
		granted = p.answers[0].Granted
	}
	if takes[0].Mode == store.ModeAtMost {
		return s.giveBack(ctx, parts, granted)
	}
	return nil
}

// partsOf returns the takes of each key. Those with counters are the last.
func partsOf(takes []store.Take, answers []store.Answer) []part {
	var parts, counters []part
	for begin, n := 0, 1; begin < len(takes); begin, n = begin+n, 1 {
		for begin+n < len(takes) && takes[begin].Key.Equal(&takes[begin+n].Key) {
			n++
		}
		p := part{takes: takes[begin : begin+n], answers: answers[begin : begin+n]}
		if slices.ContainsFunc(p.takes, func(t store.Take) bool { return isCounter(t.Limit) }) {
			counters = append(counters, p)
		} else {
			parts = append(parts, p)
		}
	}
	return append(parts, counters...)
}

// each calls f with all items at the same time.
func each[T any](items []T, f func(*T) error) error {
	errs := make([]error, len(items))
	var all sync.WaitGroup
	for i := range items {
		all.Go(func() { errs[i] = f(&items[i]) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// giveBackTimeout is how long giving back takes at most. It goes on when the caller's context has ended.
const giveBackTimeout = time.Second

// giveBack settles what parts have recorded to so many units. It returns when this is done, or when the context ends.
func (s *redisStore) giveBack(ctx context.Context, parts []part, units int) error {
	var settlements []store.Settlement
	for _, p := range parts {
		for i := range p.takes {
			t, a := &p.takes[i], &p.answers[i]
			was, _ := t.Limit.Counted(t.Cost, t.Mode)
			if t.Mode == store.ModeAtMost && !t.Limit.Permits {
				was = a.Granted
			}
			if a.Granted = min(a.Granted, units); was == units {
				continue
			}
			settlements = append(settlements, store.Settlement{
				Key: t.Key.Clone(), Limit: t.Limit, ID: t.ID, Was: was, Cost: units, Age: time.Since(p.sent),
				Period: a.Period,
			})
		}
	}
	if len(settlements) == 0 {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
		defer cancel()
		done <- each(settlements, func(t *store.Settlement) error { return s.Settle(own, *t) })
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return nil
	}
}
