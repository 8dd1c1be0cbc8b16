package main

import (
	"context"
	"reflect"
	"syscall"
	"time"

	limiterstore "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
)

func goLimiter() contestant {
	return contestant{
		peer: peer{
			"go-limiter", "github.com/sethvargo/go-limiter", window,
			"a count that begins anew after each window",
		},
		forgets: true,
		make: func(l limit) (limiter, error) {
			store, err := goLimiterStore(l)
			if err != nil {
				return limiter{}, err
			}
			return limiter{
				check: func(ctx context.Context, key string) (bool, error) {
					_, _, _, ok, err := store.Take(ctx, key)
					return ok, err
				},
				close: func() { store.Close(context.Background()) },
			}, nil
		},
	}
}

func goLimiterStore(l limit) (limiterstore.Store, error) {
	return memorystore.New(&memorystore.Config{
		Tokens: uint64(l.quota), Interval: l.window,
		SweepInterval: l.forget, SweepMinTTL: l.forget,
	})
}

// goLimiterInStep is go-limiter in a bubble. It reads the machine's clock, past any bubble, so a key's first window is
// moved instead: to as long ago by that clock as it is by the bubble's.
func goLimiterInStep() contestant {
	c := goLimiter()
	c.make = func(l limit) (limiter, error) {
		store, err := goLimiterStore(l)
		if err != nil {
			return limiter{}, err
		}
		first := make(map[string]time.Time)
		return limiter{
			check: func(ctx context.Context, key string) (bool, error) {
				if _, ok := first[key]; !ok {
					first[key] = time.Now()
				} else if err := beginAgo(store, key, time.Since(first[key])); err != nil {
					return false, err
				}
				_, _, _, ok, err := store.Take(ctx, key)
				return ok, err
			},
			close: func() { store.Close(context.Background()) },
		}, nil
	}
	return c
}

// beginAgo has a key's first window begin so long ago by the machine's clock.
func beginAgo(store limiterstore.Store, key string, ago time.Duration) error {
	var now syscall.Timeval
	if err := syscall.Gettimeofday(&now); err != nil {
		return err
	}
	bucket := reflect.ValueOf(store).Elem().FieldByName("data").MapIndex(reflect.ValueOf(key))
	start := (*uint64)(bucket.Elem().FieldByName("startTime").Addr().UnsafePointer())
	*start = uint64(int64(now.Sec)*1e9 + int64(now.Usec)*1e3 - int64(ago))
	return nil
}
