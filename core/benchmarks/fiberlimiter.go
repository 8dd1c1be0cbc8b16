package benchmarks

import (
	"net"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/fiberlimit"
)

// fiber's own counts in fixed windows, all under one lock, by a clock of whole
// seconds.
var onFiber = framework{
	name:  "fiber",
	other: "fiber's own",
	bare:  func() request { return fiberApp() },
	sash:  func(p core.Policy) request { return fiberApp(fiberlimit.New(p, core.ByIP())) },
	limit: func(quota int, window time.Duration) request {
		return fiberApp(limiter.New(limiter.Config{Max: quota, Expiration: window}))
	},
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
	ctx.Init(&first, &net.TCPAddr{IP: net.ParseIP(peer).To4(), Port: 1234}, nil)
	return func() int {
		ctx.ResetUserValues() // as the server does between requests
		ctx.Response.Reset()
		h(ctx)
		return ctx.Response.StatusCode()
	}
}
