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
	w.sent(1000)
	if w.found("a"); !w.known("a") || w.known("b") {
		t.Fatal("not the key that was found alone is known")
	}
	if w.sent(epoch - 1); !w.known("a") {
		t.Fatal("the mark has gone before its time")
	}
	if w.sent(1); w.known("a") {
		t.Fatal("the mark stays")
	}
	for i := range epoch { // found by their costs: these are not sent again
		w.mark(fmt.Sprint(i))
	}
	unknown := 0
	for i := range epoch {
		if !w.known(fmt.Sprint("other", i)) {
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
		w.found(fmt.Sprint(i))
	}
	if !w.known("another") {
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
				w.mark("a")
				w.sent(epoch)
			}
		})
	}
	all.Wait()
}
