package fiberlimit_test

import (
	"bufio"
	"io"
	"net"
	"testing"

	"github.com/gofiber/fiber/v2"
	recovery "github.com/gofiber/fiber/v2/middleware/recover"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/fiberlimit"
)

func TestStreams(t *testing.T) {
	coretest.Streams(t, coretest.StreamsConfig[ctx]{
		Serve: func(t *testing.T, from net.Listener, l *core.Limiter, handler handle) {
			app := fiber.New(fiber.Config{DisableStartupMessage: true})
			app.Use(recovery.New(), fiberlimit.From(l))
			app.All("/*", handler)
			listen(t, from, app)
		},
		Hijack: func(c ctx, f func(net.Conn)) { c.Context().Hijack(f) },
		Upgrade: func(c ctx, f func(net.Conn)) {
			c.Status(101)
			c.Set("Connection", "Upgrade")
			c.Set("Upgrade", "echo")
			c.Context().Hijack(f)
		},
		Silent: func(c ctx, f func(net.Conn)) {
			c.Context().HijackSetNoResponse(true)
			c.Context().Hijack(f)
		},
		Stream:       func(c ctx, body io.Reader) error { return c.SendStream(body) },
		StreamWriter: func(c ctx, f func(*bufio.Writer)) { c.Context().SetBodyStreamWriter(f) },
	})
}
