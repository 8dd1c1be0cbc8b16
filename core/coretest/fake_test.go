package coretest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

func TestFakeStore(t *testing.T) {
	coretest.Store(t, coretest.StoreConfig{
		Checks: 5000,
		New: func(*testing.T) (core.Store, func(time.Duration)) {
			store := new(coretest.FakeStore)
			return store, store.Advance
		},
	})
}

func TestFakeStoreWithOneLimit(t *testing.T) {
	coretest.Store(t, coretest.StoreConfig{
		OneLimit: true,
		Checks:   2000,
		New: func(*testing.T) (core.Store, func(time.Duration)) {
			store := new(coretest.FakeStore)
			return store, store.Advance
		},
	})
}

func TestFakeStoreFails(t *testing.T) {
	store := new(coretest.FakeStore)
	l, err := core.New(core.PerMinute(1), core.Global(), core.WithStore(store), core.WithFailure(core.FailClosed))
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	store.Fail(boom)
	var failed *core.StoreError
	if _, err := l.Allow(t.Context(), "k"); !errors.As(err, &failed) || !errors.Is(err, boom) {
		t.Errorf("Allow: %v", err)
	}
	if err := l.Reset(t.Context(), "k"); !errors.Is(err, boom) {
		t.Errorf("Reset: %v", err)
	}
	store.Fail(nil)
	if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}
