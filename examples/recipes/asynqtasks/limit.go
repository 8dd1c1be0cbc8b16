// Package asynqtasks limits the tasks of the task queue asynq.
package asynqtasks

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sashlimit/sash/core"
)

// Limit returns middleware for [asynq.ServeMux.Use]. A task that the limiter denies fails with a [core.LimitedError].
func Limit(limiter *core.Limiter, key func(*asynq.Task) string) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			d, err := limiter.Allow(ctx, key(t))
			if err := cmp.Or(err, d.Err()); err != nil {
				return err
			}
			return next.ProcessTask(ctx, t)
		})
	}
}

// RetryDelay is for [asynq.Config]: a denied task is tried again when it can be admitted, in whole seconds, as asynq
// keeps them.
func RetryDelay(n int, err error, t *asynq.Task) time.Duration {
	var limited *core.LimitedError
	if errors.As(err, &limited) {
		return (limited.Decision.RetryAfter + time.Second - 1).Truncate(time.Second)
	}
	return asynq.DefaultRetryDelayFunc(n, err, t)
}

// IsFailure is for [asynq.Config]: being denied is no failure, and does not count as a retry.
func IsFailure(err error) bool {
	return !errors.As(err, new(*core.LimitedError))
}
