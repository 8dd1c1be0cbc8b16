package guard

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// fixedAnswer is a store that gives the same answer to each take at once.
type fixedAnswer struct {
	store.Store

	answer store.Answer
}

func (s *fixedAnswer) Take(_ context.Context, _ []store.Take, answers []store.Answer) error {
	for i := range answers {
		answers[i] = s.answer
	}
	return nil
}

// BenchmarkTake decides requests over one log and over two that the store admits, and denials that the deny cache has.
func BenchmarkTake(b *testing.B) {
	admitted, denied := store.Answer{Allowed: true}, store.Answer{Retry: time.Hour, Denied: 1}
	denied.State[0] = store.State{Used: 9, Reset: time.Hour}
	for _, c := range []struct {
		name   string
		answer store.Answer
		logs   int
	}{{"store", admitted, 1}, {"store joint", admitted, 2}, {"cache", denied, 1}, {"cache joint", denied, 2}} {
		for _, goroutines := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d goroutines", c.name, goroutines), func(b *testing.B) {
				benchmarkTake(b, &fixedAnswer{answer: c.answer}, c.logs, goroutines)
			})
		}
	}
}

func benchmarkTake(b *testing.B, s store.Store, logs, goroutines int) {
	g := New(Config{
		Store: s, Policy: "p", Failure: Local, Timeout: 100 * time.Millisecond, DenyCache: time.Hour, LocalKeys: 10,
	})
	keys, plan := []store.Key{store.NewKey("p", "a"), store.NewKey("p", "b")}, planOf(9, time.Hour)
	ctx := context.Background()
	take := func() {
		var answers [2]store.Answer
		takes := [2]store.Take{{Key: keys[0], Plan: plan, Cost: 1}, {Key: keys[1], Plan: plan, Cost: 1}}
		if _, err := g.Take(ctx, takes[:logs], answers[:logs]); err != nil {
			b.Error(err)
		}
	}
	take()
	b.ReportAllocs()
	b.ResetTimer()
	if goroutines == 1 {
		for b.Loop() {
			take()
		}
		return
	}
	b.SetParallelism(goroutines / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			take()
		}
	})
}
