package redisclient

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/store"
)

// Takes of one policy that arrive while others are in flight go to the server together: in one run of the script with
// several keys, or, if the keys may be on several servers, in one pipeline for each server. Takes of equal key and cost
// form a group. A request over several logs is one take with several keys, and goes with others of the same policies.
// If fewer than maxInFlight batches are in flight, the caller sends its own take at once. If replies take long, takes
// wait no longer than maxWait before they are sent, since otherwise they would wait for two round trips.
const (
	maxInFlight   = 2
	flushInFlight = 16 // the most batches in flight when takes have waited for maxWait
	maxWait       = 5 * time.Millisecond
	maxBatchers   = 1024
)

// batchers are the batchers of a store that were used of late.
type batchers struct {
	counts batchCounts
	latest atomic.Pointer[batcher]
	mu     sync.Mutex
	all    map[batchKey]*batcher
}

// batcher collects the takes with one batchKey while others are in flight.
type batcher struct {
	sender

	mu       sync.Mutex
	inFlight int // batches
	waiting  queue
	timer    *time.Timer // runs flush; it is set while takes wait
	since    uint64      // waiting.arrivals when it was set
}

// find returns the batcher of a request that goes to the node.
func (b *batchers) find(
	c *Conn, newFormat func([]store.Take) Format, takes []store.Take, node any,
) *batcher {
	key := batchKey{mode: takes[0].Mode, node: node}
	for i := range takes {
		key.plans[i] = takes[i].Plan
	}
	if latest := b.latest.Load(); latest != nil && latest.key == key {
		return latest
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.all[key]
	if found == nil {
		if b.all == nil || len(b.all) >= maxBatchers { // takes in flight keep the batcher that they have
			b.all = make(map[batchKey]*batcher)
		}
		found = newBatcher(c, newFormat(takes))
		if found.key, found.counts = key, &b.counts; node != nil {
			found.abandoned = make(chan struct{}, maxAbandoned)
		}
		b.all[key] = found
	}
	b.latest.Store(found)
	return found
}

func newBatcher(c *Conn, f Format) *batcher {
	b := &batcher{sender: sender{Format: f, conn: c, counts: new(batchCounts)}}
	b.waiting.rooms = f.Rooms
	return b
}

// do sends the take and waits for its reply. It fails if the take's context ends before.
func (b *batcher) do(t *take) error {
	if !b.conn.Single && b.conn.pipeline == nil {
		b.sendOne(t)
		return t.err
	}
	b.mu.Lock()
	if b.inFlight < maxInFlight {
		b.inFlight++
		b.mu.Unlock()
		b.sendOne(t)
		b.mu.Lock()
		if next := b.nextBatch(); next != nil {
			go b.run(next)
		}
		b.mu.Unlock()
		return t.err
	}
	b.waiting.add(t)
	if b.waiting.waiting == 1 {
		b.setTimer()
	}
	b.mu.Unlock()
	if _, ok := Await(t.ctx, t.done); !ok {
		return t.ctx.Err()
	}
	return t.err
}

// setTimer has flush run when the takes that wait now have waited for maxWait.
func (b *batcher) setTimer() {
	b.since = b.waiting.arrivals
	if b.timer == nil {
		b.timer = time.AfterFunc(maxWait, b.flush)
	} else {
		b.timer.Reset(maxWait)
	}
}

// flush sends the takes that have waited since the timer was set, unless flushInFlight batches are in flight.
func (b *batcher) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.inFlight < flushInFlight && b.waiting.waitsSince(b.since) {
		b.inFlight++
		if next := b.nextBatch(); next != nil {
			go b.run(next)
		}
	}
	if b.waiting.waiting > 0 {
		b.setTimer()
	}
}

// nextBatch removes the takes of the next batch from the queue. If there are none, it counts one batch in flight less.
func (b *batcher) nextBatch() []*take {
	batch := b.waiting.nextBatch()
	if batch == nil {
		b.inFlight--
	}
	return batch
}

// run sends one batch after another until no take waits.
func (b *batcher) run(batch []*take) {
	for batch != nil {
		ctx, cancel := batchContext(batch)
		b.send(ctx, batch)
		cancel()
		for _, t := range batch {
			t.done <- struct{}{} // does not block: the channel is buffered
		}
		// Yield, so that callers with another take join the next batch: this is a seventh more from 16 goroutines. If
		// some have not come back, they may run on another core and need one more yield. On one core, a second yield
		// in any case would only keep the server idle.
		runtime.Gosched()
		b.mu.Lock()
		if b.waiting.waiting < len(batch) {
			b.mu.Unlock()
			runtime.Gosched()
			b.mu.Lock()
		}
		batch = b.nextBatch()
		b.mu.Unlock()
	}
}

// batchContext returns a context that lasts until the last deadline of the batch. The callers heed their own contexts.
func batchContext(batch []*take) (context.Context, context.CancelFunc) {
	if last, ok := lastOf(batch); ok {
		return last, func() {}
	}
	ctx := deadline.Without(batch[0].ctx)
	var last time.Time
	for _, t := range batch {
		end, ok := t.ctx.Deadline()
		if !ok {
			return context.WithCancel(ctx)
		}
		if end.After(last) {
			last = end
		}
	}
	return context.WithDeadline(ctx, last)
}

// lastOf returns the context of a batch that ends last, if it is one of those which no caller can cancel.
func lastOf(batch []*take) (last deadline.Context, ok bool) {
	for i, t := range batch {
		ctx, ok := t.ctx.(deadline.Context)
		if !ok {
			return ctx, false
		}
		if i == 0 || ctx.EndsAfter(last) {
			last = ctx
		}
	}
	return last, true
}
