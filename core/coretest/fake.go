package coretest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

// FakeStore is a store for tests: exact and slow. Its time changes only by Advance, and it fails after Fail was called.
// It begins at the Unix epoch, from which the periods of a core.FixedWindow are counted too. The zero value is ready.
// Give its limiters core.WithDenyCache(0): the deny cache uses real time.
type FakeStore struct {
	logs

	takes     atomic.Int64
	overrides memory.Overrides
}

type logs = definition.Store

var _ store.Full = (*FakeStore)(nil)

// Advance moves the store's time on.
func (f *FakeStore) Advance(d time.Duration) { f.logs.Advance(d) }

// Now is the store's time.
func (f *FakeStore) Now() time.Time { return f.logs.Now() }

// Fail makes every valid call fail with err, until Fail is called with nil. After a failure, a limiter under
// core.FailLocal has a goroutine: within a bubble of testing/synctest, close it at the end.
func (f *FakeStore) Fail(err error) { f.logs.Fail(err) }

// Takes is how many requests the store was asked about.
func (f *FakeStore) Takes() int { return int(f.takes.Load()) }

// Take implements [store.Store].
func (f *FakeStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	err := f.logs.Take(ctx, takes, answers)
	if err == nil {
		f.takes.Add(1)
	}
	return err
}

// SetOverride implements [store.Overrider].
func (f *FakeStore) SetOverride(_ context.Context, policy string, o store.Override) error {
	if err := definition.Failure(&f.logs); err != nil {
		return err
	}
	return f.overrides.Set(policy, o)
}

// Overrides implements [store.Overrider].
func (f *FakeStore) Overrides(
	_ context.Context, policy, known string,
) (version string, all []store.Override, err error) {
	if err := definition.Failure(&f.logs); err != nil {
		return "", nil, err
	}
	version, all = f.overrides.All(policy, known)
	return version, all, nil
}
