// Package timerlag measures how late this machine runs timers, so that tests can allow for it in bounds of time.
// Where timers are punctual, the bounds stay as they are.
package timerlag

import (
	"sync"
	"time"
)

// Meter measures the worst delay of a timer since it was last reset.
type Meter struct {
	stop, stopped chan struct{}

	mu    sync.Mutex
	begun time.Time // when the timer was set
	most  time.Duration
}

const step = 5 * time.Millisecond

// Watch starts a meter, which has a goroutine until Stop.
func Watch() *Meter {
	m := &Meter{stop: make(chan struct{}), stopped: make(chan struct{}), begun: time.Now()}
	go m.run()
	return m
}

func (m *Meter) run() {
	defer close(m.stopped)
	for {
		select {
		case <-time.After(step):
			m.Worst()
			m.mu.Lock()
			m.begun = time.Now()
			m.mu.Unlock()
		case <-m.stop:
			return
		}
	}
}

// Stop ends the meter's goroutine, and returns when it has ended. What was measured stays.
func (m *Meter) Stop() {
	close(m.stop)
	<-m.stopped
}

// Reset begins anew.
func (m *Meter) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun, m.most = time.Now(), 0
}

// Worst is how late a timer was at worst, including one that is late by now.
func (m *Meter) Worst() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.stopped:
	default:
		m.most = max(m.most, time.Since(m.begun)-step)
	}
	return m.most
}

// Slack is what a bound of time may allow for, which is ten times Worst: a request has several steps, each of
// which may be late, and another thread or process may have been later than this one.
func (m *Meter) Slack() time.Duration { return 10 * m.Worst() }
