package redisclient

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// silence tells a server that hangs from a process that cannot run. A [deadline.Context] lasts longer if the process
// cannot run; but when calls in a row have had no answer, the next ones end in time.
type silence struct {
	calls    atomic.Int32 // in a row that had no answer
	at       atomic.Int64 // when the latest of them ended, in nanoseconds since 1970
	answered atomic.Bool  // whether the server has answered once
}

const (
	// punctual is how soon after its deadline an operation ends if this process runs.
	punctual = 25 * time.Millisecond
	// recentSilence is for how long a call without an answer counts.
	recentSilence = 2 * time.Second
)

// hangs reports whether the server has lately left two calls in a row without an answer, or one if it never has
// answered.
func (s *silence) hangs() bool {
	calls := s.calls.Load()
	return calls > 0 && (calls > 1 || !s.answered.Load()) && time.Since(time.Unix(0, s.at.Load())) < recentSilence
}

// heard notes that the server has answered.
func (s *silence) heard() {
	if s.calls.Load() > 0 {
		s.calls.Store(0)
	}
	if !s.answered.Load() {
		s.answered.Store(true)
	}
}

// unanswered notes a call that has had no answer.
func (s *silence) unanswered() {
	s.at.Store(time.Now().UnixNano())
	s.calls.Add(1)
}

// note notes the result of a call whose last operation had to end by that time. If the operation ended later, the
// result says nothing about the server.
func (s *silence) note(err error, end time.Time) {
	if err == nil {
		s.heard()
		return
	}
	var late interface{ Timeout() bool }
	var op *net.OpError
	switch {
	case !errors.As(err, &late) || !late.Timeout():
	case errors.As(err, &op) && op.Op == "dial", !end.IsZero() && time.Since(end) < punctual:
		s.unanswered()
	}
}

// inTime returns ctx, or, if the server hangs, a context that ends at the deadline whether this process runs or not.
func (s *silence) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.hangs() {
		if end, ok := ctx.Deadline(); ok {
			return context.WithDeadline(ctx, end)
		}
	}
	return ctx, func() {}
}
