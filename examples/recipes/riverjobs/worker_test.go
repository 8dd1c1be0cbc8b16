package riverjobs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/recipes/riverjobs"
)

// A job that comes too early is snoozed until the instant when it can run, and runs then. Other customers' jobs run.
func TestSnooze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := core.New(core.PerMinute(2), core.ByText())
		if err != nil {
			t.Fatal(err)
		}
		sent := map[string]int{}
		w := &riverjobs.EmailWorker{Limiter: limiter, Send: func(_ context.Context, a riverjobs.EmailArgs) error {
			sent[a.Customer]++
			return nil
		}}
		work := func(customer string) error {
			return w.Work(t.Context(), &river.Job[riverjobs.EmailArgs]{Args: riverjobs.EmailArgs{Customer: customer}})
		}
		for range 2 {
			if err := work("ann"); err != nil {
				t.Error(err)
			}
			time.Sleep(7 * time.Second)
		}
		var snooze *river.JobSnoozeError
		if err := work("ann"); !errors.As(err, &snooze) || snooze.Duration != 46*time.Second {
			t.Fatalf("the third job of a minute returned %v, want a snooze of 46s", err)
		}
		if err := work("bob"); err != nil {
			t.Error(err)
		}
		time.Sleep(snooze.Duration - 1)
		if err := work("ann"); !errors.As(err, &snooze) || snooze.Duration != 1 {
			t.Errorf("before its time the job returned %v, want a snooze of 1ns", err)
		}
		time.Sleep(snooze.Duration)
		if err := work("ann"); err != nil {
			t.Error(err)
		}
		if sent["ann"] != 3 || sent["bob"] != 1 {
			t.Errorf("sent %v, want 3 of ann and 1 of bob", sent)
		}
	})
}

// Work satisfies the queue, and a job whose email could not be sent has failed.
func TestFailure(t *testing.T) {
	limiter, err := core.New(core.PerMinute(2), core.ByText())
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("no such mailbox")
	send := func(context.Context, riverjobs.EmailArgs) error { return failed }
	w := &riverjobs.EmailWorker{Limiter: limiter, Send: send}
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	job := &river.Job[riverjobs.EmailArgs]{Args: riverjobs.EmailArgs{Customer: "ann"}}
	if err := w.Work(t.Context(), job); !errors.Is(err, failed) {
		t.Errorf("%v, want the error of sending", err)
	}
}
