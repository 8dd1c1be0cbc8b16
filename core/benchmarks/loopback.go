package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	ratelimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"
	"github.com/gofiber/fiber/v2"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/echolimit"
	"github.com/sashlimit/sash/fiberlimit"
	"github.com/sashlimit/sash/ginlimit"
	"github.com/sashlimit/sash/nethttp"
)

// service is a framework that listens, with the limiters of [frameworks].
type service struct {
	framework

	bare  func() serve
	sash  func(core.Policy, core.Key, ...core.Option) serve
	limit func(limit) serve
}

// serve answers what comes.
type serve func(net.Listener) error

var services = []service{
	{
		framework: onNetHTTP,
		bare:      func() serve { return serveHTTP(answer) },
		sash: func(p core.Policy, k core.Key, opts ...core.Option) serve {
			return serveHTTP(nethttp.New(p, k, opts...)(answer))
		},
		limit: func(l limit) serve {
			return serveHTTP(httprate.LimitByIP(l.quota, l.window)(answer)) //nolint:staticcheck // as in httprate.go
		},
	},
	{
		framework: onChi,
		bare:      func() serve { return serveChi() },
		sash: func(p core.Policy, k core.Key, opts ...core.Option) serve {
			return serveChi(chilimit.New(p, k, opts...))
		},
		limit: func(l limit) serve {
			key := func(r *http.Request) (string, error) {
				return httprate.CanonicalizeIP(middleware.GetClientIP(r.Context())), nil
			}
			return serveChi(middleware.ClientIPFromRemoteAddr, httprate.LimitBy(l.quota, l.window, key))
		},
	},
	{
		framework: onGin,
		bare:      func() serve { return serveGin() },
		sash: func(p core.Policy, k core.Key, opts ...core.Option) serve {
			return serveGin(ginlimit.New(p, k, opts...))
		},
		limit: func(l limit) serve {
			return serveGin(ratelimit.RateLimiter(ginMemory(l), &ratelimit.Options{
				KeyFunc: func(c *gin.Context) string { return c.ClientIP() },
				ErrorHandler: func(c *gin.Context, _ ratelimit.Info) {
					c.String(http.StatusTooManyRequests, "Too many requests.")
				},
			}))
		},
	},
	{
		framework: onEcho,
		bare:      func() serve { return serveEcho() },
		sash: func(p core.Policy, k core.Key, opts ...core.Option) serve {
			return serveEcho(echolimit.New(p, k, opts...))
		},
		limit: func(l limit) serve { return serveEcho(echomiddleware.RateLimiter(echoMemory(l))) },
	},
	{
		framework: onFiber,
		bare:      func() serve { return serveFiber() },
		sash: func(p core.Policy, k core.Key, opts ...core.Option) serve {
			return serveFiber(fiberlimit.New(p, k, opts...))
		},
		limit: func(l limit) serve {
			return serveFiber(fiberlimiter.New(fiberlimiter.Config{Max: l.quota, Expiration: l.window}))
		},
	},
}

func serveHTTP(h http.Handler) serve {
	return func(l net.Listener) error {
		s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
		return s.Serve(l)
	}
}

func serveChi(limits ...func(http.Handler) http.Handler) serve {
	r := chi.NewRouter()
	r.Use(limits...)
	r.Get("/", answer)
	return serveHTTP(r)
}

func serveGin(limits ...gin.HandlerFunc) serve {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	if err := r.SetTrustedProxies(nil); err != nil {
		panic(err)
	}
	r.Use(limits...)
	r.GET("/", func(c *gin.Context) { c.Status(http.StatusOK) })
	return serveHTTP(r)
}

func serveEcho(limits ...echo.MiddlewareFunc) serve {
	e := echo.New()
	e.IPExtractor = echo.ExtractIPDirect()
	e.Use(limits...)
	e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	return serveHTTP(e)
}

func serveFiber(limits ...fiber.Handler) serve {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	for _, l := range limits {
		app.Use(l)
	}
	app.Get("/", func(c *fiber.Ctx) error {
		c.Status(fiber.StatusOK)
		return nil
	})
	return app.Listener
}

// What a service stands behind.
const (
	nothing    = "the handler alone"
	sashMemory = "sash"
	sashRedis  = "sash in Redis"
	theirs     = "theirs"
)

// serve says where it listens, and answers until the parent has gone.
func (j job) serve() error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serve, err := j.service()
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	ended := make(chan error, 1)
	go func() { ended <- serve(l) }()
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	return <-ended
}

