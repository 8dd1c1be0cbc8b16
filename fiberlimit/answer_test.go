package fiberlimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/fiberlimit"
)

const (
	deniedBody = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Quota Exceeded","status":429,` +
		`"detail":"Try again in 60 seconds.","violated-policies":["1-per-minute"]}`
	noKeyBody = `{"type":"about:blank",` +
		`"title":"Bad Request","status":400,"detail":"The request does not identify whose quota it uses."}`
	brokenBody = `{"type":"about:blank","title":"Internal Server Error","status":500}`
)

// If a handler returns the refusal as an error, the limiter answers. Any other error goes to the error handler.
func TestHandlersReturnErrors(t *testing.T) {
	errOwn := errors.New("own")
	for _, c := range []struct {
		desc    string
		deny    func(*fiber.Ctx, core.Decision) error // of the second request, or
		fail    func(*fiber.Ctx, error) error         // of one without a key
		status  int
		body    string // of the default error handler
		central string // of the application's
	}{
		{"d.Err()", func(_ *fiber.Ctx, d core.Decision) error { return d.Err() },
			nil, 429, deniedBody, "central Quota Exceeded"},
		{"d.Err(), wrapped", func(_ *fiber.Ctx, d core.Decision) error { return fmt.Errorf("denied: %w", d.Err()) },
			nil, 429, deniedBody, "central Quota Exceeded"},
		{"d.Err() after a body", func(c *fiber.Ctx, d core.Decision) error {
			c.SendString("slow down")
			return d.Err()
		}, nil, 429, deniedBody, "central Quota Exceeded"},
		{"a fiber.Error around d.Err()", func(_ *fiber.Ctx, d core.Decision) error {
			return adapter.ErrorWithCause(fiber.NewError(420, "calm"), d.Err())
		}, nil, 420, "calm", "central calm"},
		{"another error", func(*fiber.Ctx, core.Decision) error { return errOwn }, nil, 500, "own", "central"},
		{"err", nil, func(_ *fiber.Ctx, err error) error { return err }, 400, noKeyBody, "central Bad Request"},
		{"err, wrapped", nil, func(_ *fiber.Ctx, err error) error { return fmt.Errorf("here: %w", err) },
			400, noKeyBody, "central Bad Request"},
		{"another error for err", nil, func(*fiber.Ctx, error) error { return errOwn }, 500, "own", "central"},
		{"a panic", nil, func(*fiber.Ctx, error) error { panic("boom") },
			500, brokenBody, "central Internal Server Error"},
		{"http.ErrAbortHandler", func(*fiber.Ctx, core.Decision) error { panic(http.ErrAbortHandler) },
			nil, 500, brokenBody, "central Internal Server Error"},
	} {
		for _, own := range []bool{false, true} {
			config := fiber.Config{}
			if own {
				config.ErrorHandler = func(c *fiber.Ctx, err error) error {
					var fe *fiber.Error
					if errors.As(err, &fe) {
						return c.Status(fe.Code).SendString("central " + fe.Message)
					}
					return c.Status(500).SendString("central")
				}
				c.body = c.central
			}
			var opts []core.Option
			header := []string{"X-API-Key", "a"}
			if c.deny != nil {
				opts = append(opts, fiberlimit.WithDeny(c.deny))
			} else {
				opts, header = append(opts, fiberlimit.WithError(c.fail)), nil
			}
			app := fiber.New(config)
			app.Use(fiberlimit.New(core.PerMinute(1), core.ByHeader("X-API-Key", core.Unverified), opts...))
			app.Get("/", served)
			get(t, app, "/", header...)
			status, body, h := get(t, app, "/", header...)
			if status != c.status || body != c.body {
				t.Errorf("%s, own handler %v: status %d, body %q; want %d, %q",
					c.desc, own, status, body, c.status, c.body)
			}
			if problem := h.Get("Content-Type") == adapter.ProblemType; problem != (body[0] == '{') {
				t.Errorf("%s, own handler %v: Content-Type %q", c.desc, own, h.Get("Content-Type"))
			}
		}
	}
}

