package main

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

// inBubble calls f in a bubble of testing/synctest, where time passes only while every goroutine waits, and returns
// when f does. Some peers have goroutines that never end, and a bubble ends only with all of its goroutines. So this
// one stays, with its time stopped and all that f holds, until the program ends. Only tests may enter a bubble, so the
// program runs one.
func inBubble(f func()) {
	done, never := make(chan struct{}), make(chan struct{})
	test := testing.InternalTest{Name: "bubble", F: func(t *testing.T) {
		synctest.Test(t, func(*testing.T) {
			f()
			close(done)
			<-never // made outside of the bubble, so this is no waiting that lets time pass
			runtime.KeepAlive(f)
		})
	}}
	all := func(string, string) (bool, error) { return true, nil }
	go testing.Main(all, []testing.InternalTest{test}, nil, nil)
	<-done
}

// inStep is a client of Redis whose scripts run at the bubble's time, but years later: a bubble begins in 2000, when
// the seconds since 1970 had a digit less.
type inStep struct {
	*redis.Client
	clock *redistest.Clock
	mu    sync.Mutex
}

func newInStep(addr string) *inStep {
	// Time stands still during a call, so it cannot time out.
	rdb := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: -1, WriteTimeout: -1})
	return &inStep{Client: rdb, clock: redistest.NewClock()}
}

const yearsLater = 26 * 365 * 24 * time.Hour

func (c *inStep) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redistest.ErrNoScript)
	return cmd
}

func (c *inStep) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	c.mu.Lock()
	c.clock.Advance(time.Since(c.clock.Now()) + yearsLater)
	args = c.clock.Args(args)
	c.mu.Unlock()
	return c.Client.Eval(ctx, c.clock.Script(script), keys, args...)
}
