package coretest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// StoreConfig says how to make the store under test.
type StoreConfig struct {
	// New makes an empty store whose time stands still, and the function that
	// moves it on. For a store on this process's clock that is [time.Sleep] within a
	// bubble of testing/synctest; see Run.
	New func(*testing.T) (store core.Store, advance func(time.Duration))

	// Run runs one case; nil means t.Run. To run cases in a bubble:
	//
	//	func(t *testing.T, name string, f func(*testing.T)) {
	//		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	//	}
	Run func(t *testing.T, name string, f func(*testing.T))

	// Repeats says that every take is executed twice. A denial that is recorded may then have removed the entries that
	// its answer is about.
	Repeats bool

	// OneLimit says that each log has one limit, which is always the same, and each take costs one unit, as with
	// package redisstream. Cases that need more are skipped, and Oracle leaves such steps out.
	OneLimit bool

	// Batch has a store decide about requests that wait at the same time, and returns the answers to each. All have the
	// same mode, and as many takes, of the same plans; requests of several takes draw from several logs. It also
	// returns the requests in the order in which they were decided: those of one group as one, so that each gets the
	// Reset of the last. BatchOracle, which is skipped if Batch is nil, and JointOracle call it.
	Batch func(ctx context.Context, s core.Store, requests [][]store.Take) (
		answers [][]store.Answer, groups [][]int, err error)

	// Checks is how many random decisions are compared with the oracle; zero
	// means 100,000. With go test -short it is a twentieth, or 2,000 if Checks
	// is not less.
	Checks int
}

// limiter makes a limiter on store, or fails.
func limiter(t *testing.T, store core.Store, p core.Policy, opts ...core.Option) *core.Limiter {
	t.Helper()
	// Every take must reach the store, and must not time out under the race detector.
	opts = append(opts, core.WithStore(store), core.WithDenyCache(0), core.WithTimeout(time.Minute),
		core.WithFailure(core.FailClosed))
	l, err := core.New(p, core.Global(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func allow(t *testing.T, l *core.Limiter, key string, cost int) core.Decision {
	t.Helper()
	d, err := l.AllowN(t.Context(), key, cost)
	if err != nil && !errors.Is(err, core.ErrCostExceedsQuota) {
		t.Fatalf("AllowN(%q, %d): %v", key, cost, err)
	}
	return d
}
