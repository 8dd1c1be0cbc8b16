package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	ratelimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/gin-gonic/gin"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/ginlimit"
)

var ginPeer = peer{
	"gin-rate-limit", "github.com/JGLTechnologies/gin-rate-limit", window,
	"a count that begins anew after a window without an admission; concurrent requests overwrite each other's",
}

func ginRateLimitStore() contestant {
	return contestant{
		peer: ginPeer,
		make: func(l limit) (limiter, error) {
			if l.keys > 100_000 {
				return limiter{}, errors.New("its store cannot be closed: a goroutine holds it, " +
					"and its million keys would stay beside everybody else's")
			}
			store := ginMemory(l)
			return limiter{check: func(_ context.Context, key string) (bool, error) {
				return !store.Limit(key, nil).RateLimited, nil
			}}, nil
		},
	}
}

func ginMemory(l limit) ratelimit.Store {
	return ratelimit.InMemoryStore(&ratelimit.InMemoryOptions{Rate: l.window, Limit: uint(l.quota)})
}

// onGin mounts it as its README shows.
var onGin = framework{
	name:  "gin",
	other: ginPeer,
	bare:  func() request { return ginApp() },
	sash:  func(p core.Policy) request { return ginApp(ginlimit.New(p, core.ByIP())) },
	limit: func(l limit) request {
		return ginApp(ratelimit.RateLimiter(ginMemory(l), &ratelimit.Options{
			KeyFunc: func(c *gin.Context) string { return c.ClientIP() },
			ErrorHandler: func(c *gin.Context, info ratelimit.Info) {
				wait := time.Until(info.ResetTime).String()
				c.String(http.StatusTooManyRequests, "Too many requests. Try again in "+wait)
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
