package redisclient

import "slices"

// queue holds the takes of a batcher that wait for a batch. Takes of one key leave in the order of their arrival, and
// keys take turns, so that a long backlog of one key delays no other key. The batcher's lock guards it.
type queue struct {
	rooms    []int          // units that takes of one log may have in a batch, for each log of a take; nil: any number
	units    map[string]int // of the takes of a batch, by the key of each log; set if rooms are
	fresh    []*take        // in the order of arrival; not yet in the list of their key
	keys     map[string]*keyQueue
	turns    []*keyQueue // the order in which keys give a take to the next batch
	waiting  int         // takes, including those whose callers have given up since
	arrivals uint64      // takes so far
}

// batchTakes bounds a batch. A script is to keep the server busy for a millisecond or two at most.
const batchTakes = 128

// keyQueue is a linked list of the takes of one key. It is in turns for as long as it has any.
type keyQueue struct {
	key         string
	first, last *take
}

func (k *keyQueue) push(t *take) {
	if k.first == nil {
		k.first = t
	} else {
		k.last.next = t
	}
	k.last = t
}

func (k *keyQueue) pop() *take {
	t := k.first
	k.first, t.next = t.next, nil
	return t
}

func (q *queue) add(t *take) {
	q.arrivals++
	q.waiting++
	t.arrival = q.arrivals
	q.fresh = append(q.fresh, t)
}

// waitsSince reports whether a take still waits that was among the first so many arrivals.
func (q *queue) waitsSince(arrivals uint64) bool {
	return len(q.fresh) > 0 && q.fresh[0].arrival <= arrivals ||
		slices.ContainsFunc(q.turns, func(k *keyQueue) bool { return k.first.arrival <= arrivals })
}

// nextBatch removes the takes that go together next, and returns them. Takes whose callers have given up are dropped.
// It returns nil if no take is left.
func (q *queue) nextBatch() []*take {
	if len(q.turns) == 0 && q.rooms == nil && q.freshFit() {
		return q.takeFresh()
	}
	q.sort()
	clear(q.units)
	var batch []*take
	var skipped []*keyQueue // keys whose next take does not fit: they are the first in the next batch
	logs, turn := 0, 0
	for ; turn < len(q.turns) && logs < batchTakes && len(skipped) < batchTakes; turn++ {
		k := q.turns[turn]
		q.dropGivenUp(k)
		if k.first != nil {
			if !q.hasRoom(k.first) {
				skipped = append(skipped, k)
				continue
			}
			t := k.pop()
			q.waiting--
			batch = append(batch, t)
			logs += len(t.keys)
			q.count(t)
		}
		if k.first == nil {
			delete(q.keys, k.key)
		} else {
			q.turns = append(q.turns, k)
		}
	}
	q.turns = slices.Replace(q.turns, 0, turn, skipped...)
	return batch
}

// hasRoom reports whether t may go together with the takes of its logs that the batch has already.
//
// A take that counts although it is denied pushes the oldest units out of a log that is full. Takes of one batch must
// not push out each other: when the command is sent again, those that are not in the log any more would be decided a
// second time. They cannot as long as a log has room for all of their units.
func (q *queue) hasRoom(t *take) bool {
	for i, room := range q.rooms {
		if units := q.units[t.keys[i]]; units > 0 && units+t.cost(i) > room {
			return false
		}
	}
	return true
}

// count notes that the batch has the take.
func (q *queue) count(t *take) {
	if q.rooms != nil && q.units == nil {
		q.units = make(map[string]int)
	}
	for i := range q.rooms {
		q.units[t.keys[i]] += t.cost(i)
	}
}

// freshFit reports whether all fresh takes go together, so that they need not be sorted by key.
func (q *queue) freshFit() bool {
	logs := 0
	for _, t := range q.fresh {
		logs += len(t.keys)
	}
	return logs <= batchTakes || len(q.fresh) == 1
}

func (q *queue) takeFresh() []*take {
	batch := slices.DeleteFunc(slices.Clone(q.fresh), (*take).gaveUp)
	q.clearFresh()
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
	for _, t := range q.fresh {
		if t.gaveUp() {
			q.waiting--
			continue
		}
		k := q.keys[t.key]
		if k == nil {
			k = &keyQueue{key: t.key}
			q.keys[t.key] = k
			q.turns = append(q.turns, k)
		}
		k.push(t)
	}
	q.clearFresh()
}

// clearFresh keeps the memory of the list for other takes.
func (q *queue) clearFresh() {
	clear(q.fresh)
	q.fresh = q.fresh[:0]
}

func (q *queue) dropGivenUp(k *keyQueue) {
	for k.first != nil && k.first.gaveUp() {
		k.pop()
		q.waiting--
	}
}
