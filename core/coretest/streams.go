package coretest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
)

// StreamsConfig says how a framework on fasthttp is used with the adapter under test. C is the framework's context.
type StreamsConfig[C any] struct {
	// Serve serves a handler behind a limiter, and both behind middleware that recovers from panics, until the test
	// ends. perIP is fasthttp's MaxConnsPerIP.
	Serve func(t *testing.T, from net.Listener, perIP int, l *core.Limiter, handler func(C) error)

	Hijack       func(C, func(net.Conn))
	Upgrade      func(C, func(net.Conn)) // with an answer of status 101 and its fields
	Silent       func(C, func(net.Conn)) // without an answer
	Stream       func(C, io.Reader) error
	StreamWriter func(C, func(*bufio.Writer))
	Write        func(C, []byte)
}

// streams is the suite of one adapter.
type streams[C any] struct{ StreamsConfig[C] }

// Streams tests what goes on after a handler of fasthttp has returned: bodies that are streamed and connections that
// are hijacked hold a permit until they end, and not longer.
func Streams[C any](t *testing.T, c StreamsConfig[C]) {
	f := streams[C]{c}
	for name, test := range map[string]func(*testing.T){
		"Endings": f.endings, "AfterHandlers": f.afterHandlers, "HijackThatFails": f.hijackThatFails,
		"HijackThatIsDropped": f.hijackThatIsDropped, "HijackOfUnknownConnection": f.hijackOfUnknownConnection,
		"NoAddress": f.noAddress, "Upgrades": f.upgrades,
	} {
		t.Run(name, test)
	}
}

// permitServer serves a handler of which one runs at a time for each user.
type permitServer struct {
	t        *testing.T
	l        *core.Limiter
	listener net.Listener
}

func (f streams[C]) server(t *testing.T, h func(C) error, opts ...core.Option) *permitServer {
	t.Helper()
	return f.serverBehind(t, same, 0, h, opts...)
}

// serverBehind makes a server whose connections are those of another listener.
func (f streams[C]) serverBehind(
	t *testing.T, behind func(net.Listener) net.Listener, perIP int, h func(C) error, opts ...core.Option,
) *permitServer {
	t.Helper()
	l, err := core.New(core.InFlight(1), byUser, opts...)
	if err != nil {
		t.Fatal(err)
	}
	s := &permitServer{t: t, l: l}
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	f.Serve(t, behind(s.listener), perIP, l, h)
	return s
}

func same(l net.Listener) net.Listener { return l }

func (s *permitServer) inUse() int {
	d, err := s.l.Peek(context.Background(), "ann")
	if err != nil {
		s.t.Error(err)
	}
	return d.Used
}

// free waits until the permit is free.
func (s *permitServer) free(what string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), maxWait)
	defer cancel()
	d, err := s.l.Wait(ctx, "ann")
	if err != nil {
		s.t.Fatalf("%s: the permit is left behind: %v", what, err)
	}
	if err := d.Release(ctx); err != nil {
		s.t.Error(err)
	}
}

const annAsks = "GET / HTTP/1.1\r\nHost: sash.example\r\nUser: ann\r\n\r\n"

// dial sends a request over a connection of its own.
func (s *permitServer) dial() net.Conn {
	s.t.Helper()
	c := s.connect()
	io.WriteString(c, annAsks)
	return c
}

func (s *permitServer) connect() *net.TCPConn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(maxWait))
	return c.(*net.TCPConn)
}

