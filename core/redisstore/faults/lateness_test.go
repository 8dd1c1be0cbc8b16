package faults_test

import (
	"sync"
	"time"
)

// late tells how late this machine runs what is due, so that bounds of time can allow for it.
var late lateness

// lateness is the worst delay of a timer since it was last reset.
type lateness struct {
	mu    sync.Mutex
	begun time.Time // when the timer was set
	most  time.Duration
}

const latenessStep = 5 * time.Millisecond

// watch runs as long as the tests do.
func (l *lateness) watch() {
	for {
		l.mu.Lock()
		l.begun = time.Now()
		l.mu.Unlock()
		pass(latenessStep)
		l.worst()
	}
}

// worst includes a timer that is late by now.
func (l *lateness) worst() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = max(l.most, time.Since(l.begun)-latenessStep)
	return l.most
}

func (l *lateness) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun, l.most = time.Now(), 0
}

// slack is what to allow for. A decision, a recovery, is several steps, each of which may be late, and a step of
// another thread or of the server may be later than the timer has been: where it was late by 5 ms this is 50 ms.
func (l *lateness) slack() time.Duration { return 10 * l.worst() }
