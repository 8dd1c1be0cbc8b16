package queue

import "slices"

// line is the waiters that a log has denied, each the first of its key, in the order in which they joined.
type line[K, P comparable] struct {
	log     K
	plan    P
	waiters []*Waiter[K, P]
	awake   int // of the waiters
}

// InLine reports whether the waiter is in the line of a log for a plan, or in none if the log is that of its key.
func (w *Waiter[K, P]) InLine(log K, plan P) bool {
	if w.line == nil {
		return log == w.Key
	}
	return w.line.plan == plan && w.line.log == log
}

// enter adds the waiter, which is awake, to the line of a log.
func (w *Waiter[K, P]) enter(log K, plan P) {
	if log == w.Key {
		return
	}
	q := w.queues
	i := slices.IndexFunc(q.lines[log], func(l *line[K, P]) bool { return l.plan == plan })
	if i < 0 {
		i = len(q.lines[log])
		q.lines[log] = append(q.lines[log], &line[K, P]{log: log, plan: plan})
	}
	l := q.lines[log][i]
	w.line = l
	l.awake++
	l.waiters = slices.Insert(l.waiters, place(l.waiters, w), w)
}

// exit removes the waiter from its line, if it is in one.
func (w *Waiter[K, P]) exit() {
	l := w.line
	if l == nil {
		return
	}
	wakes, room := 0, 0
	switch {
	case w.admitted:
		wakes, room = min(1, w.room), w.room
	case !w.asleep:
		wakes = 1 // it may have been woken for what it did not take
	}
	if w.woken {
		wakes++
	}
	if !w.asleep {
		l.awake--
	}
	i := place(l.waiters, w)
	if i == 0 {
		wakes = max(wakes, 1) // the next one has to learn for how long to sleep
	}
	l.waiters = without(l.waiters, i)
	w.line, w.asleep, w.woken = nil, false, false
	if q := w.queues; len(l.waiters) == 0 {
		rest := slices.DeleteFunc(q.lines[l.log], func(other *line[K, P]) bool { return other == l })
		if q.lines[l.log] = rest; len(rest) == 0 {
			delete(q.lines, l.log)
		}
		return
	}
	l.wake(wakes)
	l.fill(room)
}

// wake wakes the first n waiters that are not to ask anyway.
func (l *line[K, P]) wake(n int) {
	for i := 0; i < len(l.waiters) && n > 0; i++ {
		if l.waiters[i].wake() {
			n--
		}
	}
}

// fill wakes waiters until n are awake, so that they take units at the same time and not one after the other.
func (l *line[K, P]) fill(n int) {
	for i := 0; i < len(l.waiters) && l.awake < n; i++ {
		if l.waiters[i].asleep {
			l.waiters[i].wake()
		}
	}
}
