package core_test

import "testing"

// skipRace skips a long test of one goroutine where the race detector runs, which makes it ten times as long and finds
// nothing in it.
func skipRace(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine: runs without the race detector")
	}
}
