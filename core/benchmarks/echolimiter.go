package main

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"golang.org/x/time/rate"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/echolimit"
)

var echoPeer = peer{"echo's own", "github.com/labstack/echo/v4", bucket, "a token bucket; tells clients nothing"}

func echoStore() contestant {
	return contestant{
		peer:    echoPeer,
		forgets: true,
		make: func(l limit) (limiter, error) {
			store := echoMemory(l)
			return limiter{check: func(_ context.Context, key string) (bool, error) {
				return store.Allow(key)
			}}, nil
		},
	}
}

func echoMemory(l limit) *middleware.RateLimiterMemoryStore {
	return middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
		Rate:      rate.Limit(float64(l.quota) / l.window.Seconds()),
		Burst:     l.quota,
		ExpiresIn: l.forget,
	})
}

var onEcho = framework{
	name:  "echo",
	other: echoPeer,
	bare:  func() request { return echoApp() },
	sash:  func(p core.Policy) request { return echoApp(echolimit.New(p, core.ByIP())) },
	limit: func(l limit) request { return echoApp(middleware.RateLimiter(echoMemory(l))) },
}

func echoApp(limits ...echo.MiddlewareFunc) request {
	e := echo.New()
	e.IPExtractor = echo.ExtractIPDirect() // RealIP is the peer
	e.Use(limits...)
	e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	return drive(e)
}
