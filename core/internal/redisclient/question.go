package redisclient

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Question is what one caller asks a script.
type Question struct {
	Keys     []string
	Argument string // of the script: an id of 8 bytes, and the rest; or empty, if the script has no argument for it

	Reply     []int64 // to all questions that have become one
	StandsFor int     // how many these were
	Place     int     // of this one among them, from 0 on

	key   string          // all keys
	since *atomic.Int64   // of the queue, or nil if it is of several servers
	ctx   context.Context //nolint:containedctx // the caller's, whose values the call has
	owner atomic.Uint32   // waiting, sent, answered or left
	in    *call           // once it was sent
	next  *Question       // of the same key in the queue; once they were sent, of those that have become one
	last  *Question       // of the same key in the queue, if this is the first one

	from   *sync.Pool    // of the Conn, since those of testing/synctest bubbles share no channels
	ends   time.Time     // when the queue wakes the caller, or zero
	wakeUp chan struct{} // receives a value when the question is answered, or when its caller may leave
	err    error
	left   store.LeftError // of a caller that has left
}

const idLength = 8

// The states of Question.owner. The caller sets left, and the batcher the others.
const (
	waiting uint32 = iota
	sent
	answered
	left
)

// NewQuestion returns a question for one [Conn.Do]. The text has its keys, which end at these bytes, and then its
// argument, so that a question costs one allocation.
func (c *Conn) NewQuestion(text string, ends ...int) *Question {
	q, ok := c.questions.Get().(*Question)
	if !ok {
		q = &Question{wakeUp: make(chan struct{}, 1), from: &c.questions}
	}
	begin := 0
	for _, end := range ends {
		q.Keys = append(q.Keys, text[begin:end])
		begin = end
	}
	q.key, q.Argument = text[:begin], text[begin:]
	return q
}

// Free says that the caller does not use the question any more.
func (q *Question) Free() {
	if q.owner.CompareAndSwap(answered, waiting) { // or else the batcher may still use it
		q.Keys, q.Reply, q.since, q.ctx, q.in = q.Keys[:0], nil, nil, nil, nil
		q.next, q.last, q.ends, q.err = nil, nil, time.Time{}, nil
		q.from.Put(q)
	}
}

// rest is what follows the id.
func (q *Question) rest() string { return q.Argument[min(idLength, len(q.Argument)):] }

const (
	yields = 8                // of a caller that is about to leave, so that others may read its answer
	yield  = time.Millisecond // each of them
)

// waits returns when there is an answer, or when the context has ended. It reports which.
func (q *Question) waits(ctx context.Context) bool {
	for <-q.wakeUp; q.owner.Load() != answered; <-q.wakeUp {
		if ctx.Err() != nil {
			return q.arrives(ctx)
		}
	}
	return true
}

// arrives waits once more. In a process without CPU time the answer may have arrived, and whoever reads it waits for
// its turn.
func (q *Question) arrives(ctx context.Context) bool {
	for n := 0; n < yields && errors.Is(ctx.Err(), context.DeadlineExceeded); n++ {
		select {
		case <-q.wakeUp:
		case <-time.After(yield):
			runtime.Gosched()
		}
		if q.owner.Load() == answered {
			return true
		}
	}
	return false
}

// wake has the caller look whether it has an answer, or no time left.
func (q *Question) wake() {
	select {
	case q.wakeUp <- struct{}{}:
	default: // it will look anyway
	}
}
