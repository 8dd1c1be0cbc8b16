package benchmarks

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"golang.org/x/time/rate"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/echolimit"
)

// echo's own is a token bucket of golang.org/x/time/rate for each address, all
// under one lock. It sends no header fields.
var onEcho = framework{
	name:  "echo",
	other: "echo's own",
	bare:  func() request { return echoApp() },
	sash:  func(p core.Policy) request { return echoApp(echolimit.New(p, core.ByIP())) },
	limit: func(quota int, window time.Duration) request {
		return echoApp(middleware.RateLimiter(middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
			Rate:  rate.Limit(float64(quota) / window.Seconds()),
			Burst: quota,
		})))
	},
}

func echoApp(limits ...echo.MiddlewareFunc) request {
	e := echo.New()
	e.IPExtractor = echo.ExtractIPDirect() // RealIP is the peer
	e.Use(limits...)
	e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	return drive(e)
}
