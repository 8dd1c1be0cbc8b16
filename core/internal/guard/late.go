package guard

import (
	"context"
	"errors"

	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/store"
)

// classProcess is the Class of an error that says nothing about the store.
const (
	classProcess  = "process"
	adviseProcess = "see why this process had no CPU time: GOMAXPROCS, a CPU limit of its container, " +
		"garbage collection, too many goroutines that compute, or other programs"
)

// maybeAnswered reports whether a call may have timed out although the store has answered, because this process could
// not run.
func maybeAnswered(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	c, ok := ctx.(deadline.Context)
	return ok && timedOut(err) && (c.IsLate() || c.HasStalled())
}

// missed returns the error of a call that has timed out, with a class of its own if it ended long after its deadline.
func missed(ctx context.Context, err error) error {
	if c, ok := ctx.(deadline.Context); ok && timedOut(err) && c.IsLate() {
		return &store.StoreError{Err: err, Class: classProcess, Advice: adviseProcess}
	}
	return err
}

// timedOut reports whether a call has ended without an answer because of its deadline.
func timedOut(err error) bool {
	var e interface{ Timeout() bool }
	return errors.As(err, &e) && e.Timeout()
}
