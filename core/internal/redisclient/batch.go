package redisclient

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/within"
)

// Questions of one plan that arrive while others are in flight go to the server together. Those of one key leave in the
// order of their arrival, and keys take turns, so that a flood of one key delays no other key. A goroutine sends the
// batch. Callers wait for their answers, or for the ends of their contexts; if they leave, the call goes on.
const (
	fewBatches  = 2                    // in flight, before questions wait
	mostBatches = 16                   // the same, if none was sent for a longWait: then replies take long
	longWait    = 5 * time.Millisecond //
	mostKeys    = 128                  // of a batch, so that its script keeps the server busy for a millisecond or two
	mostIDs     = 1024                 // of a batch
	mostCalls   = 64                   // to one server, with those that callers have left

	keepSender = 100 * time.Millisecond // a goroutine that sends batches, since a new one begins with too small a stack
)

// Plan is what questions have in common that may go to the server together. It belongs to one Conn, and is not changed
// once it is used.
type Plan struct {
	Script *Script
	Tail   []any // the last arguments of the script

	// Group is how many questions of equal keys, and arguments that are equal behind their ids, may become one: its
	// argument has the ids in a row and then the rest. 0 is 1.
	Group int

	// Cut returns how many numbers at the beginning of a reply are about one question that has so many keys. A plan of
	// one question needs none.
	Cut func(reply []int64, keys int) int

	// Alone says that each question is a batch of its own, because it keeps the server busy.
	Alone bool

	// Ping says that questions are asked only to find out whether servers answer. Two batches are in flight at most,
	// and have places of their own, whatever becomes of other calls. A call ends when its last caller leaves.
	Ping bool

	// Since says that the last number of a reply is the present instant of the server, and belongs to no question. The
	// last argument of a command is then the instant of the server's latest reply: no question of the command was
	// executed before that. It is 0 if that is not known.
	Since bool

	queues sync.Map // a *queue for each *server
}

// server is one server, or several that are not told apart.
type server struct {
	few, most int           // batches of a plan in flight
	keys      int           // of a batch
	places    chan struct{} // a semaphore of calls
	abandoned atomic.Int32  // calls that nobody waits for
}

func newServer(few, most, keys int) *server {
	return &server{few: few, most: most, keys: keys, places: make(chan struct{}, mostCalls)}
}

// queue has the questions of a plan to one server.
type queue struct {
	*Plan
	conn   *Conn
	server *server

	mu       sync.Mutex
	byKey    map[string]*Question // the first one of each key
	turns    []*Question          // the same, in the order in which they leave
	inFlight int                  // batches that somebody waits for
	ending   int                  // batches that were answered, whose senders let the callers go first
	starting bool                 // a batch in flight is not filled yet
	sentAt   time.Time            // when the latest batch was
	timed    bool                 // a timer will start the next one
	calls    []*call              // that have not ended
	ends     time.Time            // when the watch looks for callers whose time is over, or zero
	watch    *time.Timer          // one for all callers, since starting and stopping a timer takes longer than a take
	spare    chan struct{}        // of a call that has ended

	since atomic.Int64 // the instant of the latest reply
}

// call is a batch on its way to a server. It is the context of its commands, too, which has the values of a caller, but
// does not end with it: a reply is worth having even if nobody waits, and go-redis has timeouts of its own.
type call struct {
	*queue
	firsts []*Question // of those that have become one
	space  [1]*Question
	keys   int
	begun  time.Time
	values context.Context //nolint:containedctx // see above
	done   chan struct{}   // closed when it is canceled; otherwise another call uses it again

	// The queue's lock guards these.
	waiting   int  // callers
	abandoned bool // all have left before it has ended
	ended     bool
}

// Deadline implements [context.Context].
func (*call) Deadline() (ends time.Time, ok bool) { return ends, false }

// Value implements [context.Context].
func (c *call) Value(key any) any { return c.values.Value(key) }

