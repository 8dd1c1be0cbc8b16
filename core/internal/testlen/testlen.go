// Package testlen tells how long tests are.
package testlen

import "testing"

// Of returns short with go test -short, as in make test, and full without it, as in make test-long. A length is, for
// example, that of a random trace. The short one must be enough for what the test asserts, on every run.
func Of(short, full int) int {
	if testing.Short() {
		return short
	}
	return full
}

// SkipRace skips a long test where the race detector is on, which makes it up to ten times as long, and finds nothing
// in it: a test of one goroutine, or whose goroutines are those of another test.
func SkipRace(t *testing.T) {
	t.Helper()
	if Race {
		t.Skip("runs without the race detector")
	}
}
