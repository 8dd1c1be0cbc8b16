package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
)

// Below the quota, at it and above it, processes with leases of 20 ms admit at least 97 % of what one exact limiter
// would.
func TestLeasesAdmitAlmostAll(t *testing.T) {
	for _, processes := range []int{1, 3, 8}[testlen.Of(1, 0):testlen.Of(2, 3)] {
		for _, load := range []float64{0.9, 1, 1.5} {
			t.Run(fmt.Sprintf("%d processes, load %v", processes, load), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					defer time.Sleep(time.Minute) // until all commands have ended
					leasesUnderLoad(t, processes, load)
				})
			})
		}
	}
}

// exact is the definition of a limit: a list of instants.
type exact struct {
	mu       sync.Mutex
	limit    core.Limit
	admitted int
	window   []time.Time
}

func (e *exact) take() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for len(e.window) > 0 && now.Sub(e.window[0]) >= e.limit.Window {
		e.window = e.window[1:]
	}
	if len(e.window) < e.limit.Quota {
		e.window = append(e.window, now)
		e.admitted++
	}
}

func leasesUnderLoad(t *testing.T, processes int, load float64) {
	logs, ideal := newRemoteLogs(), &exact{limit: core.PerSecond(1500)}
	var all sync.WaitGroup
	var mu sync.Mutex
	admitted, leased := 0, 0
	ends := time.Now().Add(time.Duration(testlen.Of(2, 4)) * time.Second)
	pause := float64(time.Second) * float64(processes) / load / float64(ideal.limit.Quota)
	for range processes {
		l := newLimiter(t, ideal.limit, core.WithStore(connection{logs, quick}), core.WithLease(leaseLength),
			core.WithFailure(core.FailClosed))
		defer l.Close()
		all.Go(func() {
			for {
				time.Sleep(time.Duration(rand.ExpFloat64() * pause))
				if time.Now().After(ends) {
					return
				}
				ideal.take()
				all.Go(func() {
					d, err := l.Allow(context.Background(), "k")
					mu.Lock()
					defer mu.Unlock()
					if err == nil && d.Allowed {
						admitted++
						if core.IsLeased(&d) {
							logs.leased(&d, 1)
							leased++
						}
					}
				})
			}
		})
	}
	all.Wait()
	logs.verify(t, core.Limits{ideal.limit})
	share := float64(admitted) / float64(ideal.admitted)
	t.Logf("%.1f %% of the %d that an exact limiter admits, %d of them by leases; calls: %v",
		100*share, ideal.admitted, leased, logs.called())
	demand := load * float64(ideal.limit.Quota) * leaseLength.Seconds() / float64(processes) // in a lease, of a process
	if share < 0.97 || leased == 0 && demand > 10 {
		t.Errorf("%d admitted, %d by leases; an exact limiter admits %d", admitted, leased, ideal.admitted)
	}
}
