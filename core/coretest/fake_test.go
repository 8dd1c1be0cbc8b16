package coretest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

func TestFakeStore(t *testing.T) {
	coretest.Store(t, coretest.StoreConfig{New: func(*testing.T) coretest.Clocked {
		s := new(coretest.FakeStore)
		return coretest.Clocked{Store: s, Now: s.Now, Advance: s.Advance}
	}})
}

func TestFakeStoreFails(t *testing.T) {
	s := new(coretest.FakeStore)
	take := func() error {
		l := &store.Limit{Log: "1m", Quota: 1, Window: time.Minute}
		takes := []store.Take{{Key: store.NewKey("p", "k"), Limit: l, Cost: 1, ID: 1}}
		return s.Take(t.Context(), takes, make([]store.Answer, 1))
	}
	refused := errors.New("connection refused")
	s.Fail(refused)
	if err := take(); !errors.Is(err, refused) {
		t.Errorf("%v, want %v", err, refused)
	}
	s.Fail(nil)
	if err := take(); err != nil || s.Takes() != 1 {
		t.Errorf("%v, %d takes; want one", err, s.Takes())
	}
}
