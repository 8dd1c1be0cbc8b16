//go:build !race

package testlen

// Race tells whether the race detector is on.
const Race = false
