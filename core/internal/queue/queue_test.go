package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/queue"
)

// waiter waits in a goroutine, until it is called or its time has come, and says so.
func waiter(t *testing.T, w *queue.Waiter[string], name string, d time.Duration, told *[]string) {
	t.Helper()
	go func() {
		if w.Sleep(t.Context(), d) == nil {
			*told = append(*told, name)
		}
	}()
	synctest.Wait()
}

// TestOrder calls the first of a line, and those after it when they are the first.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue.Lines[string]
		var told []string
		all := make([]*queue.Waiter[string], 4)
		for i := range all {
			all[i] = q.Join("a", "b")
			if all[i].IsFirst() != (i == 0) {
				t.Errorf("waiter %d is first: %v", i, all[i].IsFirst())
			}
			waiter(t, all[i], fmt.Sprint(i), time.Minute, &told)
		}
		q.Wake("b") // nobody is there
		all[2].Leave()
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("called %v", told)
		}
		q.Wake("a")
		synctest.Wait()
		all[0].Leave()
		synctest.Wait()
		time.Sleep(time.Hour) // the time of one that is not the first does not come
		if got := fmt.Sprint(told); got != "[0 1]" {
			t.Errorf("called %s", got)
		}
		all[1].Leave()
		synctest.Wait()
		all[3].Leave()
		if got := fmt.Sprint(told); got != "[0 1 3]" {
			t.Errorf("called %s", got)
		}
	})
}

// TestLines has a waiter join a line that is not empty, and move to the end of another.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue.Lines[string]
		common := q.Join("common")
		other := q.Join("own", "common")
		if other.IsFirst() {
			t.Error("a waiter has gone ahead of others")
		}
		own := q.Join("own")
		if !own.IsFirst() || own.Move("own") || !own.Move("common") || own.IsFirst() {
			t.Error("a waiter that has moved is not at the end")
		}
		common.Leave()
		if !other.IsFirst() {
			t.Error("the second is not the first")
		}
		other.Leave()
		if !own.IsFirst() {
			t.Error("the last is not the first")
		}
		own.Leave()
	})
}

// TestWakeBeforeSleep remembers a call until the waiter sleeps.
func TestWakeBeforeSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue.Lines[string]
		w, start := q.Join("a"), time.Now()
		defer w.Leave()
		q.Wake("a")
		q.WakeAll(func(line string) bool { return line == "a" })
		if err := w.Sleep(t.Context(), time.Hour); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := w.Sleep(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
