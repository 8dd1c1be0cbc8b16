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

type waiter = queue.Waiter[string, int]

// Waiters that join and leave in a random order are compared with plain slices.
func TestAgainstSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		var q queue.Queues[string, int]
		queues, turns := map[string][]*waiter{}, map[*waiter]bool{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for step := range 1_000 {
			key := string(rune('a' + r.IntN(3)))
			if waiting := queues[key]; len(waiting) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(waiting))
				if !turns[waiting[i]] && r.IntN(2) == 0 {
					i = 0
				}
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
				go func() {
					if w.Turn(ctx); ctx.Err() == nil {
						turns[w] = true
					}
				}()
			}
			synctest.Wait()
			for key, waiting := range queues {
				ahead := 0
				for i, w := range waiting {
					if turns[w] != (i == 0) {
						t.Fatalf("seed %#x, step %d: queue %q: waiter %d has its turn: %v", seed, step, key, i,
							turns[w])
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
	})
}

// denied is a waiter of its own key that a log has denied.
func denied(q *queue.Queues[string, int], key, log string) *waiter {
	w, _ := q.Join(key, 1)
	w.Line(log, 0)
	return w
}

// woken puts waiters to sleep for a minute, and returns a function that tells which of them have been woken since.
func woken(t *testing.T, waiters ...*waiter) func() []int {
	t.Helper()
	awake := make([]bool, len(waiters))
	for i, w := range waiters {
		go func() {
			w.Sleep(t.Context(), time.Minute)
			awake[i] = true
		}()
	}
	synctest.Wait()
	return func() (which []int) {
		synctest.Wait()
		for i := range awake {
			if awake[i] {
				which, awake[i] = append(which, i), false
			}
		}
		return which
	}
}

func TestSleepAndWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue.Queues[string, int]
		start := time.Now()
		slept := func(w *waiter, ctx context.Context, want time.Duration, what string) {
			t.Helper()
			w.Line("a", 0)
			w.Sleep(ctx, time.Minute)
			if got := time.Since(start); got != want {
				t.Errorf("%s: slept until %v, want %v", what, got, want)
			}
			start = time.Now()
		}
		first, _ := q.Join("a", 2)
		second, _ := q.Join("a", 3)
		q.Wake("without waiters")
		time.AfterFunc(time.Second, func() {
			if got := second.Ahead(); got != 2 {
				t.Errorf("%d ahead while the first sleeps, want 2", got)
			}
			q.Wake("a")
		})
		slept(first, t.Context(), time.Second, "woken")
		q.Wake("a")
		q.Wake("a")
		slept(first, t.Context(), 0, "woken while awake")
		slept(first, t.Context(), time.Minute, "not woken")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		slept(first, ctx, time.Second, "until the context ends")
		first.Leave()
		second.Turn(t.Context())
		second.Leave()
	})
}

// Only the first waiter of a line counts the time, in the order in which they joined, and a log wakes one of them each
// time.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue.Queues[string, int]
		early, _ := q.Join("early", 1)
		waiters := []*waiter{early, denied(&q, "1", "log"), denied(&q, "2", "log"), denied(&q, "3", "log")}
		other := denied(&q, "4", "other log")
		early.Line("log", 0)
		which := woken(t, append(waiters, other)...)
		time.Sleep(time.Minute)
		if got := which(); !slices.Equal(got, []int{0, 4}) {
			t.Errorf("%v count the time, want the first of each line", got)
		}
		// A waiter that is awake was perhaps denied before, so it asks again.
		for i, want := range [][]int{nil, {1}, nil, {2}, nil, {3}, nil, nil} {
			if q.Wake("log"); !slices.Equal(which(), want) {
				t.Errorf("wake %d did not wake %v", i, want)
			}
		}
	})
}

// A waiter that was woken and leaves makes another ask, unless it has taken all that was there.
func TestWakesArePassedOn(t *testing.T) {
	for desc, c := range map[string]struct {
		leave func(*waiter)
		want  []int
	}{
		"gives up":            {(*waiter).Leave, []int{0}},
		"goes to another log": {func(w *waiter) { w.Line("other log", 0) }, []int{0}},
		"room for more":       {func(w *waiter) { w.Admitted(1); w.Leave() }, []int{0}},
		"no room for more":    {func(w *waiter) { w.Admitted(0); w.Leave() }, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var q queue.Queues[string, int]
			waiters := []*waiter{denied(&q, "0", "log"), denied(&q, "1", "log"), denied(&q, "2", "log")}
			which := woken(t, waiters...)
			q.Wake("log")
			q.Wake("log")
			if got := which(); !slices.Equal(got, []int{0, 1}) {
				t.Fatalf("%s: %v are woken", desc, got)
			}
			c.leave(waiters[1])
			waiters[0].Line("log", 0) // it asked before the other one left
			if got := woken(t, waiters[0])(); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v ask again, want %v", desc, got, c.want)
			}
		})
	}
}

// What was given back while a waiter was admitted is for the next, also if the waiter has left no room.
func TestWokenWhileAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue.Queues[string, int]
		waiters := []*waiter{denied(&q, "0", "log"), denied(&q, "1", "log"), denied(&q, "2", "log")}
		which := woken(t, waiters...)
		for _, want := range [][]int{{0}, nil, {1}, nil} { // one that is awake is to ask again if it is denied
			if q.Wake("log"); !slices.Equal(which(), want) {
				t.Fatalf("did not wake %v", want)
			}
		}
		waiters[1].Admitted(0)
		if waiters[1].Leave(); !slices.Equal(which(), []int{2}) {
			t.Error("the next was not woken")
		}
	})
}

// An admission that leaves room wakes as many as can have it, and in any case a new first waiter.
func TestAdmittedWakesAsManyAsThereIsRoomFor(t *testing.T) {
	for room, want := range map[int]int{0: 1, 1: 1, 3: 3, 100: 9} {
		synctest.Test(t, func(t *testing.T) {
			var q queue.Queues[string, int]
			var waiters []*waiter
			for i := range 10 {
				waiters = append(waiters, denied(&q, string(rune('a'+i)), "log"))
			}
			which := woken(t, waiters...)
			q.Wake("log")
			which()
			waiters[0].Admitted(room)
			if waiters[0].Leave(); len(which()) != want {
				t.Errorf("room for %d more did not wake %d", room, want)
			}
		})
	}
}

// What was given back while the only waiter of a line was asking is not lost, although it was in no line yet.
func TestGivenBackBeforeTheLineIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue.Queues[string, int]
		w, _ := q.Join("k", 1)
		q.Wake("log")
		w.Line("log", 0)
		if got := woken(t, w)(); len(got) != 1 {
			t.Error("it sleeps, though there may be room")
		}
		w.Line("log", 0)
		if got := woken(t, w)(); len(got) != 0 {
			t.Error("it was woken, though nothing was given back since it asked")
		}
	})
}

// Waiters of one queue are first one after the other.
func TestConcurrentWaiters(t *testing.T) {
	var q queue.Queues[int, int]
	var wg sync.WaitGroup
	var busy [4]int // the race detector reports it if two waiters are first at the same time
	for range 64 {
		wg.Go(func() {
			for i := range 200 {
				w, _ := q.Join(i%4, 1)
				w.Turn(t.Context())
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
