package benchmarks

import (
	"net/http"
	"time"

	ratelimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/gin-gonic/gin"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/ginlimit"
)

// gin-rate-limit keeps a number and the second of the last admission; the
// quota is back when nothing was admitted for a whole window. It is set up as
// its README shows.
var onGin = framework{
	name:  "gin",
	other: "gin-rate-limit",
	bare:  func() request { return ginApp() },
	sash:  func(p core.Policy) request { return ginApp(ginlimit.New(p, core.ByIP())) },
	limit: func(quota int, window time.Duration) request {
		store := ratelimit.InMemoryStore(&ratelimit.InMemoryOptions{Rate: window, Limit: uint(quota)})
		return ginApp(ratelimit.RateLimiter(store, &ratelimit.Options{
			KeyFunc: func(c *gin.Context) string { return c.ClientIP() },
			ErrorHandler: func(c *gin.Context, info ratelimit.Info) {
				c.String(http.StatusTooManyRequests, "Too many requests. Try again in "+time.Until(info.ResetTime).String())
			},
		}))
	},
}

func ginApp(limits ...gin.HandlerFunc) request {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	if err := r.SetTrustedProxies(nil); err != nil { // ClientIP is the peer
		panic(err)
	}
	r.Use(limits...)
	r.GET("/", func(c *gin.Context) { c.Status(http.StatusOK) })
	return drive(r)
}
