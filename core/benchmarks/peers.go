package main

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/go-chi/httprate"
	"github.com/gofiber/fiber/v2"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/labstack/echo/v4/middleware"
	limiterstore "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"
)

// mapAndClock is the least that any limiter in a process does: take a lock, find the key and look at the clock.
func mapAndClock() contestant {
	return contestant{"mutex, map, clock", floor, func(limit) (limiter, error) {
		var mu sync.Mutex
		start, last := time.Now(), make(map[string]*time.Duration)
		return limiter{check: func(_ context.Context, key string) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			at := last[key]
			if at == nil {
				at = new(time.Duration)
				last[key] = at
			}
			*at = time.Since(start)
			return true, nil
		}}, nil
	}}
}

func httprateCounter() contestant {
	return contestant{"httprate", window, func(l limit) (limiter, error) {
		noHeaders := httprate.WithResponseHeaders(httprate.ResponseHeaders{})
		lim := httprate.NewRateLimiter(l.quota, l.window, noHeaders)
		r, err := http.NewRequest(http.MethodGet, "/", http.NoBody)
		return limiter{check: func(_ context.Context, key string) (bool, error) {
			return !lim.OnLimit(nil, r, key), nil // without headers it has nothing to write
		}}, err
	}}
}

func echoStore() contestant {
	return contestant{"echo's own", bucket, func(l limit) (limiter, error) {
		store := echoMemory(l)
		return limiter{check: func(_ context.Context, key string) (bool, error) { return store.Allow(key) }}, nil
	}}
}

func echoMemory(l limit) *middleware.RateLimiterMemoryStore {
	return middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
		Rate: rate.Limit(float64(l.quota) / l.window.Seconds()), Burst: l.quota,
	})
}

// fiberOwn asks with whole requests, since there is no other way.
func fiberOwn(name string, algorithm fiberlimiter.LimiterHandler) contestant {
	return contestant{name, window, func(l limit) (limiter, error) {
		send := fiberApp(fiberlimiter.New(fiberlimiter.Config{
			Max: l.quota, Expiration: l.window, LimiterMiddleware: algorithm,
		}))
		return limiter{check: func(context.Context, string) (bool, error) {
			status := send()
			if status != fiber.StatusOK && status != fiber.StatusTooManyRequests {
				return false, fmt.Errorf("status %d", status)
			}
			return status == fiber.StatusOK, nil
		}}, nil
	}}
}

func goLimiter() contestant {
	return goLimiterAfter(func(limiterstore.Store, string) error { return nil })
}

// goLimiterAfter does something before each check.
func goLimiterAfter(prepare func(limiterstore.Store, string) error) contestant {
	return contestant{"go-limiter", window, func(l limit) (limiter, error) {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(l.quota), Interval: l.window})
		if err != nil {
			return limiter{}, err
		}
		check := func(ctx context.Context, key string) (bool, error) {
			if err := prepare(store, key); err != nil {
				return false, err
			}
			_, _, _, ok, err := store.Take(ctx, key)
			return ok, err
		}
		return limiter{check, func() { store.Close(context.Background()) }}, nil
	}}
}

// goLimiterInStep is go-limiter in a bubble. It reads the machine's clock, past any bubble, so a key's first window is
// moved instead: to as long ago by that clock as it is by the bubble's.
func goLimiterInStep() contestant {
	first := make(map[string]time.Time)
	return goLimiterAfter(func(store limiterstore.Store, key string) error {
		if _, ok := first[key]; !ok {
			first[key] = time.Now()
			return nil
		}
		var now syscall.Timeval
		if err := syscall.Gettimeofday(&now); err != nil {
			return err
		}
		bucket := reflect.ValueOf(store).Elem().FieldByName("data").MapIndex(reflect.ValueOf(key))
		start := (*uint64)(bucket.Elem().FieldByName("startTime").Addr().UnsafePointer())
		*start = uint64(int64(now.Sec)*1e9 + int64(now.Usec)*1e3 - int64(time.Since(first[key])))
		return nil
	})
}
