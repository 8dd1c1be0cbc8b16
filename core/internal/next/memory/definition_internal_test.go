package memory

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/next/definition"
	"github.com/sashlimit/sash/core/internal/next/store"
	"github.com/sashlimit/sash/core/internal/testlen"
)

// full is a Store as a [store.Full].
type full struct {
	*Store
	Overrides
}

func (f *full) Validate(...*store.Limit) error { return nil }

func (f *full) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	err := store.ValidateTakes(takes, answers)
	if err == nil {
		f.Store.Take(takes, answers)
	}
	return err
}

func (f *full) Reset(_ context.Context, k store.Key, limits []*store.Limit, young time.Duration) error {
	f.Store.Reset(&k, limits, young)
	return nil
}

func (f *full) Settle(_ context.Context, s store.Settlement) error {
	f.Store.Settle(&s)
	return nil
}

func (f *full) Log(_ context.Context, k store.Key, l *store.Limit) ([]store.Entry, error) {
	return f.Store.Log(&k, l), nil
}

func (f *full) Merge(_ context.Context, m store.MergeRequest) error {
	f.Store.Merge(&m)
	return nil
}

func (f *full) Renew(_ context.Context, r store.Renewal) error {
	f.Store.Renew(&r)
	return nil
}

func config() definition.Config {
	return definition.Config{
		Callers: 8,
		Run:     func(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) },
		New: func(*testing.T) definition.Clocked {
			return definition.Clocked{Store: &full{Store: New(1000)}, Now: time.Now, Advance: time.Sleep}
		},
	}
}

// The store answers as the definition does, whatever is done to it.
func TestDefinition(t *testing.T) {
	testlen.SkipRace(t)
	c := config()
	c.Operations = testlen.Of(100_000, 1_000_000)
	definition.Random(t, c)
}

func TestSmallWorlds(t *testing.T) {
	testlen.SkipRace(t)
	c := config()
	c.New = func(*testing.T) definition.Clocked { // with room for all worlds that run at the same time
		return definition.Clocked{Store: &full{Store: New(10_000)}, Now: time.Now, Advance: time.Sleep}
	}
	definition.Explore(t, c, 3, testlen.Of(1000, 0)) // all
	definition.Explore(t, c, 4, testlen.Of(1000, 30_000))
}