// Err implements [context.Context].
func (c *call) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// Done implements [context.Context].
func (c *call) Done() <-chan struct{} { return c.done }

// Do asks a question. It returns when that is answered, or when the context ends: then the error is a
// [store.LeftError], and the question goes on.
func (c *Conn) Do(ctx context.Context, p *Plan, q *Question) error {
	s := c.pings
	if !p.Ping {
		s = c.serverOf(ctx, q.key)
	}
	if _, ok := ctx.(*within.Context); !ok && errors.Is(ctx.Err(), context.Canceled) { // nobody cancels a guard's
		return c.Failed(ctx.Err())
	}
	if int(s.abandoned.Load()) >= cap(s.places) {
		return c.Failed(c.dial.reason(errAbandoned))
	}
	q.ctx = ctx
	if w, ok := ctx.(*within.Context); ok {
		q.ends, _ = w.Deadline()
	} else {
		defer context.AfterFunc(ctx, q.wake)()
	}
	b := p.queueOf(c, s)
	if c.one || s != c.all {
		q.since = &b.since
	}
	b.mu.Lock()
	b.add(q)
	b.start()
	b.wakeAt(q.ends)
	b.mu.Unlock()
	if q.waits(ctx) {
		return q.err
	}
	switch {
	case q.owner.CompareAndSwap(waiting, left): // it is not sent any more
		q.left.End()
	case q.owner.CompareAndSwap(sent, left):
		q.in.leave()
	default:
		return q.err
	}
	q.left.Err = c.Failed(c.dial.reason(ctx.Err()))
	return &q.left
}

// wakeAt has the watch look at an instant, if it does not look earlier.
func (b *queue) wakeAt(ends time.Time) {
	if ends.IsZero() || !b.ends.IsZero() && !ends.Before(b.ends) {
		return
	}
	if b.ends = ends; b.watch == nil {
		b.watch = time.AfterFunc(time.Until(ends), b.wakeLate)
	} else {
		b.watch.Reset(time.Until(ends))
	}
}

// wakeLate wakes the callers whose time is over.
func (b *queue) wakeLate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends = time.Time{}
	now := time.Now()
	look := func(firsts []*Question) {
		for _, q := range firsts {
			for ; q != nil; q = q.next {
				if now.Before(q.ends) {
					b.wakeAt(q.ends)
				} else if !q.ends.IsZero() {
					q.ends = time.Time{}
					q.wake()
				}
			}
		}
	}
	look(b.turns)
	for _, c := range b.calls {
		look(c.firsts)
	}
}

// queueOf returns the plan's queue to a server.
func (p *Plan) queueOf(c *Conn, s *server) *queue {
	found, ok := p.queues.Load(s)
	if !ok {
		found, _ = p.queues.LoadOrStore(s, &queue{Plan: p, conn: c, server: s, byKey: make(map[string]*Question)})
	}
	b, _ := found.(*queue)
	return b
}

// add puts a question behind those of its key.
func (b *queue) add(q *Question) {
	if first := b.byKey[q.key]; first != nil {
		first.last.next, first.last = q, q
	} else {
		b.addFirst(q, q)
	}
}

func (b *queue) addFirst(q, last *Question) {
	q.last = last
	b.byKey[q.key] = q
	b.turns = append(b.turns, q)
}

// start has the next batch sent if it may be, or later if questions wait.
func (b *queue) start() {
	if b.maySend() {
		select {
		case b.conn.senders <- b:
		default:
			go b.conn.send(b)
		}
	} else if len(b.turns) > 0 && !b.starting && !b.timed {
		b.timed = true
		time.AfterFunc(longWait, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.timed = false
			b.start()
		})
	}
}

// maySend reports whether another batch may be sent. Then the caller has it sent.
func (b *queue) maySend() bool {
	if len(b.turns) == 0 || b.starting || b.inFlight >= b.server.most ||
		b.inFlight+b.ending >= b.server.few && time.Since(b.sentAt) < longWait {
		return false
	}
	b.inFlight++
	b.starting = true
	return true
}

