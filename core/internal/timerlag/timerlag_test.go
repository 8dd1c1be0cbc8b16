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
