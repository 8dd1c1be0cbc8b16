package main

import (
	"context"

	"github.com/RussellLuo/slidingwindow"
)

func slidingWindow() contestant {
	return contestant{
		peer: peer{
			"slidingwindow", "github.com/RussellLuo/slidingwindow", window,
			"the counts of two windows, of which it weighs the earlier one",
		},
		make: func(l limit) (limiter, error) {
			type stop = slidingwindow.StopFunc
			keys := newPerKey(func() *slidingwindow.Limiter {
				lim, _ := slidingwindow.NewLimiter(l.window, int64(l.quota), func() (slidingwindow.Window, stop) {
					return slidingwindow.NewLocalWindow()
				})
				return lim
			})
			return limiter{check: func(_ context.Context, key string) (bool, error) {
				return keys.get(key).Allow(), nil
			}}, nil
		},
	}
}
