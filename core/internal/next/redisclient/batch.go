package redisclient

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/next/store"
)

// Questions of one plan that arrive while others are in flight go to the server together. Those of one key leave in the
// order of their arrival, and keys take turns, so that a flood of one key delays no other key. A goroutine sends the
// batch. The caller waits for the answer or for the end of its context; if it leaves, the call goes on without it.
const (
	fewBatches  = 2                    // in flight, before questions wait
	mostBatches = 16                   // the same, if none was sent for a longWait: replies take long
	longWait    = 5 * time.Millisecond //
	mostKeys    = 128                  // of a batch, so that its script keeps the server busy for a millisecond or two
	mostIDs     = 1024                 // of a batch
	turns       = 3                    // for an answer that is late
	mostCalls   = 64                   // to one server, those included that callers have left
)

// Plan is what questions have in common that may go to the server together. It is not changed once it is used.
type Plan struct {
	Script *Script
	Tail   []any // the last arguments of the script

	// Group is how many questions of equal keys, and arguments that are equal behind their ids, may become one: its
	// argument has the ids in a row and then the rest. 0 is 1.
	Group int

	// Cut returns how many numbers at the beginning of a reply are about one question that stands for so many. If it is
	// nil, questions are not asked together, and all of a reply is about one.
	Cut func(reply []int64, standsFor int) int

	// Recorded reports whether a question of a caller that has left was recorded, by its Reply. If it is nil, it was.
	Recorded func(q *Question) bool

	// Ping says that questions are asked only to find out whether servers answer. Two batches are in flight at most,
	// and have places of their own: there may be no others. A call of theirs ends when the last caller leaves.
	Ping bool

	texts  bool     // are what the script replies with
	queues sync.Map // a *queue for each *server
}

// Question is what one caller asks a script.
type Question struct {
	Keys     []string
	Argument string // of the script: an id of 8 bytes, and the rest; or empty, if the script has no argument for it

	Reply     []int64 // to all questions that have become one
	StandsFor int     // how many these were
	Place     int     // of this one among them, from 0 on

	key   string          // all keys
	ctx   context.Context //nolint:containedctx // the caller's, whose values the call has
	owner atomic.Uint32   // waiting, sent, answered or left
	in    *call           // once it was sent
	next  *Question       // of the same key in the queue; once they were sent, of those that have become one
	last  *Question       // of the same key in the queue, if this is the first one

	answered chan struct{} // receives a value when Reply and what follows is set
	texts    []string
	err      error
	call     store.Call // of a caller that has left
}

const idLength = 8

// The states of Question.owner. The caller sets left, and the batcher the others.
const (
	waiting uint32 = iota
	sent
	answered
	left
)

var questions = sync.Pool{New: func() any { return &Question{answered: make(chan struct{}, 1)} }}

// NewQuestion returns a question for one [Conn.Do]. The text has its keys, which end at these bytes, and then its
// argument, so that a question costs one allocation.
func NewQuestion(text string, ends ...int) *Question {
	q, _ := questions.Get().(*Question)
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
	if q.owner.Load() != answered {
		return // the batcher still does
	}
	clear(q.Keys)
	q.Keys, q.Reply, q.ctx, q.in, q.next, q.last, q.texts, q.err = q.Keys[:0], nil, nil, nil, nil, nil, nil, nil
	q.owner.Store(waiting)
	questions.Put(q)
}

// rest is what follows the id.
func (q *Question) rest() string { return q.Argument[min(idLength, len(q.Argument)):] }

// server is one server, or several that are not told apart.
type server struct {
	few, most int           // batches of a plan in flight
	places    chan struct{} // a semaphore of calls
	abandoned atomic.Int32  // calls that nobody waits for
}

func newServer(few, most int) *server {
	return &server{few: few, most: most, places: make(chan struct{}, mostCalls)}
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
	starting bool                 // one of them is not filled yet
	sentAt   time.Time            // when the latest batch was sent
	timed    bool                 // a timer runs flush
}

// call is a batch on its way to a server.
type call struct {
	*queue
	firsts  []*Question // of those that have become one
	keys    int
	until   time.Time // when the last caller leaves
	patient bool      // a caller waits without end

	// The queue's lock guards these.
	waiting   int  // callers
	abandoned bool // all have left before it has ended
	ended     bool
}

