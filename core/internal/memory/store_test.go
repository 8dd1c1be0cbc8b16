package memory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// full is a Store as a [store.Full].
type full struct {
	*memory.Store
	overrides memory.Overrides
}

var _ store.Full = new(full)

func (f *full) Validate(...*store.Limit) error { return nil }

func (f *full) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	err := store.ValidateTakes(takes, answers)
	if err == nil {
		f.Store.Take(takes, answers)
	}
	return err
}

func (f *full) Reset(_ context.Context, k store.Key, limits []*store.Limit, young time.Duration) error {
	return withKey(&k, func() { f.Store.Reset(&k, limits, young) })
}

func (f *full) Settle(_ context.Context, s store.Settlement) error {
	return withKey(&s.Key, func() { f.Store.Settle(&s) })
}

func (f *full) Log(_ context.Context, k store.Key, l *store.Limit) (entries []store.Entry, err error) {
	err = withKey(&k, func() { entries = f.Store.Log(&k, l) })
	return entries, err
}

func (f *full) Merge(_ context.Context, m store.MergeRequest) error {
	return withKey(&m.Key, func() { f.Store.Merge(&m) })
}

func (f *full) Renew(_ context.Context, r store.Renewal) error {
	return withKey(&r.Key, func() { f.Store.Renew(&r) })
}

func withKey(k *store.Key, f func()) error {
	err := k.Validate()
	if err == nil {
		f()
	}
	return err
}

func (f *full) SetOverride(_ context.Context, policy string, o store.Override) error {
	return f.overrides.Set(policy, o)
}

func (f *full) Overrides(_ context.Context, policy, known string) (string, []store.Override, error) {
	version, all := f.overrides.All(policy, known)
	return version, all, nil
}

func inBubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }

// clocked returns a store with places for all worlds that run at the same time.
func clocked(*testing.T) coretest.Clocked {
	return coretest.Clocked{Store: &full{Store: memory.New(100_000)}, Now: time.Now, Advance: time.Sleep}
}

// The store does what every store must, and answers as the definition does, whatever is done to it.
func TestStore(t *testing.T) {
	testlen.SkipRace(t)
	coretest.Store(t, coretest.StoreConfig{New: clocked, Run: inBubble, Operations: testlen.Of(50_000, 1_000_000)})
}

func TestLongerWorlds(t *testing.T) {
	testlen.SkipRace(t)
	definition.Explore(t, definition.Config{
		Callers: 8, Run: inBubble,
		New: func(t *testing.T) definition.Clocked { return definition.Clocked(clocked(t)) },
	}, 4, testlen.Of(1000, 30_000))
}
