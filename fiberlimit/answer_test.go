package fiberlimit_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/fiberlimit"
)

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