// Handlers that end in whatever way leave no permit behind.
func (f streams[C]) endings(t *testing.T) {
	for desc, h := range map[string]func(C) error{
		"return":   func(C) error { return nil },
		"an error": func(C) error { return errors.New("down") },
		"a panic":  func(C) error { panic("boom") },
		"a stream": func(c C) error { return f.Stream(c, &pieces{left: 3}) },
		"a stream and an error": func(c C) error {
			f.Stream(c, &pieces{left: 3})
			return errors.New("down")
		},
		"a hijacked connection": func(c C) error {
			f.Hijack(c, func(c net.Conn) { c.Close() })
			return nil
		},
		"a hijacked connection and a panic": func(c C) error {
			f.Hijack(c, func(c net.Conn) { c.Close() })
			panic("boom")
		},
	} {
		t.Run(desc, func(t *testing.T) {
			begun := make(chan int, 1)
			var s *permitServer
			s = f.server(t, func(c C) error {
				begun <- s.inUse()
				return h(c)
			})
			for range 200 {
				c := s.dial()
				select {
				case used := <-begun:
					if used != 1 {
						t.Errorf("%d permits are in use while the handler runs", used)
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

// A permit is held while a body is streamed, or a hijacked connection is used, after the handler has returned.
func (f streams[C]) afterHandlers(t *testing.T) {
	begun, end := make(chan struct{}, 1), make(chan struct{})
	wait := func() {
		begun <- struct{}{}
		<-end
	}
	for desc, h := range map[string]func(C) error{
		"events": func(c C) error {
			f.StreamWriter(c, func(w *bufio.Writer) {
				io.WriteString(w, "data: 1\n\n")
				w.Flush()
				wait()
			})
			return nil
		},
		"a hijacked connection": func(c C) error {
			f.Hijack(c, func(net.Conn) { wait() })
			return nil
		},
		"a hijacked connection and a panic": func(c C) error {
			f.Hijack(c, func(net.Conn) { wait() })
			panic("boom")
		},
		"a hijacked connection and an error": func(c C) error {
			f.Hijack(c, func(net.Conn) { wait() })
			return errors.New("down")
		},
	} {
		t.Run(desc, func(t *testing.T) {
			var statuses []int
			s := f.server(t, h, core.WithRefund(func(_ context.Context, status int) bool {
				statuses = append(statuses, status)
				return false
			}))
			for range 20 {
				c := s.dial()
				<-begun
				if s.inUse() != 1 {
					t.Error("the permit is free while the body is sent or the connection is used")
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

// large is more than a connection buffers.
var large = make([]byte, 64<<20)

// neverHijacked is a handler that takes over a connection whose own handler must not begin. It sends to begun, and goes
// on when it has received from left.
func (f streams[C]) neverHijacked(t *testing.T, begun, left chan struct{}) func(C) error {
	t.Helper()
	return func(c C) error {
		f.Write(c, large)
		f.Hijack(c, func(net.Conn) { t.Error("the handler of the connection has run") })
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

func wrappedBy(wrap func(net.Conn) net.Conn) func(net.Listener) net.Listener {
	return func(l net.Listener) net.Listener { return wrapping{l, wrap} }
}

// A client that resets its connection before its handler begins gives its permit back at once, without help of the
// garbage collector.
func (f streams[C]) hijackThatFails(t *testing.T) {
	server := httptest.NewTLSServer(nil) // which has a certificate
	defer server.Close()
	encrypted := func(l net.Listener) net.Listener { return tls.NewListener(l, server.TLS) }
	config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com"
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for desc, behind := range map[string]struct {
		wrap  func(net.Listener) net.Listener
		perIP int
	}{
		"TCP":                {same, 0},
		"TLS":                {encrypted, 0},
		"TCP, MaxConnsPerIP": {same, 100},
		"TLS, MaxConnsPerIP": {encrypted, 100},
		"embedded":           {wrappedBy(func(c net.Conn) net.Conn { return wrapped{c} }), 0},
		"PROXY protocol":     {wrappedBy(func(c net.Conn) net.Conn { return &proxied{hidden{c}} }), 0},
	} {
		t.Run(desc, func(t *testing.T) {
			begun, left := make(chan struct{}), make(chan struct{})
			s := f.serverBehind(t, behind.wrap, behind.perIP, f.neverHijacked(t, begun, left))
			for range 5 {
				c := s.connect()
				c.SetLinger(0)
				var w io.Writer = c
				if strings.HasPrefix(desc, "TLS") {
					w = tls.Client(c, config)
				}
				if _, err := io.WriteString(w, annAsks); err != nil {
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
func (f streams[C]) hijackThatIsDropped(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	begun, left := make(chan struct{}), make(chan struct{})
	s := f.server(t, f.neverHijacked(t, begun, left))
	for range 5 {
		c := s.connect()
		io.WriteString(c, annAsks[:len(annAsks)-2]+"Connection: close\r\n\r\n")
		<-begun
		left <- struct{}{}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Error(err)
		}
		c.Close()
		s.free("Connection: close")
	}
}

// Where the server's connection does not show what it is, the permit is given back when the garbage collector has run.
func (f streams[C]) hijackOfUnknownConnection(t *testing.T) {
	begun, left := make(chan struct{}), make(chan struct{})
	s := f.serverBehind(t, wrappedBy(func(c net.Conn) net.Conn { return hidden{c} }), 0,
		f.neverHijacked(t, begun, left))
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

// testConn has the name of fiber's, and a real connection's address as it is where the kernel does not tell.
type testConn struct{ net.Conn }

func (testConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero} }

// nowhere has no address at all.
type nowhere struct{ net.Conn }

func (nowhere) RemoteAddr() net.Addr { return nil }

// pipe has the address of net.Pipe.
type pipe struct{ net.Conn }

func (pipe) RemoteAddr() net.Addr {
	c, _ := net.Pipe()
	return c.RemoteAddr()
}

// Connections without an address never share a quota, be they of App.Test's address or type name.
func (f streams[C]) noAddress(t *testing.T) {
	for desc, wrap := range map[string]func(net.Conn) net.Conn{
		"0.0.0.0:0":                func(c net.Conn) net.Conn { return testConn{c} },
		"0.0.0.0:0, by pointer":    func(c net.Conn) net.Conn { return &testConn{c} },
		"no address":               func(c net.Conn) net.Conn { return nowhere{c} },
		"net.Pipe, which has none": func(c net.Conn) net.Conn { return pipe{c} },
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := limiterFor(t, core.NewMemoryStore(), core.PerMinute(2), core.ByIP())
		f.Serve(t, wrapping{listener, wrap}, 0, l, func(C) error { return nil })
		c := (&permitServer{t: t, listener: listener}).connect()
		in := bufio.NewReader(c)
		for range 3 {
			io.WriteString(c, annAsks)
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%s: %v", desc, err)
			}
			if body, err := io.ReadAll(r.Body); r.StatusCode != 400 || string(body) != noKeyBody || err != nil {
				t.Errorf("%s: status %d, body %s, %v", desc, r.StatusCode, body, err)
			}
		}
		c.Close()
	}
}

// An upgrade has status 101, as in the other frameworks, whether the framework answers or the connection's handler.
func (f streams[C]) upgrades(t *testing.T) {
	const fields = "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	for desc, h := range map[string]func(C){
		"an upgrade": func(c C) { f.Upgrade(c, func(c net.Conn) { io.Copy(c, c) }) },
		"a hijack alone": func(c C) {
			f.Silent(c, func(c net.Conn) {
				io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n"+fields)
				io.Copy(c, c)
			})
		},
	} {
		asked := make(chan int, 1)
		s := f.server(t, func(c C) error { h(c); return nil },
			core.WithRefund(func(_ C, status int) bool { asked <- status; return true }))
		c := s.connect()
		io.WriteString(c, strings.TrimSuffix(annAsks, "\r\n")+fields)
		in := bufio.NewReader(c)
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", desc, err)
		}
		io.WriteString(c, "ping\n")
		if word, err := in.ReadString('\n'); r.StatusCode != 101 || word != "ping\n" || err != nil {
			t.Errorf("%s: status %d, %q, %v", desc, r.StatusCode, word, err)
		}
		if got := <-asked; got != 101 {
			t.Errorf("%s: asked about %d, want 101", desc, got)
		}
		c.Close()
	}
}
