package core_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/sashlimit/sash/core/store"
)

// takeSpy shows the first take of each request.
type takeSpy struct {
	store.Full

	seen func(store.Take)
}

func (s *takeSpy) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	s.seen(takes[0])
	return s.Full.Take(ctx, takes, answers)
}

// failingNow is a store that does not answer while it is away.
type failingNow struct {
	store.Full

	away atomic.Bool
}

var errAway = errors.New("the store is away")

func (s *failingNow) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if s.away.Load() {
		return errAway
	}
	return s.Full.Take(ctx, takes, answers)
}

func (s *failingNow) Settle(ctx context.Context, t store.Settlement) error {
	if s.away.Load() {
		return errAway
	}
	return s.Full.Settle(ctx, t)
}

func (s *failingNow) Merge(ctx context.Context, m store.MergeRequest) error {
	if s.away.Load() {
		return errAway
	}
	return s.Full.Merge(ctx, m)
}
