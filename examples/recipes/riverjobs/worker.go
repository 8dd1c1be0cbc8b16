// Package riverjobs has a worker of the job queue River whose jobs keep to a rate limit.
package riverjobs

import (
	"context"

	"github.com/riverqueue/river"

	"github.com/sashlimit/sash/core"
)

// EmailArgs are the arguments of a job that sends an email for a customer.
type EmailArgs struct {
	Customer string `json:"customer"`
	To       string `json:"to"`
}

// Kind implements [river.JobArgs].
func (EmailArgs) Kind() string { return "email" }

// EmailWorker sends emails, of each customer no more than its limiter admits.
type EmailWorker struct {
	river.WorkerDefaults[EmailArgs]

	Limiter *core.Limiter
	Send    func(context.Context, EmailArgs) error
}

// Work implements [river.Worker].
func (w *EmailWorker) Work(ctx context.Context, job *river.Job[EmailArgs]) error {
	d, err := w.Limiter.Allow(ctx, job.Args.Customer)
	if err != nil {
		return err // the store does not answer: this attempt has failed
	}
	if !d.Allowed {
		return river.JobSnooze(d.RetryAfter) // counts as no attempt
	}
	return w.Send(ctx, job.Args)
}
