package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
	"github.com/sashlimit/sash/core/store"
)

// Batches counts each batch in the place of its size, on logs of either kind.
func TestBatchesBySize(t *testing.T) {
	t.Parallel()
	rdb := start(t)
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 1000, Window: time.Minute}}})
	for i, s := range []core.Store{redisstore.New(rdb), redisstream.New(rdb)} {
		batcher := s.(store.Batcher)
		var want store.Batches
		if got := batcher.Batches(); got != want {
			t.Errorf("before the first: %+v", got)
		}
		keys := keysOf(t, 1000, fmt.Sprint("sizes", i))
		id := uint64(1 << 32)
		for _, size := range []struct{ takes, place int }{
			{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {8, 3}, {9, 4}, {64, 6}, {65, 7}, {128, 7},
		} {
			batch := make([]store.Take, size.takes)
			for i := range batch {
				id++
				batch[i] = store.Take{Key: keys[i], Plan: plan, Cost: 1, ID: id, Mode: store.ModeCharge}
			}
			if _, err := redisstore.TakeTogether(t.Context(), s, true, batch); err != nil {
				t.Fatal(err)
			}
			want.Sizes[size.place]++
			want.Takes += uint64(size.takes)
			if got := batcher.Batches(); got != want {
				t.Fatalf("after a batch of %d: %+v, want %+v", size.takes, got, want)
			}
		}
	}
}

// The takes of all batches are those of all requests, which a limiter tells.
func TestBatchesCountAllTakes(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, core.PerHour(10_000), redisstore.New(start(t)))
	const callers, each = 32, 20
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for range each {
				if _, err := l.Allow(context.Background(), fmt.Sprint(c)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	b := l.Stats().Batches
	if b == nil || b.Takes != callers*each {
		t.Fatalf("batches %+v, want %d takes", b, callers*each)
	}
	batches := uint64(0)
	for _, n := range b.Sizes {
		batches += n
	}
	if batches > b.Takes || batches < b.Takes/128 {
		t.Errorf("%d batches of %d takes", batches, b.Takes)
	}
}