// send sends the batches of a queue, and then those of others.
func (c *Conn) send(b *queue) {
	for t := time.NewTimer(keepSender); ; t.Reset(keepSender) {
		b.run()
		select {
		case b = <-c.senders:
		case <-t.C:
			return
		}
	}
}

// run sends one batch after another while there may be more of them.
func (b *queue) run() {
	for again := true; again; {
		b.server.places <- struct{}{}
		call := b.next()
		if len(call.firsts) > 0 {
			b.conn.ask(call, b.Plan, call.firsts)
		}
		<-b.server.places
		again = call.end()
	}
}

// next removes the questions of the next batch from the queue.
func (b *queue) next() *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sentAt = time.Now()
	c, n := &call{queue: b, begun: b.sentAt, values: context.Background(), done: b.spare}, 0
	if b.spare = nil; c.done == nil {
		c.done = make(chan struct{})
	}
	c.firsts = c.space[:0]
	most := b.server.keys
	if b.Alone {
		most = 1
	}
	for ; n < len(b.turns) && c.keys < most && c.waiting < mostIDs; n++ {
		first := b.turns[n]
		rest := c.add(first)
		if delete(b.byKey, first.key); rest != nil {
			b.addFirst(rest, first.last)
		}
	}
	b.turns = slices.Delete(b.turns, 0, n)
	if len(c.firsts) > 0 {
		c.values = c.firsts[0].ctx
	}
	b.calls = append(b.calls, c)
	b.starting = false
	b.start()
	return c
}

// add moves questions of one key to the call that become one. It returns those that stay.
func (c *call) add(q *Question) (rest *Question) {
	var first, last *Question
	for ; q != nil; q = rest {
		if first != nil && (first.StandsFor >= c.Group || c.waiting >= mostIDs || first.rest() != q.rest()) {
			return q
		}
		rest, q.next, q.in = q.next, nil, c
		if !q.owner.CompareAndSwap(waiting, sent) {
			continue // its caller has left
		}
		if first == nil {
			first, q.StandsFor = q, 0
			c.firsts = append(c.firsts, q)
			c.keys += len(q.Keys)
		} else {
			last.next = q
		}
		last, q.Place = q, first.StandsFor
		first.StandsFor++
		c.waiting++
	}
	return nil
}

// leave says that a caller has left. If it was the last one, the call ends after eight timeouts, or a second if that is
// longer, so that it does not keep its place forever.
func (c *call) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting--; c.waiting > 0 || c.ended {
		return
	}
	grace := max(7*time.Since(c.begun), time.Second)
	if c.Ping {
		grace = 0
	}
	time.AfterFunc(grace, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.ended {
			close(c.done)
		}
	})
	c.abandoned = true
	c.server.abandoned.Add(1)
	c.inFlight--
	c.start()
}

// end gives the callers their answers. It reports whether another batch may be sent.
func (c *call) end() (again bool) {
	c.mu.Lock()
	c.ended = true
	if c.abandoned {
		c.server.abandoned.Add(-1)
	} else {
		c.inFlight--
	}
	c.ending++
	c.calls = slices.DeleteFunc(c.calls, func(other *call) bool { return other == c })
	c.mu.Unlock()
	for _, first := range c.firsts {
		reply, n, err := first.Reply, first.StandsFor, first.err
		for q := first; q != nil; {
			next := q.next // the caller may free q
			q.Reply, q.StandsFor, q.err = reply, n, err
			if q.owner.CompareAndSwap(sent, answered) {
				q.wake()
			} else {
				q.left.End()
			}
			q = next
		}
	}
	runtime.Gosched() // so that callers who have another question join the next batch
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Err() == nil {
		c.spare = c.done
	}
	c.ending--
	return c.maySend()
}
