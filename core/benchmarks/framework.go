package main

import (
	"net"
	"net/http"
	"time"

	ratelimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/httprate"
	"github.com/gofiber/fiber/v2"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/echolimit"
	"github.com/sashlimit/sash/fiberlimit"
	"github.com/sashlimit/sash/ginlimit"
	"github.com/sashlimit/sash/nethttp"
)

// framework makes applications that answer GET / with 200 and nothing else, alone or behind a limiter that counts by
// the address of the peer.
type framework struct {
	name  string
	other string // the framework's own limiter, or the one that most take for it
	kind  kind   // of that
	bare  func() request
	sash  func(core.Policy) request
	limit func(limit) request // behind other
}

// request sends an application one request, always the same one from the same address, and returns the status of the
// response.
type request func() (status int)

// client is who sends the requests.
const client = "192.0.2.1"

// frameworks have their turns in this order.
var frameworks = []framework{
	{
		"net/http", "httprate", window,
		func() request { return drive(answer) },
		func(p core.Policy) request { return drive(nethttp.New(p, core.ByIP())(answer)) },
		func(l limit) request {
			//nolint:staticcheck // deprecated, but the cheapest form
			return drive(httprate.LimitByIP(l.quota, l.window)(answer))
		},
	},
	{
		"gin", "gin-rate-limit", window,
		func() request { return ginApp() },
		func(p core.Policy) request { return ginApp(ginlimit.New(p, core.ByIP())) },
		func(l limit) request { // as its README shows
			store := ratelimit.InMemoryStore(&ratelimit.InMemoryOptions{Rate: l.window, Limit: uint(l.quota)})
			return ginApp(ratelimit.RateLimiter(store, &ratelimit.Options{
				KeyFunc: func(c *gin.Context) string { return c.ClientIP() },
				ErrorHandler: func(c *gin.Context, info ratelimit.Info) {
					wait := time.Until(info.ResetTime).String()
					c.String(http.StatusTooManyRequests, "Too many requests. Try again in "+wait)
				},
			}))
		},
	},
	{
		"echo", "echo's own", bucket,
		func() request { return echoApp() },
		func(p core.Policy) request { return echoApp(echolimit.New(p, core.ByIP())) },
		func(l limit) request { return echoApp(middleware.RateLimiter(echoMemory(l))) },
	},
	{
		"fiber", "fiber's own", window,
		func() request { return fiberApp() },
		func(p core.Policy) request { return fiberApp(fiberlimit.New(p, core.ByIP())) },
		func(l limit) request {
			return fiberApp(fiberlimiter.New(fiberlimiter.Config{Max: l.quota, Expiration: l.window}))
		},
	},
}

var answer = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

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

func echoApp(limits ...echo.MiddlewareFunc) request {
	e := echo.New()
	e.IPExtractor = echo.ExtractIPDirect() // RealIP is the peer
	e.Use(limits...)
	e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	return drive(e)
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

// drive sends requests to a handler without a server, whose work would be the same for all.
func drive(h http.Handler) request {
	r, err := http.NewRequest(http.MethodGet, "/", http.NoBody)
	if err != nil {
		panic(err)
	}
	r.RemoteAddr = client + ":1234"
	w := &discard{header: make(http.Header)}
	return func() int {
		clear(w.header)
		w.status = 0
		h.ServeHTTP(w, r)
		return w.status
	}
}

// discard is a ResponseWriter that costs nothing itself.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