// The requests of App.Test have a peer, and are limited by it.
func TestByIPInUnitTests(t *testing.T) {
	app := fiber.New()
	app.Use(fiberlimit.New(core.PerMinute(2), core.ByIP()))
	app.Get("/", served)
	for i, want := range []int{200, 200, 429} {
		if status, body, _ := get(t, app, "/"); status != want {
			t.Errorf("request %d: status %d, body %s; want %d", i+1, status, body, want)
		}
	}
	l, err := core.New(core.PerMinute(2), core.ByIP())
	if err != nil {
		t.Fatal(err)
	}
	app = fiber.New()
	app.Use(fiberlimit.From(l))
	app.Get("/", served)
	get(t, app, "/")
	if d, err := l.Peek(t.Context(), "192.0.2.1"); err != nil || d.Used != 1 {
		t.Errorf("%d units used by 192.0.2.1, %v; want 1", d.Used, err)
	}
}

// testConn has the name of fiber's, and a real connection's address as it is where the kernel does not tell.
type testConn struct{ net.Conn }

func (testConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero} }

// nowhere has no address at all.
type nowhere struct{ net.Conn }

func (nowhere) RemoteAddr() net.Addr { return nil }

// Connections without an address never share a quota, be they of App.Test's address or type name.
func TestByIPWithoutAddress(t *testing.T) {
	for desc, wrap := range map[string]func(net.Conn) net.Conn{
		"0.0.0.0:0":                func(c net.Conn) net.Conn { return testConn{c} },
		"0.0.0.0:0, by pointer":    func(c net.Conn) net.Conn { return &testConn{c} },
		"no address":               func(c net.Conn) net.Conn { return nowhere{c} },
		"net.Pipe, which has none": func(c net.Conn) net.Conn { return c },
	} {
		app := fiber.New()
		app.Use(fiberlimit.New(core.PerMinute(2), core.ByIP()))
		app.Get("/", served)
		client, server := net.Pipe()
		ended := make(chan error, 1)
		s := &fasthttp.Server{Handler: app.Handler()}
		go func() { ended <- s.ServeConn(wrap(server)) }()
		client.SetDeadline(time.Now().Add(30 * time.Second))
		in := bufio.NewReader(client)
		for range 3 {
			io.WriteString(client, "GET / HTTP/1.1\r\nHost: sash.example\r\n\r\n")
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%s: %v", desc, err)
			}
			if body, err := io.ReadAll(r.Body); r.StatusCode != 400 || string(body) != noKeyBody || err != nil {
				t.Errorf("%s: status %d, body %s, %v", desc, r.StatusCode, body, err)
			}
		}
		client.Close()
		<-ended
	}
}

// An upgrade has status 101, as in the other frameworks, and a panic after the response was made is 500: fasthttp
// sends nothing while a handler runs.
func TestRefundStatus(t *testing.T) {
	const upgrade = "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	for desc, c := range map[string]struct {
		handler fiber.Handler
		asked   int
	}{
		"an upgrade": {func(c *fiber.Ctx) error {
			c.Status(fiber.StatusSwitchingProtocols)
			c.Set("Connection", "Upgrade")
			c.Set("Upgrade", "echo")
			c.Context().Hijack(func(connection net.Conn) { io.Copy(connection, connection) })
			return nil
		}, 101},
		"a hijack alone": {func(c *fiber.Ctx) error {
			c.Context().HijackSetNoResponse(true)
			c.Context().Hijack(func(connection net.Conn) {
				io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\n"+upgrade)
				io.Copy(connection, connection)
			})
			return nil
		}, 101},
	} {
		asked := make(chan int, 1)
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(fiberlimit.New(core.PerMinute(1), core.ByIP(),
			core.WithRefund(func(_ *fiber.Ctx, status int) bool { asked <- status; return true })))
		app.Get("/", c.handler)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- app.Listener(listener) }()
		connection, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		connection.SetDeadline(time.Now().Add(30 * time.Second))
		io.WriteString(connection, "GET / HTTP/1.1\r\nHost: sash.example\r\n"+upgrade)
		in := bufio.NewReader(connection)
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", desc, err)
		}
		io.WriteString(connection, "ping\n")
		if word, err := in.ReadString('\n'); r.StatusCode != 101 || word != "ping\n" || err != nil {
			t.Errorf("%s: status %d, %q, %v", desc, r.StatusCode, word, err)
		}
		if got := <-asked; got != c.asked {
			t.Errorf("%s: asked about %d, want %d", desc, got, c.asked)
		}
		connection.Close()
		app.Shutdown()
		listener.Close()
		<-ended
	}
}
