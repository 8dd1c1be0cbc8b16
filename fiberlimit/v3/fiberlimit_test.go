package fiberlimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/fiberlimit/v3"
)

// onListener serves limiters in front of a text.
var onListener coretest.Listen = func(
	t *testing.T, from net.Listener, text func() string, limiters ...*core.Limiter,
) {
	app := fiber.New()
	for _, l := range limiters {
		app.Use(fiberlimit.From(l))
	}
	app.All("/*", func(c fiber.Ctx) error { return c.SendString(text()) })
	listen(t, from, app)
}

// listen serves an app until the test ends.
func listen(t *testing.T, from net.Listener, app *fiber.App) {
	t.Helper()
	ended := make(chan error)
	go func() { ended <- app.Listener(from, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		app.ShutdownWithTimeout(time.Nanosecond) // Shutdown would look for open connections every 100 ms only
		from.Close()                             // which Shutdown leaves open where the app has not begun to serve
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// onLoopback serves an app on a loopback address.
func onLoopback(t *testing.T, app *fiber.App) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen(t, listener, app)
	return listener.Addr().String()
}

func TestAdapter(t *testing.T) {
	coretest.Adapter(t, coretest.AdapterConfig{Serve: onListener.Serve, Peers: onListener.Peers})
}

func get(t *testing.T, app *fiber.App, path string, header ...string) (int, string, http.Header) {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w, err := app.Test(r, fiber.TestConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, string(body), w.Header
}

func served(c fiber.Ctx) error { return c.SendString("served") }

type (
	ctx    = fiber.Ctx
	handle = func(ctx) error
	wrap   = coretest.Middleware[ctx]
)

// plain returns middleware that leaves it to h to call c.Next.
func plain(h fiber.Handler) wrap { return func(handle) handle { return h } }

func next(c ctx) error { return c.Next() }

func app(onError func(ctx, error) error, handler handle, middleware ...wrap) http.Handler {
	app := fiber.New(fiber.Config{ErrorHandler: onError})
	for _, m := range middleware {
		app.Use(m(next))
	}
	app.All("/", handler)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := app.Test(r, fiber.TestConfig{})
		if err != nil {
			panic(err)
		}
		defer answer.Body.Close()
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.StatusCode)
		io.Copy(w, answer.Body)
	})
}

func TestHandlers(t *testing.T) {
	coretest.Handlers(t, coretest.HandlersConfig[ctx]{
		App:     app,
		Buffers: true,
		New: func(p core.Policy, k core.Key, opts ...core.Option) wrap {
			return plain(fiberlimit.New(p, k, opts...))
		},
		From:       func(l *core.Limiter) wrap { return plain(fiberlimit.From(l)) },
		WithDeny:   fiberlimit.WithDeny,
		WithError:  fiberlimit.WithError,
		Header:     func(c ctx, name string) string { return c.Get(name) },
		SetStatus:  func(c ctx, status int) { c.Status(status) },
		Write:      func(c ctx, text string) error { return c.SendString(text) },
		Answer:     func(c ctx, status int, text string) error { return c.Status(status).SendString(text) },
		Set:        func(c ctx, key string, value any) { c.Locals(key, value) },
		Context:    func(c ctx) context.Context { return c.Context() },
		SetContext: func(c ctx, ctx context.Context) { c.SetContext(ctx) },
		Error: func(status int, text string, cause error) error {
			return adapter.ErrorWithCause(fiber.NewError(status, text), cause)
		},
		IsError: func(err error) (status int, text string, ok bool) {
			var fe *fiber.Error
			if !errors.As(err, &fe) {
				return 0, "", false
			}
			return fe.Code, fe.Message, true
		},
		Body:       func(_ int, text string) string { return text },
		Plain:      func(text string) string { return text },
		Middleware: around,
		Refunds: []coretest.Refund[ctx]{
			{Desc: "SendStatus", Serve: func(c ctx) error { return c.SendStatus(404) }, Status: 404, Body: "Not Found"},
			{Desc: "the last status", Serve: func(c ctx) error {
				c.Status(500)
				return c.Status(201).SendString("made")
			}, Status: 201, Body: "made"},
			{Desc: "TimeoutError", Serve: func(c ctx) error {
				c.RequestCtx().TimeoutErrorWithCode("late", 504)
				return nil
			}, Status: 504, Body: "late"},
			{Desc: "an error with a text around it", Serve: func(ctx) error {
				return fmt.Errorf("here: %w", fiber.ErrTeapot)
			}, Status: 418, Body: "here: I'm a teapot", Err: fiber.ErrTeapot},
			{Desc: "a stream", Serve: func(c ctx) error {
				return c.Status(202).SendStream(strings.NewReader("stream"))
			}, Status: 202, Body: "stream"},
		},
	})
}

func ann() core.Key {
	return core.By(func(fiber.Ctx) (string, error) { return "ann", nil })
}

func used(t *testing.T, l *core.Limiter) int {
	t.Helper()
	d, err := l.Peek(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

// A mounted application has its own error handler.
func TestRefundMounted(t *testing.T) {
	var asked []int
	inner := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, _ error) error {
		return c.Status(409).SendString("conflict")
	}})
	inner.Get("/", func(fiber.Ctx) error { return io.EOF })
	app := fiber.New()
	app.Use(fiberlimit.New(core.PerMinute(1), core.ByIP(), core.WithRefund(func(_ fiber.Ctx, status int) bool {
		asked = append(asked, status)
		return true
	})))
	app.Use("/inner", inner)
	if status, body, _ := get(t, app, "/inner"); status != 409 || body != "conflict" || !slices.Equal(asked, []int{409}) {
		t.Errorf("status %d, body %q, asked about %d", status, body, asked)
	}
}
