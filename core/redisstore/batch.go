package redisstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core"
)

// Takes of one policy that come while others are under way to the server go there together: as one run of
// the script with several keys, or, where keys may be on several servers, in one pipeline for each. Takes of equal keys become one
// question. There is no timer: who finds fewer than two batches under way sends at once, and by himself.
const (
	underway   = 2
	batchTakes = 128
	batchUnits = 1000 // a script is to keep the server busy for a millisecond or two at most
	maxLanes   = 1024
)

// lanes are the policies of a store that were asked about of late.
type lanes struct {
	mu  sync.RWMutex
	all map[laneKey]*lane
}

// laneKey is what takes must have in common to go together.
type laneKey struct {
	limits *core.Limit
	shadow int
	keep   time.Duration
	varies bool
	mode   core.Mode
	node   any
}

type lane struct {
	conn *conn
	head []any // the arguments before those of keys
	mode core.Mode
	join bool // takes of equal keys may become one question

	mu      sync.Mutex
	flying  int
	waiting []*take
}

// take is one caller's.
type take struct {
	ctx  context.Context
	key  string
	id   string
	cost int

	gone atomic.Bool   // its caller has given up
	done chan struct{} // the rest is known

	reply []int64 // to its question
	takes int     // of that question
	place int     // among them
	err   error
}

// lane is where takes like t go.
func (s *store) lane(t *core.Take, node any) *lane {
	key := laneKey{&t.Limits[0], t.Shadow, t.Keep, t.Varies, t.Mode, node}
	s.lanes.mu.RLock()
	l := s.lanes.all[key]
	s.lanes.mu.RUnlock()
	if l != nil {
		return l
	}
	l = &lane{conn: s.conn, mode: t.Mode, join: t.Mode == core.ModeCharge && t.Shadow == 0}
	l.head = append(l.head, modeText(t), t.Keep.Microseconds(), ttl(t.Keep), len(t.Limits)-t.Shadow)
	for i := range t.Limits {
		l.head = append(l.head, t.Limits[i].Quota, t.Limits[i].Window.Microseconds())
	}
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

// ask answers the take, or fails when its context has ended.
func (l *lane) ask(t *take) error {
	l.mu.Lock()
	if l.flying < underway {
		l.flying++
		l.mu.Unlock()
		l.send(t.ctx, []*take{t})
		l.mu.Lock()
		if next := l.board(); next != nil {
			go l.fly(next)
		}
		l.mu.Unlock()
		return t.err
	}
	t.done = make(chan struct{})
	l.waiting = append(l.waiting, t)
	l.mu.Unlock()
	select {
	case <-t.done:
		return t.err
	case <-t.ctx.Done():
		t.gone.Store(true)
		return t.ctx.Err()
	}
}

// board takes those off the queue who go together next, the first first. When there are none, one fewer is
// under way.
func (l *lane) board() []*take {
	units, n, kept := 0, 0, 0
	for _, t := range l.waiting {
		if t.gone.Load() {
			n++
			continue
		}
		if kept == batchTakes || kept > 0 && units+t.cost > batchUnits {
			break
		}
		// One that counts though it is denied may push out the other, which then would not be known when
		// the batch is sent again.
		if l.mode == core.ModeChargeDenied && slices.ContainsFunc(l.waiting[:kept], func(o *take) bool { return o.key == t.key }) {
			break
		}
		l.waiting[kept] = t
		units += t.cost
		kept++
		n++
	}
	if kept == 0 {
		l.waiting = l.waiting[:0]
		l.flying--
		return nil
	}
	batch := append([]*take(nil), l.waiting[:kept]...)
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	return batch
}

// fly sends one batch after the other until nobody waits.
func (l *lane) fly(batch []*take) {
	for batch != nil {
		ctx, cancel := together(batch)
		l.send(ctx, batch)
		cancel()
		for _, t := range batch {
			close(t.done)
		}
		l.mu.Lock()
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

// party is takes of one key and cost.
type party struct {
	key  string
	ids  []byte
	cost int
}

// send asks the server, and gives each take its part of the reply.
func (l *lane) send(ctx context.Context, batch []*take) {
	if len(batch) == 1 {
		t := batch[0]
		q := l.question(1)
		q.args[0], q.args[len(q.args)-2], q.args[len(q.args)-1] = t.key, t.id, t.cost
		err := l.conn.ask(ctx, q)
		t.reply, t.takes, t.place, t.err = q.reply, 1, 0, cmp.Or(err, q.err)
		return
	}
	parties, of := l.parties(batch)
	var questions []*question
	if l.conn.single {
		q := l.question(len(parties))
		for i := range parties {
			tail := len(q.args) - 2*(len(parties)-i)
			q.args[i], q.args[tail], q.args[tail+1] = parties[i].key, string(parties[i].ids), parties[i].cost
		}
		questions = []*question{q}
	} else {
		for i := range parties {
			q := l.question(1)
			q.args[0], q.args[len(q.args)-2], q.args[len(q.args)-1] = parties[i].key, string(parties[i].ids), parties[i].cost
			questions = append(questions, q)
		}
	}
	err := l.conn.ask(ctx, questions...)
	for i, t := range batch {
		p := of[i]
		q, part, parts := questions[0], p, len(parties)
		if !l.conn.single {
			q, part, parts = questions[p], 0, 1
		}
		t.takes = len(parties[p].ids) / idLength
		if t.err = cmp.Or(err, q.err); t.err != nil {
			continue
		}
		each := len(q.reply) / parts
		if each*parts != len(q.reply) {
			t.err = protocolError("a reply of %d numbers to %d keys", len(q.reply), parts)
			continue
		}
		t.reply = q.reply[part*each : (part+1)*each]
	}
}

// question has room for so many keys.
func (l *lane) question(keys int) *question {
	args := make([]any, keys+len(l.head)+2*keys)
	copy(args[keys:], l.head)
	return &question{script: takeScript, keys: keys, args: args}
}

// parties puts takes of equal key and cost together, in the order of the first of them, and tells
// which party each take is of.
func (l *lane) parties(batch []*take) (parties []party, of []int) {
	parties, of = make([]party, 0, len(batch)), make([]int, len(batch))
	known := make(map[string]int, len(batch))
	for i, t := range batch {
		p, ok := known[t.key]
		if !ok || !l.join || parties[p].cost != t.cost {
			p = len(parties)
			known[t.key] = p
			parties = append(parties, party{key: t.key, cost: t.cost})
		}
		of[i] = p
		t.place = len(parties[p].ids) / idLength
		parties[p].ids = append(parties[p].ids, t.id...)
	}
	return parties, of
}
