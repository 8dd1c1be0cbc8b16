// Package queue has the lines in which requests wait for logs, so that only the first of a line asks.
package queue

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Lines are lines of waiters, each with a name. The zero value is ready for use. It is safe for concurrent use.
type Lines[K comparable] struct {
	waiting atomic.Int64
	mu      sync.Mutex
	lines   map[K]*list.List // of *Waiter, not empty
}

// Waiter is a place in a line. It ends with [Waiter.Leave].
type Waiter[K comparable] struct {
	all   *Lines[K]
	line  K
	place *list.Element
	call  chan struct{} // has a buffer of one: it is the first now, or there may be room
}

// Join adds a waiter at the end of the first of these lines that is not empty, or else of the first one.
func (q *Lines[K]) Join(lines ...K) *Waiter[K] {
	w := &Waiter[K]{all: q, line: lines[0], call: make(chan struct{}, 1)}
	q.waiting.Add(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, line := range lines {
		if q.lines[line] != nil {
			w.line = line
			break
		}
	}
	w.enter()
	return w
}

func (w *Waiter[K]) enter() {
	q := w.all
	if q.lines == nil {
		q.lines = make(map[K]*list.List)
	}
	line := q.lines[w.line]
	if line == nil {
		line = list.New()
		q.lines[w.line] = line
	}
	w.place = line.PushBack(w)
}

// exit takes the waiter out of its line. If it was the first, the next one is called.
func (w *Waiter[K]) exit() {
	line := w.all.lines[w.line]
	first := line.Front() == w.place
	if line.Remove(w.place); line.Len() == 0 {
		delete(w.all.lines, w.line)
	} else if first {
		callFirst[K](line)
	}
}

func callFirst[K comparable](line *list.List) {
	w := line.Front().Value.(*Waiter[K]) //nolint:forcetypeassert // nothing else is in a line
	select {
	case w.call <- struct{}{}:
	default: // it was called before, and has not asked since
	}
}

// Leave takes the waiter out of its line.
func (w *Waiter[K]) Leave() {
	w.all.waiting.Add(-1)
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	w.exit()
}

// Move puts the waiter at the end of another line. It reports whether it was in another one: then what was given back
// meanwhile has not woken it.
func (w *Waiter[K]) Move(line K) bool {
	if line == w.line {
		return false
	}
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	w.exit()
	w.line = line
	w.enter()
	return true
}

// IsFirst reports whether the waiter is the first of its line.
func (w *Waiter[K]) IsFirst() bool {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	return w.all.lines[w.line].Front() == w.place
}

// Sleep blocks until the waiter is to ask: when it is called, or after d if it is the first. It returns the error of
// ctx if that ends before.
func (w *Waiter[K]) Sleep(ctx context.Context, d time.Duration) error {
	var end <-chan time.Time
	if w.IsFirst() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		end = timer.C
	}
	select {
	case <-end:
	case <-w.call:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Wake calls the first of a line, because something was given back.
func (q *Lines[K]) Wake(line K) {
	if q.waiting.Load() == 0 { // who joins from now on asks after this
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if waiters := q.lines[line]; waiters != nil {
		callFirst[K](waiters)
	}
}

// WakeAll is Wake for all lines for which is returns true.
func (q *Lines[K]) WakeAll(is func(line K) bool) {
	if q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for line, waiters := range q.lines {
		if is(line) {
			callFirst[K](waiters)
		}
	}
}
