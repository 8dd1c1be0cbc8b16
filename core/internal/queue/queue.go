// Package queue holds the waiters of a limiter, so that few of them ask for what many wait for.
//
// Waiters of one key have their turn one after the other: only the first of a key asks. If it is denied by a log that
// other keys draw from as well, it joins the line of that log. The first waiter of a line sleeps until there may be
// room, and the others until they are the first. Whoever gives something back to the log wakes the first of them.
//
// A waiter is woken so that a question follows what was given back. One that is woken and leaves without such a
// question, or without taking all that is there, wakes the next. So no wake is lost.
package queue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Queues is the waiters of a limiter. K names keys and logs: a key is also the name of a log that only its waiters draw
// from. P tells apart what is asked of one log: waiters that ask for the same are in one line. The zero value is ready
// for use. It is safe for concurrent use.
type Queues[K, P comparable] struct {
	waiting atomic.Int64
	given   atomic.Uint64 // how often something was given back

	mu     sync.Mutex
	joined uint64 // waiters so far
	queues map[K]*queue[K, P]
	lines  map[K][]*line[K, P] // by log; few for each
}

// queue is the waiters of one key.
type queue[K, P comparable] struct {
	waiters []*Waiter[K, P] // in the order in which they joined
	cost    int             // of all of them
}

// without removes the waiter with index i from a list. That is mostly the first, for which no other is moved.
func without[K, P comparable](list []*Waiter[K, P], i int) []*Waiter[K, P] {
	if i == 0 {
		list[0] = nil
		return list[1:]
	}
	return slices.Delete(list, i, i+1)
}

// place returns the index of a waiter in a list in the order of joining, or where it is to be.
func place[K, P comparable](list []*Waiter[K, P], w *Waiter[K, P]) int {
	i, _ := slices.BinarySearchFunc(list, w, func(a, b *Waiter[K, P]) int { return cmp.Compare(a.number, b.number) })
	return i
}

// Waiter is a place in the queue of a key, and at times one in the line of a log. It ends with [Waiter.Leave].
type Waiter[K, P comparable] struct {
	Key  K
	Cost int // what it waits for

	queues *Queues[K, P]
	number uint64        // in the order in which waiters joined
	signal chan struct{} // tells a waiter that it is the first of its queue, or is woken; has a buffer of one

	line     *line[K, P] // or nil
	asleep   bool
	woken    bool   // it is to ask after now
	seen     uint64 // given when its question began
	admitted bool
	room     int // units that were left in the log after it was admitted
}

// Join adds a waiter at the end of key's queue. It returns the cost of all waiters ahead of it.
func (q *Queues[K, P]) Join(key K, cost int) (w *Waiter[K, P], ahead int) {
	w = &Waiter[K, P]{Key: key, Cost: cost, queues: q}
	q.waiting.Add(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.joined++
	w.number, w.seen = q.joined, q.given.Load()
	own := q.queues[key]
	if own == nil {
		if q.queues == nil {
			q.queues, q.lines = make(map[K]*queue[K, P]), make(map[K][]*line[K, P])
		}
		own = new(queue[K, P])
		q.queues[key] = own
	} else {
		w.signal = make(chan struct{}, 1)
	}
	ahead = own.cost
	own.waiters = append(own.waiters, w)
	own.cost += cost
	return w, ahead
}

// Turn blocks until the waiter is the first of its queue, or until ctx is done. Then it may ask.
func (w *Waiter[K, P]) Turn(ctx context.Context) {
	if w.signal == nil { // it was the first when it joined
		return
	}
	select {
	case <-w.signal:
	case <-ctx.Done():
	}
	w.seen = w.queues.given.Load()
}

// Admitted notes that the waiter got what it asked for, and how many units its log has room for after that: so many
// others of the line are woken when it leaves.
func (w *Waiter[K, P]) Admitted(room int) { w.admitted, w.room = true, room }

// Leave removes the waiter from its queue and its line. The next of the queue becomes the first.
func (w *Waiter[K, P]) Leave() {
	q := w.queues
	q.waiting.Add(-1)
	q.mu.Lock()
	defer q.mu.Unlock()
	w.exit()
	own := q.queues[w.Key]
	own.cost -= w.Cost
	i := place(own.waiters, w)
	own.waiters = without(own.waiters, i)
	switch {
	case len(own.waiters) == 0:
		delete(q.queues, w.Key)
	case i == 0:
		own.waiters[0].signal <- struct{}{}
	}
}

// Line notes which log has denied the waiter what plan says: it joins the line of that log, and leaves the one where it
// is. A waiter that the log of its key has denied is in no line.
func (w *Waiter[K, P]) Line(log K, plan P) {
	q := w.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.signal == nil {
		w.signal = make(chan struct{}, 1)
	}
	missed := false
	if !w.InLine(log, plan) {
		w.exit()
		w.enter(log, plan)
		missed = w.isFirst() && w.seen != q.given.Load() // no waiter could be woken for that
	}
	if w.woken || missed {
		w.signal <- struct{}{}
		return
	}
	if w.asleep = true; w.line != nil {
		w.line.awake--
	}
}

// Sleep blocks a waiter that was denied until it is to ask again: when it is woken, or after d if it is the first of
// its line. It also ends when ctx is done. Then the waiter is to leave.
func (w *Waiter[K, P]) Sleep(ctx context.Context, d time.Duration) {
	w.queues.mu.Lock()
	first := w.isFirst()
	w.queues.mu.Unlock()
	var end <-chan time.Time
	if first {
		timer := time.NewTimer(d)
		defer timer.Stop()
		end = timer.C
	}
	select {
	case <-end:
	case <-w.signal:
	case <-ctx.Done():
		return
	}
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if w.wake(); len(w.signal) > 0 {
		<-w.signal
	}
	w.woken, w.seen = false, w.queues.given.Load() // a question begins
}

func (w *Waiter[K, P]) isFirst() bool { return w.line == nil || w.line.waiters[0] == w }

// wake makes the waiter ask. It reports whether it was not to do so anyway.
func (w *Waiter[K, P]) wake() bool {
	if w.woken {
		return false
	}
	if w.woken = true; w.asleep {
		w.asleep = false
		if w.line != nil {
			w.line.awake++
		}
		w.signal <- struct{}{}
	}
	return true
}

// Wake wakes the first of those that wait for a log, after something was given back to it.
func (q *Queues[K, P]) Wake(log K) {
	q.given.Add(1)
	if q.waiting.Load() == 0 { // waiters that join from now on ask after this
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if own := q.queues[log]; own != nil && own.waiters[0].line == nil {
		own.waiters[0].wake()
	}
	for _, l := range q.lines[log] {
		l.wake(1)
	}
}

// Ahead returns the cost of those waiters ahead of w that have certainly not been served yet. The first waiter may have
// been while it is awake, so it counts only while it sleeps.
func (w *Waiter[K, P]) Ahead() (cost int) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	all := w.queues.queues[w.Key].waiters
	for i, other := range all[:place(all, w)] {
		if i > 0 || other.asleep {
			cost += other.Cost
		}
	}
	return cost
}