// Do asks a question. It returns when that is answered, or when the context ends: then the error is a
// [store.LeftError], and the question goes on.
func (c *Conn) Do(ctx context.Context, p *Plan, q *Question) error {
	s := c.pings
	if !p.Ping {
		s = c.serverOf(ctx, q.key)
	}
	if err := ctx.Err(); err != nil {
		return c.Failed(err)
	}
	if int(s.abandoned.Load()) == cap(s.places) {
		return c.Failed(c.dial.reason(errAbandoned))
	}
	q.ctx = ctx
	b := p.queueOf(c, s)
	b.mu.Lock()
	b.add(q)
	b.start()
	b.mu.Unlock()
	if q.waits(ctx) {
		return q.err
	}
	switch q.owner.Swap(left) {
	case answered:
		<-q.answered
		q.owner.Store(answered)
		return q.err
	case sent:
		q.in.leave()
	default: // it is not sent any more
		q.call.End(false, nil)
	}
	return &store.LeftError{Err: c.Failed(c.dial.reason(ctx.Err())), Call: &q.call}
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

// waits waits for the answer, or for the end of the context. It reports whether there is an answer.
func (q *Question) waits(ctx context.Context) bool {
	select {
	case <-q.answered:
		return true
	case <-ctx.Done():
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false
	}
	// In a process without CPU time the answer may have arrived, and whoever reads it waits for its turn.
	for range turns {
		select {
		case <-q.answered:
			return true
		case <-time.After(time.Millisecond):
			runtime.Gosched()
		}
	}
	return false
}

// errAbandoned is the error of calls that are not made.
var errAbandoned error = timeoutError("too many calls still wait for the server")

type timeoutError string

func (e timeoutError) Error() string { return string(e) }

// Timeout says that the server does not answer in time.
func (timeoutError) Timeout() bool { return true }

// add puts a question behind those of its key.
func (b *queue) add(q *Question) {
	if first := b.byKey[q.key]; first != nil {
		first.last.next, first.last = q, q
		return
	}
	b.addFirst(q, q)
}

func (b *queue) addFirst(q, last *Question) {
	q.last = last
	b.byKey[q.key] = q
	b.turns = append(b.turns, q)
}

// start has the next batch sent if it may be, or later if questions wait.
func (b *queue) start() {
	if b.maySend() {
		b.inFlight++
		b.starting = true
		go b.run()
	} else if len(b.turns) > 0 && !b.starting && !b.timed {
		b.timed = true
		time.AfterFunc(longWait, b.flush)
	}
}

func (b *queue) maySend() bool {
	return len(b.turns) > 0 && !b.starting && (b.inFlight < b.server.few ||
		b.inFlight < b.server.most && time.Since(b.sentAt) >= longWait)
}

func (b *queue) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timed = false
	b.start()
}

// run sends one batch after another while there may be more of them.
func (b *queue) run() {
	for again := true; again; {
		b.server.places <- struct{}{}
		c := &call{queue: b}
		b.mu.Lock()
		b.fill(c)
		b.starting = false
		b.start()
		b.mu.Unlock()
		if len(c.firsts) > 0 {
			ctx, cancel := c.context()
			b.conn.send(ctx, b.Plan, c.firsts)
			cancel()
		}
		<-b.server.places
		again = c.end()
	}
}

// fill moves the questions of the next batch from the queue to c.
func (b *queue) fill(c *call) {
	turn := 0
	for ; turn < len(b.turns) && c.keys < b.conn.mostKeys && c.waiting < mostIDs; turn++ {
		first := b.turns[turn]
		rest := c.add(first)
		if delete(b.byKey, first.key); rest != nil {
			b.addFirst(rest, first.last)
		}
	}
	b.turns = slices.Delete(b.turns, 0, turn)
	b.sentAt = time.Now()
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
		if until, ok := q.ctx.Deadline(); !ok {
			c.patient = true
		} else if until.After(c.until) {
			c.until = until
		}
	}
	return nil
}

// context returns the context of a call. It ends long after the last caller has left, since a reply is worth having even
// then, and go-redis has timeouts of its own; but a call is not to keep its place forever.
func (c *call) context() (context.Context, context.CancelFunc) {
	longest := time.Minute
	switch left := time.Until(c.until); {
	case c.patient:
	case c.Ping:
		longest = left
	default:
		longest = max(8*left, time.Second)
	}
	return context.WithTimeout(context.WithoutCancel(c.firsts[0].ctx), longest)
}

// leave says that a caller has left.
func (c *call) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting--; c.waiting > 0 || c.ended {
		return
	}
	c.abandoned = true
	c.server.abandoned.Add(1)
	c.inFlight--
	c.start()
}

// end gives the callers their answers. It reports whether another batch may be sent.
func (c *call) end() (again bool) {
	for _, first := range c.firsts {
		reply, texts, n, err := first.Reply, first.texts, first.StandsFor, first.err
		for q, next := first, first; q != nil; q = next {
			next = q.next // the caller may free q
			q.Reply, q.texts, q.StandsFor, q.err = reply, texts, n, err
			if q.owner.CompareAndSwap(sent, answered) {
				q.answered <- struct{}{}
			} else {
				q.call.End(err == nil && (c.Recorded == nil || c.Recorded(q)), err)
			}
		}
	}
	runtime.Gosched() // so that callers who have another question join the next batch
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended = true; c.abandoned {
		c.server.abandoned.Add(-1)
	} else {
		c.inFlight--
	}
	if again = c.maySend(); again {
		c.inFlight++
		c.starting = true
	}
	return again
}
