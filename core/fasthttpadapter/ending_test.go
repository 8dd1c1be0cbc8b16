package fasthttpadapter_test

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
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/fasthttpadapter"
)

type connection = net.Conn

// wrapped is a connection as that of golang.org/x/net/netutil.LimitListener.
type wrapped struct{ net.Conn }

// hidden is a connection that does not show what it is.
type hidden struct{ connection }

// proxied is a connection as that of github.com/pires/go-proxyproto.
type proxied struct{ hidden }

func (c proxied) Raw() net.Conn { return c.connection }

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

// A handler takes over a connection, whose own handler does not begin: because the client resets it before, or because
// its request wants it closed. It ends at once, without help of the garbage collector, unless the server's connection
// does not show what it is.
func TestHijackThatNeverBegins(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	config := certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com"
	plain := func(c net.Conn) net.Conn { return c }
	encrypted := func(c net.Conn) net.Conn { return tls.Server(c, certified.TLS) }
	large := make([]byte, 64<<20) // more than a connection buffers
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for desc, c := range map[string]struct {
		wrap  func(net.Conn) net.Conn
		perIP int
	}{
		"TCP":                {plain, 0},
		"TLS":                {encrypted, 0},
		"TCP, MaxConnsPerIP": {plain, 100},
		"TLS, MaxConnsPerIP": {encrypted, 100},
		"embedded":           {func(c net.Conn) net.Conn { return wrapped{c} }, 0},
		"PROXY protocol":     {func(c net.Conn) net.Conn { return &proxied{hidden{c}} }, 0},
		"Connection: close":  {plain, 0},
		"unknown":            {func(c net.Conn) net.Conn { return hidden{c} }, 0},
	} {
		t.Run(desc, func(t *testing.T) {
			begun, left, released := make(chan struct{}), make(chan struct{}), make(chan struct{})
			server := fasthttp.Server{MaxConnsPerIP: c.perIP, Handler: func(c *fasthttp.RequestCtx) {
				c.Response.SetBodyRaw(large)
				c.Hijack(func(net.Conn) { t.Error("the handler of the connection has run") })
				fasthttpadapter.ReleaseAtEnd(c, func() { close(released) })
				close(begun)
				<-left
			}}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go server.Serve(wrapping{listener, c.wrap})
			client, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			client.(*net.TCPConn).SetLinger(0)
			var w io.Writer = client
			if strings.HasPrefix(desc, "TLS") {
				w = tls.Client(client, config)
			}
			closes := desc == "Connection: close"
			fields := "Host: sash.example\r\n"
			if closes {
				fields += desc + "\r\n"
			}
			if _, err := io.WriteString(w, "GET / HTTP/1.1\r\n"+fields+"\r\n"); err != nil {
				t.Fatal(err)
			}
			<-begun
			if !closes {
				client.Close()
			}
			close(left)
			if closes {
				io.Copy(io.Discard, client)
				client.Close()
			}
			for deadline := time.After(30 * time.Second); ; {
				select {
				case <-released:
					return
				case <-deadline:
					t.Fatal("its end was not noticed")
				case <-time.After(time.Millisecond):
					if desc == "unknown" {
						runtime.GC()
					}
				}
			}
		})
	}
}

// testConn has the name of fiber's, and a real connection's address as it is where the kernel does not tell.
type testConn struct {
	net.Conn
	addr net.Addr
}

func (c testConn) RemoteAddr() net.Addr { return c.addr }

// Connections without an address never share a quota, be they of App.Test's address or type name.
func TestPeerWithoutAddress(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	zero := &net.TCPAddr{IP: net.IPv4zero}
	for desc, c := range map[string]net.Conn{
		"0.0.0.0:0":             testConn{near, zero},
		"0.0.0.0:0, by pointer": &testConn{near, zero},
		"no address":            testConn{near, nil},
		"net.Pipe":              near,
	} {
		var request fasthttp.RequestCtx
		request.Init2(c, nil, false)
		if p := fasthttpadapter.PeerOf(&request, "github.com/gofiber/fiber/v2"); p != (adapter.Peer{}) {
			t.Errorf("%s: %+v, want no peer", desc, p)
		}
	}
	var request fasthttp.RequestCtx
	request.Init2(&testConn{near, zero}, nil, false)
	if p := fasthttpadapter.PeerOf(&request, "github.com/sashlimit/sash/core/fasthttpadapter_test"); !p.Addr.IsValid() {
		t.Error("a unit test of the framework has no peer")
	}
}
