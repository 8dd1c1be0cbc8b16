package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// remote is a guard's store, and what it can do beyond store.Store, which is nil if it cannot.
type remote struct {
	store.Store

	settler store.Settler
	merger  store.Merger
	lister  store.Lister
	renewer store.Renewer
	leaser  store.Leaser

	overrider store.Overrider

	policy   string
	observer func(context.Context, event.StoreCall) // or nil
}

func newRemote(c *Config) (r remote) {
	r.Store, r.policy, r.observer = c.Store, c.Policy, c.StoreCalls
	r.settler, _ = r.Store.(store.Settler)
	r.merger, _ = r.Store.(store.Merger)
	r.lister, _ = r.Store.(store.Lister)
	r.renewer, _ = r.Store.(store.Renewer)
	r.overrider, _ = r.Store.(store.Overrider)
	r.leaser, _ = r.Store.(store.Leaser)
	return r
}

var errPanicked = errors.New("the store has panicked")

// call makes a call to the store, and calls the observer.
func (s *remote) call(ctx context.Context, op event.Operation, f func(context.Context) error) (err error) {
	if s.observer == nil {
		return f(ctx)
	}
	begun := time.Now()
	err = errPanicked // unless f returns
	defer func() {
		s.observer(ctx, event.StoreCall{Policy: s.policy, Operation: op, Took: time.Since(begun), Err: err})
	}()
	err = f(ctx)
	return err
}

// settling returns a function for call that changes the cost of a take.
func (s *remote) settling(t store.Settlement) func(context.Context) error {
	return func(ctx context.Context) error { return s.settler.Settle(ctx, t) }
}

// sent is what a store gets of a request. A request that is handed to an interface would move to the heap.
type sent struct {
	takes   [store.MaxLimits]store.Take
	answers [store.MaxLimits]store.Answer
}

var sentPool = sync.Pool{New: func() any { return new(sent) }}

// take has the store decide a request. If it fails, the answers are of no use.
func (s *remote) take(ctx context.Context, r *request) error {
	if b := r.booking; b != nil {
		b.Take = r.takes[0]
		err := s.call(ctx, event.Book, func(ctx context.Context) (err error) {
			b.booked, err = s.leaser.Book(ctx, b.Booking)
			return err
		})
		r.answers[0] = b.booked.Answer
		return err
	}
	p, _ := sentPool.Get().(*sent)
	takes, answers := p.takes[:len(r.takes)], p.answers[:len(r.takes)]
	copy(takes, r.takes)
	clear(answers)
	err := s.call(ctx, event.Take, func(ctx context.Context) error { return s.Take(ctx, takes, answers) })
	if err == nil {
		copy(r.answers, answers)
	}
	clear(takes) // which refer to the keys of clients
	sentPool.Put(p)
	return err
}
