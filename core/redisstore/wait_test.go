package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
)

// Two processes wait for one key in real time. A second limit, which is never reached, keeps the log of it all.
func TestWaitInTwoProcesses(t *testing.T) {
	const quota, window, waiters = 5, 200 * time.Millisecond, 20
	server := redistest.Start(t)
	limits := core.Limits{{Quota: quota, Window: window}, core.PerMinute(1000)}
	var processes [2]*core.Limiter
	for i := range processes {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { rdb.Close() })
		processes[i] = newLimiter(t, limits, redisstore.New(rdb))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			if d, err := processes[i%2].Wait(ctx, "k"); err != nil || !d.Allowed {
				t.Errorf("waiter %d: %+v, %v", i, d, err)
			}
		})
	}
	wg.Wait()
	entries, err := processes[0].Log(t.Context(), "k")
	if err != nil || len(entries) != waiters {
		t.Fatalf("%d entries of %d waiters, %v", len(entries), waiters, err)
	}
	for i := quota; i < len(entries); i++ {
		if within := entries[i].At.Sub(entries[i-quota].At); within < window {
			t.Errorf("entries %d to %d are within %v: one more than the quota of %v", i-quota, i, within, limits[0])
		}
	}
}

// The takes ahead together cost more than a take may, which is no error of any of them.
func TestWaitBehindLargeCosts(t *testing.T) {
	limit := core.Limit{Quota: core.MaxQuota, Window: 300 * time.Millisecond}
	l := newLimiter(t, limit, redisstore.New(start(t)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if d, err := l.WaitN(ctx, "k", core.MaxQuota*3/10); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	wg.Wait()
}
