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
