package timerlag

import (
	"testing"
	"testing/synctest"
	"time"
)

// The meter's goroutine is not run for a second, while its timer has 5 ms.
func TestLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Meter{stop: make(chan struct{}), stopped: make(chan struct{}), begun: time.Now()}
		time.Sleep(time.Second)
		if worst := m.Worst(); worst != time.Second-step {
			t.Errorf("late by %v, want %v", worst, time.Second-step)
		}
		go m.run()
		time.Sleep(time.Second)
		m.Stop()
		if worst, slack := m.Worst(), m.Slack(); worst != time.Second || slack != 10*time.Second {
			t.Errorf("late by %v in all, slack %v", worst, slack)
		}
		m = Watch()
		time.Sleep(time.Second)
		m.Reset()
		if worst := m.Worst(); worst > 0 {
			t.Errorf("late by %v", worst)
		}
		m.Stop()
	})
}
