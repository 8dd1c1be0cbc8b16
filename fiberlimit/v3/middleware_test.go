package fiberlimit_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/cors"
	"github.com/gofiber/fiber/v3/middleware/helmet"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/gofiber/fiber/v3/middleware/logger"
	recovery "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/gofiber/fiber/v3/middleware/requestid"
	"github.com/gofiber/fiber/v3/middleware/session"
	"github.com/gofiber/fiber/v3/middleware/timeout"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/fiberlimit/v3"
)

// fresh returns new middleware for each app, because the logger keeps the first one's error handler.
func fresh(f func() fiber.Handler) wrap { return func(handle) handle { return f() } }

// around is fiber's middleware that may stand in front of the limiter or behind it.
var around = map[string]wrap{
	"cors":        fresh(func() fiber.Handler { return cors.New() }),
	"helmet":      fresh(func() fiber.Handler { return helmet.New() }),
	"idempotency": fresh(func() fiber.Handler { return idempotency.New() }),
	"logger":      fresh(func() fiber.Handler { return logger.New(logger.Config{Stream: io.Discard}) }),
	"recover":     fresh(func() fiber.Handler { return recovery.New() }),
	"requestid":   fresh(func() fiber.Handler { return requestid.New() }),
	"session":     fresh(func() fiber.Handler { return session.New() }),
	"timeout":     fresh(func() fiber.Handler { return timeout.New(next, timeout.Config{Timeout: time.Hour}) }),
}

// Fiber's timeout answers while the handler goes on, also with the context. WithRefund gets the status of that answer.
func TestTimeout(t *testing.T) {
	for desc, c := range map[string]struct {
		config  timeout.Config
		handler fiber.ErrorHandler
		status  int
		body    string
	}{
		"default": {timeout.Config{}, nil, 408, "Request Timeout"},
		"own answer": {timeout.Config{OnTimeout: func(c fiber.Ctx) error {
			return c.Status(504).SendString("late")
		}}, nil, 504, "late"},
		"own error": {timeout.Config{OnTimeout: func(fiber.Ctx) error {
			return fiber.NewError(503, "late")
		}}, nil, 408, "Request Timeout"},
		"own error handler": {timeout.Config{}, func(c fiber.Ctx, _ error) error {
			return c.SendStatus(500)
		}, 408, "Request Timeout"},
	} {
		for _, opts := range [][]core.Option{nil, {core.WithName("refund")}} {
			end, ended := make(chan struct{}), make(chan struct{})
			asked := make(chan int, 9)
			if opts != nil {
				opts = append(opts, core.WithRefund(func(_ context.Context, status int) bool {
					asked <- status
					return true
				}))
			}
			l, err := core.New(core.Limits{core.PerMinute(9), core.InFlight(1)}, ann(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			app := fiber.New(fiber.Config{ErrorHandler: c.handler})
			app.Use(fiberlimit.From(l))
			c.config.Timeout = time.Millisecond
			app.Get("/", timeout.New(func(c fiber.Ctx) error {
				defer close(ended)
				<-end
				c.Locals("late", true)
				return c.SendStream(strings.NewReader("late"))
			}, c.config))
			status, body, h := get(t, app, "/")
			if status != c.status || body != c.body || h.Get("RateLimit") == "" {
				t.Errorf("%s: status %d, body %q, %v", desc, status, body, h)
			}
			want, left := 1, 0
			if opts != nil {
				want, left = 0, 1
			}
			if len(asked) != left || left == 1 && <-asked != c.status || used(t, l) != want {
				t.Errorf("%s: asked about %d, %d units used, want %d", desc, len(asked), used(t, l), want)
			}
			// The request is over for its client, and so is its slot.
			if d, err := l.Peek(t.Context(), "ann"); err != nil || d.Limits()[1].Used != 0 {
				t.Errorf("%s: %v, %v", desc, d.Limits(), err)
			}
			close(end)
			<-ended
		}
	}
}

// An answer that a handler sends itself, and hints before the answer, leave the status as it is.
func TestEarlyAnswers(t *testing.T) {
	for desc, c := range map[string]struct {
		handler fiber.Handler
		status  int
	}{
		"End": {func(c fiber.Ctx) error {
			c.Status(403).SendString("no")
			return c.End()
		}, 403},
		"a stream and End": {func(c fiber.Ctx) error {
			c.Status(403).SendStreamWriter(func(w *bufio.Writer) { io.WriteString(w, "no") })
			return c.End()
		}, 403},
		"early hints": {func(c fiber.Ctx) error {
			if err := c.SendEarlyHints([]string{"</a.css>; rel=preload"}); err != nil {
				return err
			}
			return c.Status(404).SendString("gone")
		}, 404},
	} {
		asked := make(chan int, 1)
		l, err := core.New(core.Limits{core.PerMinute(9), core.InFlight(1)}, ann(),
			core.WithRefund(func(_ context.Context, status int) bool { asked <- status; return false }))
		if err != nil {
			t.Fatal(err)
		}
		app := fiber.New()
		app.Use(fiberlimit.From(l))
		app.Get("/", c.handler)
		w, err := http.Get("http://" + onLoopback(t, app) + "/")
		if err != nil {
			t.Fatal(err)
		}
		// A client that does not read it all may end the connection before End has written.
		_, err = io.Copy(io.Discard, w.Body)
		if w.Body.Close(); err != nil {
			t.Errorf("%s: %v", desc, err)
		}
		if got := <-asked; w.StatusCode != c.status || got != c.status {
			t.Errorf("%s: status %d, asked about %d; want %d", desc, w.StatusCode, got, c.status)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := l.Wait(ctx, "ann"); err != nil {
			t.Errorf("%s: the slot is left behind: %v", desc, err)
		}
		cancel()
	}
}

// What earlier middleware keeps under a key of its own type is found by the key.
func TestUnexportedKeys(t *testing.T) {
	type key struct{}
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error { c.Locals(key{}, "local"); return c.Next() },
		fiberlimit.New(core.PerMinute(1), core.ByValue(key{})))
	app.Get("/", served)
	for _, want := range []int{200, 429} {
		if status, body, _ := get(t, app, "/"); status != want {
			t.Errorf("status %d, %s; want %d", status, body, want)
		}
	}
}
