package main

import (
	"context"

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
			store, err := memorystore.New(&memorystore.Config{
				Tokens: uint64(l.quota), Interval: l.window,
				SweepInterval: l.forget, SweepMinTTL: l.forget,
			})
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
