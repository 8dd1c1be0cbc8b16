package core_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

// farStore is a store with a pool of connections, in the time of a bubble. Each question takes a round trip, and a new
// connection handshakes more. Whoever calls may give up, but the call goes on, as go-redis' does. One that is made
// while the store is away loses its connection.
type farStore struct {
	coretest.FakeStore

	clock sync.Mutex
	began time.Time
	at    time.Duration

	trip       time.Duration
	handshakes int
	away       chan struct{} // closed when the store is back, or nil

	pool sync.Mutex
	idle int
}

func (f *farStore) reach(ctx context.Context) error {
	f.pool.Lock()
	trips := 1 + f.handshakes
	if f.idle > 0 {
		f.idle--
		trips = 1
	}
	away := f.away
	f.pool.Unlock()
	if away != nil {
		<-ctx.Done() // the answer never comes
		return ctx.Err()
	}
	if trips > 1 {
		dialled := make(chan struct{})
		go func() {
			time.Sleep(time.Duration(f.handshakes) * f.trip)
			close(dialled)
			if ctx.Err() != nil {
				f.free()
			}
		}()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-dialled:
		}
	}
	answered := make(chan struct{})
	go func() {
		time.Sleep(f.trip)
		f.free()
		close(answered)
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-answered:
		return nil
	}
}

// free returns a connection to the pool.
func (f *farStore) free() {
	f.pool.Lock()
	defer f.pool.Unlock()
	if f.away == nil {
		f.idle++
	}
}

// leave makes the store vanish, with all connections.
func (f *farStore) leave() {
	f.pool.Lock()
	defer f.pool.Unlock()
	f.away, f.idle = make(chan struct{}), 0
}

func (f *farStore) comeBack() {
	f.pool.Lock()
	defer f.pool.Unlock()
	close(f.away)
	f.away = nil
}

func (f *farStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if err := f.reach(ctx); err != nil {
		return err
	}
	return f.now().Take(ctx, takes, answers)
}

func (f *farStore) Merge(ctx context.Context, m store.MergeRequest) error {
	if err := f.reach(ctx); err != nil {
		return err
	}
	return f.now().Merge(ctx, m)
}

func (f *farStore) Settle(ctx context.Context, s store.Settlement) error {
	if err := f.reach(ctx); err != nil {
		return err
	}
	return f.now().Settle(ctx, s)
}

// now returns the store, whose clock goes with the bubble's.
func (f *farStore) now() *coretest.FakeStore {
	f.clock.Lock()
	defer f.clock.Unlock()
	now := time.Since(f.began)
	f.Advance(now - f.at)
	f.at = now
	return &f.FakeStore
}

// A store whose replies take up to 80 % of the timeout decides again within 5 s and ten round trips after a fault,
// although a new connection takes longer than a request may: with one key for all requests, and with a key for each.
func TestRecoveryFromFarAway(t *testing.T) {
	for _, c := range []struct {
		timeout, trip time.Duration
		rate          int
	}{
		{100 * time.Millisecond, 80 * time.Millisecond, 100},
		{100 * time.Millisecond, 80 * time.Millisecond, 2},
		{time.Second, 320 * time.Millisecond, 10},
	} {
		for _, failure := range []core.Failure{core.FailLocal, core.FailOpen, core.FailClosed} {
			for _, keys := range []int{1, 100} {
				name := fmt.Sprintf("%v of %v, %d/s, %v, %d keys", c.trip, c.timeout, c.rate, failure, keys)
				inBubble(t, name, func(t *testing.T) {
					f := &farStore{trip: c.trip, handshakes: 2, began: time.Now()}
					l := newLimiter(t, core.PerHour(100_000),
						core.WithStore(f), core.WithTimeout(c.timeout), core.WithFailure(failure))
					defer l.Close()
					f.idle = 16
					var all sync.WaitGroup
					var mu sync.Mutex
					admitted := map[string]int{}
					ask := func(i int) (byStore bool) {
						key := fmt.Sprint(i % keys)
						d, err := l.Allow(t.Context(), key)
						mu.Lock()
						defer mu.Unlock()
						if err == nil && d.Allowed {
							admitted[key]++
						}
						return err == nil && !d.Degraded
					}
					stream := func(d time.Duration, count bool) (without int) {
						for i := range int(d * time.Duration(c.rate) / time.Second) {
							all.Go(func() {
								if !ask(i) && count {
									mu.Lock()
									without++
									mu.Unlock()
								}
							})
							time.Sleep(time.Second / time.Duration(c.rate))
						}
						if count {
							all.Wait()
						}
						return without
					}
					if n := stream(2*time.Second, true); n > 0 {
						t.Errorf("%d requests were decided without the store before anything happened", n)
					}
					f.leave()
					stream(1500*time.Millisecond, false)
					f.comeBack()
					stream(5*time.Second+10*c.trip, false)
					if n := stream(5*time.Second, true); n > 0 {
						t.Errorf("%d of %d requests are still decided without the store", n, 5*c.rate)
					}
					time.Sleep(3 * time.Second)
					synctest.Wait()
					if failure != core.FailLocal {
						return
					}
					for key, want := range admitted {
						d, err := l.Peek(t.Context(), key)
						if err != nil || d.Degraded || d.Used != want {
							t.Errorf("%d units of %s are in the store, want %d; %v, %v",
								d.Used, key, want, d.Degraded, err)
						}
					}
				})
			}
		}
	}
}
