package fiberlimit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	recovery "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/gofiber/fiber/v3/middleware/timeout"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/fiberlimit/v3"
)

const maxWait = 30 * time.Second

// slotServer serves a handler of which one runs at a time for each user.
type slotServer struct {
	t        *testing.T
	l        *core.Limiter
	listener net.Listener
}

func newSlotServer(t *testing.T, h fiber.Handler, opts ...core.Option) *slotServer {
	t.Helper()
	return newSlotServerBehind(t, func(_ *fiber.App, l net.Listener) net.Listener { return l }, h, opts...)
}

// newSlotServerBehind makes a server whose connections are those of another listener.
func newSlotServerBehind(
	t *testing.T, behind func(*fiber.App, net.Listener) net.Listener, h fiber.Handler, opts ...core.Option,
) *slotServer {
	t.Helper()
	l, err := core.New(core.InFlight(1), core.ByHeader("User", core.Unverified), opts...)
	if err != nil {
		t.Fatal(err)
	}
	s := &slotServer{t: t, l: l}
	app := fiber.New()
	app.Use(recovery.New(), fiberlimit.From(l))
	app.All("/*", h)
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	served := behind(app, s.listener)
	go func() { ended <- app.Listener(served, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		app.ShutdownWithTimeout(time.Nanosecond)
		s.listener.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *slotServer) inUse() int {
	d, err := s.l.Peek(context.Background(), "ann")
	if err != nil {
		s.t.Error(err)
	}
	return d.Used
}

// free waits until the slot is free.
func (s *slotServer) free(what string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), maxWait)
	defer cancel()
	d, err := s.l.Wait(ctx, "ann")
	if err != nil {
		s.t.Fatalf("%s: the slot is left behind: %v", what, err)
	}
	if err := d.Release(ctx); err != nil {
		s.t.Error(err)
	}
}

const slotRequest = "GET / HTTP/1.1\r\nHost: sash.example\r\nUser: ann\r\n\r\n"

// dial sends a request over a connection of its own.
func (s *slotServer) dial() net.Conn {
	s.t.Helper()
	c := s.connect()
	io.WriteString(c, slotRequest)
	return c
}

func (s *slotServer) connect() *net.TCPConn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(maxWait))
	return c.(*net.TCPConn)
}

// Handlers that end in whatever way leave no slot behind.
func TestSlotsAfterEndings(t *testing.T) {
	for desc, h := range map[string]fiber.Handler{
		"return":                served,
		"an error":              func(fiber.Ctx) error { return errors.New("down") },
		"a fiber.Error":         func(fiber.Ctx) error { return fiber.NewError(404, "gone") },
		"a panic":               func(fiber.Ctx) error { panic("boom") },
		"no route":              func(c fiber.Ctx) error { return c.Next() },
		"a stream":              func(c fiber.Ctx) error { return c.SendStream(&pieces{left: 3}) },
		"a stream and an error": func(c fiber.Ctx) error { c.SendStream(&pieces{left: 3}); return errors.New("down") },
		"a hijacked connection": func(c fiber.Ctx) error {
			c.RequestCtx().Hijack(func(c net.Conn) { c.Close() })
			return nil
		},
		"a hijacked connection and a panic": func(c fiber.Ctx) error {
			c.RequestCtx().Hijack(func(c net.Conn) { c.Close() })
			panic("boom")
		},
		"a timeout": timeout.New(func(c fiber.Ctx) error {
			<-c.Context().Done()
			return c.Context().Err()
		}, timeout.Config{Timeout: time.Nanosecond}),
	} {
		t.Run(desc, func(t *testing.T) {
			begun := make(chan int, 1)
			var s *slotServer
			s = newSlotServer(t, func(c fiber.Ctx) error {
				begun <- s.inUse()
				return h(c)
			})
			for range 200 {
				c := s.dial()
				select {
				case used := <-begun:
					if used != 1 {
						t.Errorf("%d slots are in use while the handler runs", used)
					}
				case <-time.After(maxWait):
					t.Fatal("the request was denied")
				}
				bufio.NewReader(c).ReadString('\n')
				c.Close()
				s.free(desc)
			}
		})
	}
}

// pieces is a body that is read in pieces.
type pieces struct{ left int }

func (p *pieces) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	p.left--
	return copy(b, "piece\n"), nil
}

// A slot is held while a body is streamed, or a hijacked connection is used, after the handler has returned.
func TestSlotsAfterHandlers(t *testing.T) {
	begun, end := make(chan struct{}, 1), make(chan struct{})
	wait := func() {
		begun <- struct{}{}
		<-end
	}
	for desc, h := range map[string]fiber.Handler{
		"events": func(c fiber.Ctx) error {
			c.Set("Content-Type", "text/event-stream")
			c.RequestCtx().SetBodyStreamWriter(func(w *bufio.Writer) {
				io.WriteString(w, "data: 1\n\n")
				w.Flush()
				wait()
			})
			return nil
		},
		"a hijacked connection": func(c fiber.Ctx) error {
			c.RequestCtx().Hijack(func(net.Conn) { wait() })
			return nil
		},
		"a hijacked connection and a panic": func(c fiber.Ctx) error {
			c.RequestCtx().Hijack(func(net.Conn) { wait() })
			panic("boom")
		},
		"a hijacked connection and an error": func(c fiber.Ctx) error {
			c.RequestCtx().Hijack(func(net.Conn) { wait() })
			return errors.New("down")
		},
	} {
		t.Run(desc, func(t *testing.T) {
			var statuses []int
			s := newSlotServer(t, h, core.WithRefund(func(_ context.Context, status int) bool {
				statuses = append(statuses, status)
				return false
			}))
			for range 20 {
				c := s.dial()
				<-begun
				if s.inUse() != 1 {
					t.Error("the slot is free while the body is sent or the connection is used")
				}
				end <- struct{}{}
				c.Close()
				s.free(desc)
			}
			if len(statuses) != 20 {
				t.Errorf("WithRefund was called with %v", statuses)
			}
		})
	}
}
