package redisclient

// queue holds the takes of a batcher that wait for a batch. Takes of one key leave in the order of their arrival, and
// keys take turns, so that a long backlog of one key delays no other key. The batcher's lock guards it.
type queue struct {
	room     int            // units that takes of one key may have in a batch, or 0 for as many as there are
	rooms    []int          // the same of each log, for takes about several
	units    map[string]int // of the takes of a batch about several logs, by the key of each log; set if rooms are
	fresh    list           // in the order of arrival; not yet in the list of their key
	keys     map[string]*keyQueue
	turns    turns
	spare    *keyQueue // keyQueues to reuse
	spares   int
	waiting  int    // takes, including those whose callers have given up since
	arrivals uint64 // takes so far
	batches  uint64 // batches so far
}

// keyQueue holds the takes of one key. It is in turns for as long as it has any.
type keyQueue struct {
	list

	key   string
	next  *keyQueue
	batch uint64 // the latest that has takes of this key
	units int    // of these takes
}

// batchTakes bounds a batch. A script is to keep the server busy for a millisecond or two at most.
const batchTakes = 128

// maxSpares bounds the empty keyQueues that a queue keeps.
const maxSpares = 2 * batchTakes

// list is a linked list of takes: a take waits in one list only.
type list struct {
	first, last *take
	size        int
}

func (l *list) push(t *take) {
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
	l.size++
}

func (l *list) pop() *take {
	t := l.first
	if l.first, t.next = t.next, nil; l.first == nil {
		l.last = nil
	}
	l.size--
	return t
}

// turns is the order in which keys give a take to the next batch.
type turns struct{ first, last *keyQueue }

func (s *turns) push(k *keyQueue) {
	if s.last == nil {
		s.first = k
	} else {
		s.last.next = k
	}
	s.last = k
}

func (s *turns) pop() *keyQueue {
	k := s.first
	if s.first, k.next = k.next, nil; s.first == nil {
		s.last = nil
	}
	return k
}

// pushAll appends all of more.
func (s *turns) pushAll(more turns) {
	switch {
	case more.first == nil:
	case s.last == nil:
		*s = more
	default:
		s.last.next, s.last = more.first, more.last
	}
}

func (q *queue) add(t *take) {
	q.arrivals++
	q.waiting++
	t.arrival = q.arrivals
	q.fresh.push(t)
}

// waitsSince reports whether a take still waits that was among the first so many arrivals.
func (q *queue) waitsSince(arrivals uint64) bool {
	if q.fresh.first != nil && q.fresh.first.arrival <= arrivals {
		return true
	}
	for k := q.turns.first; k != nil; k = k.next {
		if k.first.arrival <= arrivals {
			return true
		}
	}
	return false
}

// nextBatch removes the takes that go together next, and returns them. Takes whose callers have given up are dropped.
// It returns nil if no take is left.
func (q *queue) nextBatch() []*take {
	if q.turns.first == nil && q.room == 0 && q.freshFit() {
		return q.takeFresh()
	}
	q.sort()
	q.batches++
	clear(q.units)
	var batch []*take
	var skipped turns // keys whose next take does not fit: they are the first in the next batch
	logs, skips := 0, 0
	for q.turns.first != nil && logs < batchTakes && skips < batchTakes {
		k := q.turns.pop()
		q.dropGivenUp(k)
		if k.size == 0 {
			q.release(k)
			continue
		}
		if !q.hasRoom(k, k.first) {
			skipped.push(k)
			skips++
			continue
		}
		t := k.pop()
		q.waiting--
		batch = append(batch, t)
		logs += t.logs()
		q.count(k, t)
		if k.size == 0 {
			q.release(k)
		} else {
			q.turns.push(k)
		}
	}
	skipped.pushAll(q.turns)
	q.turns = skipped
	return batch
}

// hasRoom reports whether t may go together with the takes of its key that the batch has already.
//
// A take that counts although it is denied pushes the oldest units out of a log that is full. Takes of one batch must
// not push out each other: when the command is sent again, those that are not in the log any more would be decided a
// second time. They cannot as long as a log has room for all of their units.
func (q *queue) hasRoom(k *keyQueue, t *take) bool {
	for i, room := range q.rooms {
		if units := q.units[t.keys[i]]; units > 0 && units+t.cost > room {
			return false
		}
	}
	return q.room == 0 || q.rooms != nil || k.batch != q.batches || k.units+t.cost <= q.room
}

// count notes that the batch has the take.
func (q *queue) count(k *keyQueue, t *take) {
	if k.batch != q.batches {
		k.batch, k.units = q.batches, 0
	}
	k.units += t.cost
	if q.rooms != nil && q.units == nil {
		q.units = make(map[string]int)
	}
	for i := range q.rooms {
		q.units[t.keys[i]] += t.cost
	}
}

// freshFit reports whether all fresh takes go together, so that they need not be sorted by key.
func (q *queue) freshFit() bool {
	if q.fresh.size > batchTakes {
		return false
	}
	logs := 0
	for t := q.fresh.first; t != nil; t = t.next {
		logs += t.logs()
	}
	return logs <= batchTakes || q.fresh.size == 1
}

func (q *queue) takeFresh() []*take {
	batch := make([]*take, 0, q.fresh.size)
	for q.fresh.size > 0 {
		if t := q.fresh.pop(); !t.gaveUp() {
			batch = append(batch, t)
		}
	}
	q.waiting = 0
	if len(batch) == 0 {
		return nil
	}
	return batch
}

// sort appends each fresh take to the list of its key.
func (q *queue) sort() {
	if q.keys == nil {
		q.keys = make(map[string]*keyQueue)
	}
	for q.fresh.size > 0 {
		t := q.fresh.pop()
		if t.gaveUp() {
			q.waiting--
			continue
		}
		k := q.keys[t.key]
		if k == nil {
			if k = q.spare; k != nil {
				q.spare = k.next
				q.spares--
			} else {
				k = new(keyQueue)
			}
			*k = keyQueue{key: t.key}
			q.keys[t.key] = k
			q.turns.push(k)
		}
		k.push(t)
	}
}

func (q *queue) dropGivenUp(k *keyQueue) {
	for k.first != nil && k.first.gaveUp() {
		k.pop()
		q.waiting--
	}
}

// release forgets a key that has no takes.
func (q *queue) release(k *keyQueue) {
	delete(q.keys, k.key)
	if q.spares < maxSpares {
		*k = keyQueue{next: q.spare}
		q.spare = k
		q.spares++
	}
}
