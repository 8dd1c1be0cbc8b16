package main

import (
	"context"
	"fmt"
	"net"

	"github.com/gofiber/fiber/v2"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/fiberlimit"
)

var onFiber = framework{
	name: "fiber",
	other: peer{
		"fiber's own", "github.com/gofiber/fiber/v2", window,
		"a count that begins anew after each window, by a clock of whole seconds; denials count",
	},
	bare: func() request { return fiberApp() },
	sash: func(p core.Policy) request { return fiberApp(fiberlimit.New(p, core.ByIP())) },
	limit: func(l limit) request {
		return fiberApp(fiberlimiter.New(fiberlimiter.Config{Max: l.quota, Expiration: l.window}))
	},
}

// fiberOwn asks with whole requests, since there is no other way.
func fiberOwn(name string, algorithm fiberlimiter.LimiterHandler) contestant {
	return contestant{
		peer:    peer{name: name, module: onFiber.other.module, kind: window},
		forgets: true,
		make: func(l limit) (limiter, error) {
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
		},
	}
}

func fiberApp(limits ...fiber.Handler) request {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	for _, l := range limits {
		app.Use(l)
	}
	app.Get("/", func(c *fiber.Ctx) error {
		c.Status(fiber.StatusOK)
		return nil
	})
	h := app.Handler()
	var first fasthttp.Request
	first.Header.SetMethod(fiber.MethodGet)
	first.SetRequestURI("/")
	ctx := new(fasthttp.RequestCtx)
	ctx.Init(&first, &net.TCPAddr{IP: net.ParseIP(client).To4(), Port: 1234}, nil)
	return func() int {
		ctx.ResetUserValues() // as the server does between requests
		ctx.Response.Reset()
		h(ctx)
		return ctx.Response.StatusCode()
	}
}
