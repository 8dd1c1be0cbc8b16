package redisclient

import (
	"fmt"
	"sync"
	"testing"
)

// A key is known until the marks go, and all keys are from when many were found.
func TestWeightsKnown(t *testing.T) {
	t.Parallel()
	var w weights
	m := w.found(w.current(1000), "a")
	if !w.known(m, "a") || w.known(m, "b") {
		t.Fatal("not the key that was found alone is known")
	}
	if m = w.current(epoch - 1); !w.known(m, "a") {
		t.Fatal("the mark has gone before its time")
	}
	if w.current(1); w.known(w.current(1), "a") {
		t.Fatal("the mark stays")
	}
	m = w.current(1)
	for i := range epoch { // found by their costs: these are not sent again
		m = w.mark(m, fmt.Sprint(i))
	}
	unknown := 0
	for i := range epoch {
		if !w.known(m, fmt.Sprint("other", i)) {
			unknown++
		}
	}
	if unknown < epoch/2 {
		t.Errorf("%d of %d other keys are unknown", unknown, epoch)
	}
	for i := range manyFound {
		if w.all.Load() {
			t.Errorf("all are known after %d", i)
		}
		m = w.found(m, fmt.Sprint(i))
	}
	if !w.known(m, "another") {
		t.Error("many were found, and another key is unknown")
	}
}

// Keys are marked while the marks go.
func TestMarksGoMeanwhile(t *testing.T) {
	t.Parallel()
	var w weights
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20_000 {
				if m := w.mark(w.current(1), "a"); !w.known(m, "a") {
					t.Error("a key is unknown that was just marked")
				}
				w.current(epoch)
			}
		})
	}
	all.Wait()
}