func (j job) service() (serve, error) {
	lim := limit{quota: j.Quota, window: j.Window}
	for _, s := range services {
		if s.name != j.Framework {
			continue
		}
		switch j.Limiter {
		case nothing:
			return s.bare(), nil
		case sashMemory:
			return s.sash(one(lim), core.ByIP()), nil
		case sashRedis:
			store, _ := j.store() // for as long as we are here
			users := names(1000)
			var turn atomic.Uint32
			key := core.By(func(context.Context) (string, error) {
				return users[int(turn.Add(1))%len(users)], nil
			})
			return s.sash(one(lim), key, core.WithStore(store), core.WithTimeout(time.Second)), nil
		case theirs:
			return s.limit(lim), nil
		}
	}
	return nil, fmt.Errorf("there is no %q behind %q", j.Framework, j.Limiter)
}

// loopback measures whole requests over sockets, from a load generator that is
// a program of its own.
func (r *run) loopback() {
	wrk, err := exec.LookPath("wrk")
	if err != nil {
		r.say("requests over loopback are left out, because there is no wrk: apt-get install wrk")
		return
	}
	t := r.table("loopback", "A whole request over loopback: wrk, 32 connections",
		"requests a second", "added µs from one to the next", "median, µs", "added to it", "99th percentile, µs")
	for _, s := range services {
		r.say("requests over loopback, %s", s.name)
		if err := r.service(t, s, wrk); err != nil {
			t.named(s.name+": "+nothing, floor).fault(t.Columns[0], err)
		}
	}
}

// service has the same framework with each limiter take its turns.
func (r *run) service(t *Table, s service, wrk string) error {
	type turn struct {
		row   *Row
		child *child
		url   string
	}
	var turns []turn
	defer func() {
		for _, turn := range turns {
			turn.child.end()
		}
	}()
	for _, limiter := range []string{nothing, sashMemory, sashRedis, theirs} {
		j := job{Framework: s.name, Limiter: limiter, Quota: core.MaxQuota, Window: time.Second}
		row := t.named(s.name+": "+limiter, exact)
		switch limiter {
		case nothing:
			row.Kind = floor
		case sashRedis:
			j.Addrs, j.Quota = []string{r.server().Addr()}, 100_000
		case theirs:
			row.Name, row.Kind = s.name+": "+s.other.name, s.other.kind
		}
		c, err := start(j)
		if err != nil {
			return err
		}
		turns = append(turns, turn{row, c, ""})
		addr, err := c.out.ReadString('\n')
		if err != nil {
			return fmt.Errorf("%s does not get ready: %w", row.Name, err)
		}
		turns[len(turns)-1].url = "http://" + addr[:len(addr)-1] + "/"
	}
	seconds := max(1, int(r.span*15/4/time.Second))
	for range r.rounds {
		var bare latency
		for i, turn := range turns {
			got, err := drain(wrk, turn.url, seconds)
			if err != nil {
				turn.row.fault(t.Columns[0], err)
				continue
			}
			turn.row.add(t.Columns[0], got.second)
			turn.row.add(t.Columns[2], got.p50)
			turn.row.add(t.Columns[4], got.p99)
			if i == 0 {
				bare = got
				continue
			}
			turn.row.add(t.Columns[1], 1e6/got.second-1e6/bare.second)
			turn.row.add(t.Columns[3], got.p50-bare.p50)
		}
	}
	return nil
}

// latency is what wrk says of requests, in µs.
type latency struct{ second, p50, p99 float64 }

func drain(wrk, url string, seconds int) (latency, error) {
	args := []string{"-t1", "-c32", "-d" + strconv.Itoa(seconds) + "s", "--latency", url}
	//nolint:gosec // wrk is looked up on PATH, and the URL is that of a server of this process
	out, err := exec.CommandContext(context.Background(), wrk, args...).CombinedOutput()
	if err != nil {
		return latency{}, fmt.Errorf("wrk: %w: %s", err, out)
	}
	text := string(out)
	if wrong := regexp.MustCompile(`(Non-2xx|Socket errors).*`).FindString(text); wrong != "" {
		return latency{}, fmt.Errorf("wrk says: %s", wrong)
	}
	got := latency{field(text, `Requests/sec:\s+([\d.]+)`), micros(text, "50%"), micros(text, "99%")}
	if min(got.second, got.p50, got.p99) == 0 {
		return latency{}, fmt.Errorf("wrk says nothing of that: %s", text)
	}
	return got, nil
}

// micros is a line of wrk's latencies.
func micros(text, line string) float64 {
	m := regexp.MustCompile(`\s` + line + `\s+([\d.]+(?:us|ms|s))`).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	d, _ := time.ParseDuration(m[1])
	return float64(d) / 1e3
}
