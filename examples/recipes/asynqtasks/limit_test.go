package asynqtasks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/examples/recipes/asynqtasks"
)

// Six tasks under a limit of two in any two seconds are all processed, none too early, and none of them counts as
// retried. A task may be denied several times.
func TestTasks(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	limit := core.Limit{Quota: 2, Window: 2 * time.Second}
	limiter, err := core.New(core.Limits{limit, core.PerHour(100)}, core.ByText(), // the hour keeps the log
		core.WithStore(redisstore.New(rdb)), core.WithFailure(core.FailClosed), core.WithTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	queue := asynq.RedisClientOpt{Addr: server.Addr(), DB: 1}
	client := asynq.NewClient(queue)
	defer client.Close()
	for i := range 6 {
		task := asynq.NewTask("email", fmt.Append(nil, i))
		if _, err := client.Enqueue(task, asynq.MaxRetry(1), asynq.Retention(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	processed := make(chan string, 6)
	mux := asynq.NewServeMux()
	mux.Use(asynqtasks.Limit(limiter, func(task *asynq.Task) string { return task.Type() }))
	mux.HandleFunc("email", func(_ context.Context, task *asynq.Task) error {
		processed <- string(task.Payload())
		return nil
	})
	worker := asynq.NewServer(queue, asynq.Config{
		Concurrency: 6, LogLevel: asynq.ErrorLevel, DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc: asynqtasks.RetryDelay, IsFailure: asynqtasks.IsFailure,
	})
	if err := worker.Start(mux); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range 6 {
		seen[<-processed] = true
	}
	worker.Shutdown() // which waits until the last task is completed
	if len(seen) != 6 {
		t.Errorf("processed %v, want six tasks", seen)
	}
	entries, err := limiter.Log(t.Context(), "email")
	if err != nil || len(entries) != 6 {
		t.Fatalf("%d entries, %v; want 6", len(entries), err)
	}
	coretest.Verify(t, entries, core.Limits{limit})
	inspector := asynq.NewInspector(queue)
	defer inspector.Close()
	done, err := inspector.ListCompletedTasks("default")
	if err != nil || len(done) != 6 {
		t.Fatalf("%d tasks are completed, %v; want 6", len(done), err)
	}
	for _, task := range done {
		if task.Retried != 0 {
			t.Errorf("task %s has failed %d times", task.Payload, task.Retried)
		}
	}
}

// Other errors are retried as without the limiter.
func TestOtherErrors(t *testing.T) {
	err := errors.New("no such mailbox")
	if delay := asynqtasks.RetryDelay(3, err, nil); !asynqtasks.IsFailure(err) || delay < 81*time.Second {
		t.Errorf("failure %v, tried again after %v; want a failure that is tried again after 96s at least",
			asynqtasks.IsFailure(err), delay)
	}
}
