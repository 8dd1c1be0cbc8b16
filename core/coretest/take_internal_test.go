package coretest

import (
	"context"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// keeping is a store that uses what it was given after it has returned.
type keeping struct {
	FakeStore

	earlier []store.Take
}

func (k *keeping) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if k.earlier != nil {
		k.FakeStore.Take(ctx, k.earlier, make([]store.Answer, len(k.earlier)))
	}
	k.earlier = takes
	clear(answers)
	return nil
}

// A store that keeps what it was given is found: what it records is not what it was asked.
func TestTakeOverwritesWhatItHasGiven(t *testing.T) {
	s, plan := new(keeping), planOfOne(5, time.Hour, store.Plan{})
	key := store.NewKey("p", "k")
	for id := range uint64(3) {
		if _, err := Take(t.Context(), s, store.Take{Key: key, Plan: plan, Cost: 1, ID: id + 1}); err != nil {
			t.Fatal(err)
		}
	}
	if entries, _ := s.Log(t.Context(), key, time.Hour); len(entries) != 0 {
		t.Errorf("%v were recorded by takes that had been overwritten", entries)
	}
}
