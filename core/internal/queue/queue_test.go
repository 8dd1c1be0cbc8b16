package queue_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/queue"
)

func isFirst(w *queue.Waiter[string]) bool {
	select {
	case <-w.First():
		return true
	default:
		return false
	}
}

// Waiters that join and leave in a random order are compared with plain slices.
func TestAgainstSlices(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	var q queue.Queues[string]
	queues := map[string][]*queue.Waiter[string]{}
	for step := range 2_000 {
		key := string(rune('a' + r.IntN(3)))
		if waiting := queues[key]; len(waiting) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(waiting))
			waiting[i].Leave()
			queues[key] = slices.Delete(waiting, i, i+1)
		} else {
			want := 0
			for _, w := range waiting {
				want += w.Cost
			}
			w, ahead := q.Join(key, 1+r.IntN(5))
			if ahead != want {
				t.Fatalf("seed %#x, step %d: %d ahead, want %d", seed, step, ahead, want)
			}
			queues[key] = append(waiting, w)
		}
		for key, waiting := range queues {
			ahead := 0
			for i, w := range waiting {
				if isFirst(w) != (i == 0) {
					t.Fatalf("seed %#x, step %d: queue %q: waiter %d is first: %v", seed, step, key, i, isFirst(w))
				}
				if i == 1 {
					ahead = 0 // the first waiter is awake, so it may have been served
				}
				if got := w.Ahead(); got != ahead {
					t.Fatalf("seed %#x, step %d: %d ahead of waiter %d, want %d", seed, step, got, i, ahead)
				}
				ahead += w.Cost
			}
		}
	}
}

func TestSleepAndWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue.Queues[string]
		start := time.Now()
		first, _ := q.Join("a", 2)
		second, _ := q.Join("a", 3)
		q.Wake("without waiters")
		var wg sync.WaitGroup
		wg.Go(func() { first.Sleep(t.Context(), time.Minute) })
		synctest.Wait()
		if got := second.Ahead(); got != 2 {
			t.Errorf("%d ahead while the first sleeps, want 2", got)
		}
		time.Sleep(time.Second)
		q.Wake("a")
		wg.Wait()
		if got := time.Since(start); got != time.Second {
			t.Errorf("woken after %v, want 1s", got)
		}
		q.Wake("a") // while it is awake: its next sleep ends at once
		q.Wake("a")
		first.Sleep(t.Context(), time.Minute)
		if got := time.Since(start); got != time.Second {
			t.Errorf("the sleep after a wake ended after %v, want 1s", got)
		}
		first.Sleep(t.Context(), time.Minute)
		if got := time.Since(start); got != time.Minute+time.Second {
			t.Errorf("slept until %v, want 1m1s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first.Sleep(ctx, time.Minute)
		if got := time.Since(start); got != time.Minute+2*time.Second {
			t.Errorf("slept until %v, want 1m2s, when the context was done", got)
		}
		first.Leave()
		<-second.First()
		second.Leave()
	})
}

// Waiters of one queue are first one after the other.
func TestConcurrentWaiters(t *testing.T) {
	var q queue.Queues[int]
	var wg sync.WaitGroup
	var busy [4]int // the race detector reports it if two waiters are first at the same time
	for range 64 {
		wg.Go(func() {
			for i := range 200 {
				w, _ := q.Join(i%4, 1)
				<-w.First()
				busy[i%4]++
				w.Leave()
			}
		})
	}
	wg.Wait()
	for i, n := range busy {
		if n != 64*50 {
			t.Errorf("queue %d: %d waiters were first, want %d", i, n, 64*50)
		}
	}
}
