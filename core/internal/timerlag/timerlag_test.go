package timerlag_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/timerlag"
)

// In a bubble every timer is punctual.
func TestPunctual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := timerlag.Watch()
		time.Sleep(time.Second)
		if worst, slack := m.Worst(), m.Slack(); worst != 0 || slack != 0 {
			t.Errorf("late by %v, slack %v, want none", worst, slack)
		}
		m.Stop()
		time.Sleep(time.Second)
		if worst := m.Worst(); worst != 0 {
			t.Errorf("late by %v after it was stopped", worst)
		}
	})
}

// A real timer may be late by any time, and a meter that is asked knows of one that has not fired yet.
func TestLate(t *testing.T) {
	m := timerlag.Watch()
	defer m.Stop()
	began := time.Now()
	<-time.After(20 * time.Millisecond)
	worst := m.Worst()
	if took := time.Since(began); worst < 0 || worst > took || m.Slack() < 10*worst {
		t.Errorf("late by %v of %v, slack %v", worst, took, m.Slack())
	}
	m.Reset()
	began = time.Now()
	if worst := m.Worst(); worst > time.Since(began) {
		t.Errorf("late by %v right after a reset", worst)
	}
}
