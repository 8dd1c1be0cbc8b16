package redisstore

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core"
)

// Takes of one policy that come while others are under way to the server go there together: as one run of
// the script with several keys, or, where keys may be on several servers, in one pipeline for each. Takes of equal keys become one
// question. Who finds fewer than two batches under way sends at once, and by himself. Where answers take long, others wait for
// them no longer than patience, or they would have to wait twice.
const (
	underway     = 2
	mostUnderway = 16
	patience     = 5 * time.Millisecond
	batchTakes   = 128
	batchUnits   = 1000 // a script is to keep the server busy for a millisecond or two at most
	maxLanes     = 1024
)

// lanes are the policies of a store that were asked about of late.
type lanes struct {
	latest atomic.Pointer[lane]
	mu     sync.RWMutex
	all    map[laneKey]*lane
}

// laneKey is what takes must have in common to go together.
type laneKey struct {
	limits *core.Limit
	shadow int
	keep   time.Duration
	bound  int
	varies bool
	mode   core.Mode
	node   any
}

type lane struct {
	key   laneKey
	conn  *conn
	tail  []any // the arguments after those of keys
	join  bool  // takes of equal keys may become one question
	plain int   // where take.lua may answer in one number for each limit: so many
	size  int   // of any other answer

	mu      sync.Mutex
	flying  int
	waiting queue
	timer   *time.Timer // runs overdue; it is set while takes wait
	since   uint64      // waiting.arrivals when it was set
}

// take is one caller's.
type take struct {
	ctx  context.Context
	key  string
	id   string
	cost int

	alone question      // where it is sent by itself
	done  chan struct{} // the rest is known

	next    *take  // in a list of a queue
	arrival uint64 // its number among all takes of a queue

	reply []int64 // to its question
	takes int     // of that question
	place int     // among them
	err   error
}

// takes are used again once they are answered. One whose caller has given up is not: a client may still hold it.
var takes = sync.Pool{New: func() any { return &take{done: make(chan struct{}, 1)} }}

// lane is where takes like t go.
func (s *store) lane(t *core.Take, node any) *lane {
	if l := s.lanes.latest.Load(); l != nil && l.takes(t, node) {
		return l
	}
	key := laneKey{&t.Limits[0], t.Shadow, t.Keep, t.Bound, t.Varies, t.Mode, node}
	s.lanes.mu.RLock()
	l := s.lanes.all[key]
	s.lanes.mu.RUnlock()
	if l != nil {
		s.lanes.latest.Store(l)
		return l
	}
	l = newLane(s.conn, t)
	l.key = key
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	if known := s.lanes.all[key]; known != nil {
		return known
	}
	if s.lanes.all == nil || len(s.lanes.all) >= maxLanes { // who is under way keeps the lane that he has
		s.lanes.all = make(map[laneKey]*lane)
	}
	s.lanes.all[key] = l
	return l
}

// takes reports whether t goes here, as a comparison of keys would, for which one has to be made.
func (l *lane) takes(t *core.Take, node any) bool {
	k := &l.key
	return k.limits == &t.Limits[0] && k.keep == t.Keep && k.mode == t.Mode && k.bound == t.Bound && k.shadow == t.Shadow && k.varies == t.Varies && k.node == node
}

func newLane(c *conn, t *core.Take) *lane {
	l := &lane{conn: c, join: t.Mode == core.ModeCharge && t.Shadow == 0, size: 2 + min(t.Shadow, 1) + 2*len(t.Limits)}
	if t.Mode == core.ModeChargeDenied {
		l.waiting.room = t.Bound
		for _, limit := range t.Limits[:len(t.Limits)-t.Shadow] {
			l.waiting.room = max(l.waiting.room, limit.Quota)
		}
	}
	if l.join && isPlain(t) {
		l.plain = len(t.Limits)
		l.tail = append(l.tail, ttl(t.Keep))
	} else {
		l.tail = append(l.tail, modeText(t), t.Keep.Microseconds(), ttl(t.Keep), len(t.Limits)-t.Shadow, t.Bound)
	}
	for i := range t.Limits {
		l.tail = append(l.tail, t.Limits[i].Quota, t.Limits[i].Window.Microseconds())
	}
	return l
}

// isPlain reports whether the longest window is that of the log, and each answer fits into a number of Lua's, which
// are exact up to 2^53.
func isPlain(t *core.Take) bool {
	longest := time.Duration(0)
	for i := range t.Limits {
		if int64(t.Limits[i].Quota)+1 >= (1<<53)/(t.Limits[i].Window.Microseconds()+1) {
			return false
		}
		longest = max(longest, t.Limits[i].Window)
	}
	return !t.Varies && t.Keep == longest
}

// ask answers the take, or fails when its context has ended.
func (l *lane) ask(t *take) error {
	if !l.conn.single && l.conn.pipeline == nil {
		l.sendOne(t)
		return t.err
	}
	l.mu.Lock()
	if l.flying < underway {
		l.flying++
		l.mu.Unlock()
		l.sendOne(t)
		l.mu.Lock()
		if next := l.board(); next != nil {
			go l.fly(next)
		}
		l.mu.Unlock()
		return t.err
	}
	l.waiting.add(t)
	if l.waiting.waiting == 1 {
		l.setTimer()
	}
	l.mu.Unlock()
	select {
	case <-t.done:
		return t.err
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}

// setTimer has overdue run when the takes that wait now have waited for as long as patience.
func (l *lane) setTimer() {
	l.since = l.waiting.arrivals
	if l.timer == nil {
		l.timer = time.AfterFunc(patience, l.overdue)
	} else {
		l.timer.Reset(patience)
	}
}

// overdue sends the takes that have waited since the timer was set, however many batches are under way.
func (l *lane) overdue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.flying < mostUnderway && l.waiting.waitsSince(l.since) {
		l.flying++
		if next := l.board(); next != nil {
			go l.fly(next)
		}
	}
	if l.waiting.waiting > 0 {
		l.setTimer()
	}
}

// board takes those off the queue who go together next. When there are none, one fewer is under way.
func (l *lane) board() []*take {
	batch := l.waiting.nextBatch()
	if batch == nil {
		l.flying--
	}
	return batch
}

// fly sends one batch after the other until nobody waits.
func (l *lane) fly(batch []*take) {
	for batch != nil {
		ctx, cancel := together(batch)
		l.send(ctx, batch)
		cancel()
		for _, t := range batch {
			t.done <- struct{}{} // which has room for it
		}
		// So that who asks again goes with the next: a seventh more from 16 goroutines. Where some have not come back they
		// may be on another core, and need one turn more; on one core that would keep the server waiting.
		runtime.Gosched()
		l.mu.Lock()
		if l.waiting.waiting < len(batch) {
			l.mu.Unlock()
			runtime.Gosched()
			l.mu.Lock()
		}
		batch = l.board()
		l.mu.Unlock()
	}
}

// together is a context that lasts as long as the last of a batch's does: each caller looks after his own.
func together(batch []*take) (context.Context, context.CancelFunc) {
	ctx := context.WithoutCancel(batch[0].ctx)
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
