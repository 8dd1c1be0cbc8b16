package coretest

import (
	"context"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

// FakeStore is a store for tests: exact and slow. Its time changes only by Advance, and it fails after Fail was called.
// It begins at the Unix epoch, from which the periods of a core.FixedWindow are counted too. The zero value is ready.
// Give its limiters core.WithDenyCache(0): the deny cache uses real time.
type FakeStore struct {
	mu    sync.Mutex
	now   time.Duration
	err   error
	takes int
	logs  definition.Store

	overrides memory.Overrides
}

var _ store.Full = (*FakeStore)(nil)

// Advance moves the store's time on.
func (f *FakeStore) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now += d
	f.logs.Advance(d)
}

// Now is the store's time.
func (f *FakeStore) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Unix(0, 0).Add(f.now)
}

// Fail makes every valid call fail with err, until Fail is called with nil. After a failure, a limiter under
// core.FailLocal has a goroutine: within a bubble of testing/synctest, close it at the end.
func (f *FakeStore) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Takes is how many requests the store was asked about.
func (f *FakeStore) Takes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takes
}

// failing returns the error of Fail.
func (f *FakeStore) failing() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Validate implements [store.Store].
func (f *FakeStore) Validate(...*store.Limit) error { return nil }

// Take implements [store.Store].
func (f *FakeStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	f.mu.Lock()
	err := f.err
	if err == nil {
		f.takes++
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.logs.Take(ctx, takes, answers)
}

// Settle implements [store.Settler].
func (f *FakeStore) Settle(ctx context.Context, s store.Settlement) error {
	if err := f.failing(); err != nil {
		return err
	}
	return f.logs.Settle(ctx, s)
}

// Log implements [store.Lister].
func (f *FakeStore) Log(ctx context.Context, key store.Key, l *store.Limit) ([]store.Entry, error) {
	if err := f.failing(); err != nil {
		return nil, err
	}
	return f.logs.Log(ctx, key, l)
}

// Merge implements [store.Merger].
func (f *FakeStore) Merge(ctx context.Context, m store.MergeRequest) error {
	if err := f.failing(); err != nil {
		return err
	}
	return f.logs.Merge(ctx, m)
}

// Renew implements [store.Renewer].
func (f *FakeStore) Renew(ctx context.Context, r store.Renewal) error {
	if err := f.failing(); err != nil {
		return err
	}
	return f.logs.Renew(ctx, r)
}

// Reset implements [store.Store].
func (f *FakeStore) Reset(ctx context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	if err := f.failing(); err != nil {
		return err
	}
	return f.logs.Reset(ctx, key, limits, young)
}

// SetOverride implements [store.Overrider].
func (f *FakeStore) SetOverride(_ context.Context, policy string, o store.Override) error {
	if err := f.failing(); err != nil {
		return err
	}
	return f.overrides.Set(policy, o)
}

// Overrides implements [store.Overrider].
func (f *FakeStore) Overrides(
	_ context.Context, policy, known string,
) (version string, all []store.Override, err error) {
	if err := f.failing(); err != nil {
		return "", nil, err
	}
	version, all = f.overrides.All(policy, known)
	return version, all, nil
}
