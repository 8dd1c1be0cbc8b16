package guard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// remote is a guard's store, and what it can do beyond store.Store, which is nil if it cannot.
type remote struct {
	store.Store

	settler   store.Settler
	merger    store.Merger
	lister    store.Lister
	renewer   store.Renewer
	overrider store.Overrider
	pinger    store.Pinger

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
	r.pinger, _ = r.Store.(store.Pinger)
	return r
}

// lacks returns the error for a call of a method that the store does not have.
func (r *remote) lacks(method, to, of string) error {
	return &store.ConfigError{
		Option: method, Value: fmt.Sprintf("%T", r.Store),
		Problem: "this store cannot " + to + ": it has no method " + method + " (" + of + ")",
		Remedy:  "add it; a wrapper embeds store.Full",
	}
}

var errPanicked = errors.New("the store has panicked")

// call makes a call to the store, and calls the observer.
func (r *remote) call(ctx context.Context, op event.Operation, f func(context.Context) error) error {
	if r.observer == nil {
		return protect(ctx, f)
	}
	begun := time.Now()
	err := protect(ctx, f)
	r.observer(ctx, event.StoreCall{Policy: r.policy, Operation: op, Took: time.Since(begun), Err: err})
	return err
}

// protect turns a panic of the store into an error, since nothing else recovers it in the background.
func protect(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanicked
		}
	}()
	return f(ctx)
}

// request is what is passed on of a request. Slices of the caller that are handed to an interface would move to the
// heap.
type request struct {
	takes   []store.Take
	answers []store.Answer
}

var requests = sync.Pool{New: func() any { return new(request) }}

func newRequest(takes []store.Take) *request {
	r, _ := requests.Get().(*request)
	r.takes = append(r.takes[:0], takes...)
	if cap(r.answers) < len(takes) {
		r.answers = make([]store.Answer, len(takes))
	}
	r.answers = r.answers[:len(takes)]
	clear(r.answers)
	return r
}

// free is not called after a panic, as the slices may still be in use.
func (r *request) free() {
	clear(r.takes) // which refer to the keys of clients
	requests.Put(r)
}

// take has the store decide a request. If it fails, the answers are as before.
func (r *remote) take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	q := newRequest(takes)
	err := r.call(ctx, event.Take, func(ctx context.Context) error { return r.Take(ctx, q.takes, q.answers) })
	if err == nil {
		copy(answers, q.answers)
	}
	if err != errPanicked { //nolint:errorlint // it is this one
		q.free()
	}
	return err
}

// lastID makes the IDs of takes. It counts from a random number of 64 bits, so that processes which share a log do not
// use the same IDs. An ID is not a timestamp, because two requests may have the same instant, and not chosen by the
// client, because a repeated ID is not charged again. IDs increase, because Redis orders the entries of one instant by
// ID and trims the first.
var lastID = func() *atomic.Uint64 {
	n := new(atomic.Uint64)
	n.Store(rand.Uint64())
	return n
}()

// newID returns an ID, which is never 0.
func newID() uint64 {
	for {
		if id := lastID.Add(1); id != 0 {
			return id
		}
	}
}
