package store_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/coretest"
)

// The store of the example does what a store must.
func TestExample(t *testing.T) {
	coretest.Store(t, coretest.StoreConfig{
		New: func(*testing.T) coretest.Clocked {
			return coretest.Clocked{Store: NewMapStore(), Now: time.Now, Advance: time.Sleep}
		},
		Run: func(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) },
	})
}
