package store_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
)

// The stores of the examples pass the tests that every store passes, with and without the optional methods.
func TestExampleStores(t *testing.T) {
	for name, makeStore := range map[string]func() core.Store{
		"MapStore":  func() core.Store { return NewMapStore() },
		"FullStore": func() core.Store { return FullStore{NewMapStore()} },
	} {
		t.Run(name, func(t *testing.T) {
			coretest.Store(t, coretest.StoreConfig{
				Checks: 20_000,
				New:    func(*testing.T) (core.Store, func(time.Duration)) { return makeStore(), time.Sleep },
				Run: func(t *testing.T, name string, f func(*testing.T)) {
					t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
				},
			})
		})
	}
}
