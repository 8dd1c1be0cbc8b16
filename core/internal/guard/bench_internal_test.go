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

// Settle and Book let a guard have leases.
func (s *fixedAnswer) Settle(context.Context, store.Settlement) error { return nil }

func (s *fixedAnswer) Book(context.Context, store.Booking) (store.Booked, error) {
	return store.Booked{Answer: s.answer}, nil
}

// BenchmarkTakeWithoutLease decides requests that the store admits, of logs with too few requests for a lease.
func BenchmarkTakeWithoutLease(b *testing.B) {
	for _, lease := range []time.Duration{0, 5 * time.Millisecond} {
		b.Run(lease.String(), func(b *testing.B) {
			g := New(Config{
				Store: &fixedAnswer{answer: store.Answer{Allowed: true}}, Policy: "p", Failure: Local,
				Timeout: 100 * time.Millisecond, DenyCache: time.Hour, LocalKeys: 10, Lease: lease,
			})
			keys, plan := make([]store.Key, 1<<16), planOf(9, time.Hour)
			for i := range keys {
				keys[i] = store.NewKey("p", fmt.Sprint(i))
			}
			ctx := context.Background()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				takes, answers := [1]store.Take{{Key: keys[i%len(keys)], Plan: plan, Cost: 1}}, [1]store.Answer{}
				var of [1]Use
				var err error
				if lease > 0 {
					_, err = g.TakeLeased(ctx, takes[:], answers[:], of[:])
				} else {
					_, err = g.Take(ctx, takes[:], answers[:])
				}
				if err != nil || of[0].IsLeased() {
					b.Fatal(err, of)
				}
			}
		})
	}
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
