package within_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/allocs"
	"github.com/sashlimit/sash/core/internal/within"
)

type key struct{}

func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 7))
		defer cancel()
		for _, asked := range []bool{false, true} { // whether somebody waits for the end
			for _, want := range []error{context.DeadlineExceeded, context.Canceled} {
				c := within.New(parent, time.Second)
				if ends, ok := c.Deadline(); !ok || time.Until(ends) != time.Second || c.Value(key{}) != 7 {
					t.Errorf("deadline %v %v, value %v", ends, ok, c.Value(key{}))
				}
				if asked {
					c.Done()
				}
				time.Sleep(time.Second - 1)
				cancel() // which is no end of this one
				child, cancelChild := context.WithCancel(c)
				if err := errors.Join(c.Err(), child.Err()); err != nil {
					t.Error(err, "before its end")
				}
				if errors.Is(want, context.Canceled) {
					c.Cancel()
				} else {
					time.Sleep(time.Nanosecond)
				}
				synctest.Wait()
				if err := c.Err(); !errors.Is(err, want) || !errors.Is(child.Err(), want) {
					t.Errorf("%v and %v, want %v", err, child.Err(), want)
				}
				<-c.Done()
				c.Cancel()
				if err := c.Err(); !errors.Is(err, want) {
					t.Errorf("%v after another end, want %v", err, want)
				}
				cancelChild()
			}
		}
		over := within.New(parent, time.Second)
		over.Cancel()
		<-over.Done() // who asks only now
	})
}

func TestAllocations(t *testing.T) {
	ctx := t.Context()
	if n := allocs.PerRun(100, func() { within.New(ctx, time.Hour).Cancel() }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
