package fiberlimit_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
)

// large is more than a connection buffers.
var large = make([]byte, 64<<20)

// neverHijacked is a handler that takes over a connection whose own handler must not begin. It sends to begun, and goes
// on when it has received from left.
func neverHijacked(t *testing.T, begun, left chan struct{}) fiber.Handler {
	t.Helper()
	return func(c fiber.Ctx) error {
		c.Response().SetBodyRaw(large)
		c.RequestCtx().Hijack(func(net.Conn) { t.Error("the handler of the connection has run") })
		begun <- struct{}{}
		<-left
		return nil
	}
}

// wrapped is a connection as that of golang.org/x/net/netutil.LimitListener.
type wrapped struct{ net.Conn }

// proxied is a connection as that of github.com/pires/go-proxyproto.
type proxied struct{ hidden }

func (c proxied) Raw() net.Conn { return c.connection }

// hidden is a connection that does not show what it is.
type hidden struct{ connection }

type connection = net.Conn

// wrapping is a listener whose connections are wrapped.
type wrapping struct {
	net.Listener

	wrap func(net.Conn) net.Conn
}

func (l wrapping) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.wrap(c), nil
}

func wrappedBy(wrap func(net.Conn) net.Conn) func(*fiber.App, net.Listener) net.Listener {
	return func(_ *fiber.App, l net.Listener) net.Listener { return wrapping{l, wrap} }
}

// A client that resets its connection before its handler begins gives its slot back at once, without help of the
// garbage collector.
func TestSlotOfHijackThatFails(t *testing.T) {
	server := httptest.NewTLSServer(nil) // which has a certificate
	defer server.Close()
	encrypted := func(_ *fiber.App, l net.Listener) net.Listener { return tls.NewListener(l, server.TLS) }
	config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com"
	perIP := func(app *fiber.App) { app.Server().MaxConnsPerIP = 100 }
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for desc, behind := range map[string]func(*fiber.App, net.Listener) net.Listener{
		"TCP": func(_ *fiber.App, l net.Listener) net.Listener { return l },
		"TLS": encrypted,
		"TCP, MaxConnsPerIP": func(app *fiber.App, l net.Listener) net.Listener {
			perIP(app)
			return l
		},
		"TLS, MaxConnsPerIP": func(app *fiber.App, l net.Listener) net.Listener {
			perIP(app)
			return encrypted(app, l)
		},
		"embedded":       wrappedBy(func(c net.Conn) net.Conn { return wrapped{c} }),
		"PROXY protocol": wrappedBy(func(c net.Conn) net.Conn { return &proxied{hidden{c}} }),
	} {
		t.Run(desc, func(t *testing.T) {
			begun, left := make(chan struct{}), make(chan struct{})
			s := newSlotServerBehind(t, behind, neverHijacked(t, begun, left))
			for range 5 {
				c := s.connect()
				c.SetLinger(0)
				var w io.Writer = c
				if strings.HasPrefix(desc, "TLS") {
					w = tls.Client(c, config)
				}
				if _, err := io.WriteString(w, slotRequest); err != nil {
					t.Fatal(err)
				}
				<-begun
				c.Close()
				left <- struct{}{}
				s.free(desc)
			}
		})
	}
}

// A connection's handler does not begin either if its request wants the connection closed.
func TestSlotOfHijackThatIsDropped(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	begun, left := make(chan struct{}), make(chan struct{})
	s := newSlotServer(t, neverHijacked(t, begun, left))
	for range 5 {
		c := s.connect()
		io.WriteString(c, slotRequest[:len(slotRequest)-2]+"Connection: close\r\n\r\n")
		<-begun
		left <- struct{}{}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Error(err)
		}
		c.Close()
		s.free("Connection: close")
	}
}

// Where the server's connection does not show what it is, the slot is given back when the garbage collector has run.
func TestSlotOfHijackOfUnknownConnection(t *testing.T) {
	begun, left := make(chan struct{}), make(chan struct{})
	s := newSlotServerBehind(t, wrappedBy(func(c net.Conn) net.Conn { return hidden{c} }),
		neverHijacked(t, begun, left))
	c := s.dial()
	<-begun
	c.Close()
	close(left)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	s.free("a hijack that fails")
	close(stop)
	<-done
}
