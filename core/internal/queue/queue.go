// Package queue holds first in, first out queues of waiters, one queue for each key.
//
// The first waiter of a queue asks for what it waits for, and sleeps until it may be there. The others sleep until they
// are first. Nothing polls.
package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Queues is a set of queues, one for each key that has waiters. The zero value is ready for use. It is safe for
// concurrent use.
type Queues[K comparable] struct {
	mu     sync.Mutex
	queues map[K]*queue[K]
}

// queue is a doubly linked list.
type queue[K comparable] struct {
	first, last *Waiter[K]
	cost        int // of all waiters
}

// Waiter is a place in a queue. It ends with [Waiter.Leave].
type Waiter[K comparable] struct {
	Key  K
	Cost int // what it waits for

	queues     *Queues[K]
	first      chan struct{} // closed when the waiter is the first of its queue
	wake       chan struct{} // has a buffer of one
	prev, next *Waiter[K]
	asleep     atomic.Bool
}

// Join adds a waiter at the end of key's queue. It returns the cost of all waiters ahead of it.
func (q *Queues[K]) Join(key K, cost int) (w *Waiter[K], ahead int) {
	w = &Waiter[K]{Key: key, Cost: cost, queues: q, first: make(chan struct{}), wake: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	own := q.queues[key]
	if own == nil {
		if q.queues == nil {
			q.queues = make(map[K]*queue[K])
		}
		own = &queue[K]{first: w}
		q.queues[key] = own
		close(w.first)
	} else {
		w.prev, own.last.next = own.last, w
	}
	ahead = own.cost
	own.last = w
	own.cost += cost
	return w, ahead
}

// Leave removes the waiter from its queue. If it was the first, the next one becomes the first.
func (w *Waiter[K]) Leave() {
	q := w.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	own := q.queues[w.Key]
	own.cost -= w.Cost
	switch {
	case w.next != nil:
		w.next.prev = w.prev
	case w.prev != nil:
		own.last = w.prev
	default:
		delete(q.queues, w.Key)
	}
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case w.next != nil:
		own.first = w.next
		close(w.next.first)
	}
}

// First is closed when the waiter is the first of its queue.
func (w *Waiter[K]) First() <-chan struct{} { return w.first }

// Sleep blocks the first waiter of a queue for d, until [Queues.Wake], or until ctx is done.
func (w *Waiter[K]) Sleep(ctx context.Context, d time.Duration) {
	w.asleep.Store(true)
	defer w.asleep.Store(false)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.wake:
	case <-ctx.Done():
	}
}

// Wake ends the sleep of the first waiter of key's queue. If that is awake, its next sleep ends at once.
func (q *Queues[K]) Wake(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if own := q.queues[key]; own != nil {
		own.wakeFirst()
	}
}

func (q *queue[K]) wakeFirst() {
	select {
	case q.first.wake <- struct{}{}:
	default:
	}
}

// WakeAll wakes the first waiter of each queue.
func (q *Queues[K]) WakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, own := range q.queues {
		own.wakeFirst()
	}
}

// Ahead returns the cost of those waiters ahead of w that have certainly not been served yet. The first waiter may have
// been while it is awake, so it counts only while it sleeps.
func (w *Waiter[K]) Ahead() (cost int) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	for other := w.prev; other != nil; other = other.prev {
		if other.prev != nil || other.asleep.Load() {
			cost += other.Cost
		}
	}
	return cost
}
