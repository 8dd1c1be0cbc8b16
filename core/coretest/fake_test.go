package coretest_test

import (
	"testing"

	"github.com/sashlimit/sash/core/coretest"
)

func TestFakeStore(t *testing.T) {
	coretest.Store(t, coretest.StoreConfig{New: func(*testing.T) coretest.Clocked {
		s := new(coretest.FakeStore)
		return coretest.Clocked{Store: s, Now: s.Now, Advance: s.Advance}
	}})
}
