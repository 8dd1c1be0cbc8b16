package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
)

// With late replies, one fault made a process decide alone for good: the merge of its journal and the request that
// found Redis back shared one deadline.
func TestRecoveryWhereRepliesAreLate(t *testing.T) {
	for _, failure := range []core.Failure{core.FailLocal, core.FailOpen, core.FailClosed} {
		t.Run(failure.String(), func(t *testing.T) {
			t.Parallel()
			recovery(t, failure, inSets)
		})
	}
	t.Run("streams", func(t *testing.T) {
		t.Parallel()
		recovery(t, core.FailLocal, inStreams)
	})
}

// recovery is TestRecoveryWhereRepliesAreLate for one failure policy, and a kind of store.
func recovery(t *testing.T, failure core.Failure, newStore func(redisstore.Client) core.Store) {
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer rdb.Close()
	l, err := core.New(core.PerHour(100_000), core.Global(), core.WithStore(newStore(rdb)),
		core.WithTimeout(time.Second), core.WithFailure(failure))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var inRow, admitted atomic.Int64 // decisions of the store; units
	var all sync.WaitGroup
	ask := func() {
		d, err := l.Allow(context.Background(), "k")
		if err != nil || d.Degraded {
			inRow.Store(0)
		} else {
			inRow.Add(1)
		}
		if err == nil && d.Allowed {
			admitted.Add(1)
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); inRow.Load() < 20 || time.Since(began) < 3*time.Second; <-tick.C {
		switch since := time.Since(began); {
		case since > 60*time.Second:
			t.Fatal("a minute after a glitch of 1.5 s the store does not decide yet")
		case since > 2*time.Second:
			proxy.SetDelay(320 * time.Millisecond)
		case since > 500*time.Millisecond:
			proxy.SetDelay(1500 * time.Millisecond)
			inRow.Store(0)
		default:
			proxy.SetDelay(320 * time.Millisecond)
		}
		all.Go(ask)
	}
	all.Wait()
	proxy.SetDelay(0)
	if failure != core.FailLocal {
		return
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	d, err := l.Peek(context.Background(), "k")
	if err != nil || d.Degraded || int64(d.Used) != admitted.Load() {
		t.Errorf("%d units in the store, %d were admitted; %v, %v", d.Used, admitted.Load(), d.Degraded, err)
	}
}
