package coretest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"

	"github.com/sashlimit/sash/core"
)

// Serve mounts limiters, the outermost first, on all methods and paths in
// front of a handler that answers 200 with text. The function it gives sends a
// request to that and returns the response.
type Serve func(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response

// HTTP1 serves h on a loopback address over HTTP/1.1 until the test ends.
func HTTP1(t *testing.T, h http.Handler) func(*http.Request) *http.Response {
	t.Helper()
	server := startServer(t, h, false)
	return Send(t, server.Client(), server.URL)
}

// HTTP2 serves h on a loopback address over TLS and HTTP/2 until the test ends.
func HTTP2(t *testing.T, h http.Handler) func(*http.Request) *http.Response {
	t.Helper()
	server := startServer(t, h, true)
	send := Send(t, server.Client(), server.URL)
	return func(r *http.Request) *http.Response {
		response := send(r)
		if response.ProtoMajor != 2 {
			t.Errorf("protocol %s, want HTTP/2", response.Proto)
		}
		return response
	}
}

func startServer(t *testing.T, h http.Handler, two bool) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if server.EnableHTTP2 = two; two {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

// Send returns a function that sends requests to base, whatever host they name, and reads the responses to their end.
func Send(t *testing.T, client *http.Client, base string) func(*http.Request) *http.Response {
	t.Helper()
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	return func(r *http.Request) *http.Response {
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host, r.Host, r.RequestURI = target.Scheme, target.Host, "", ""
		response, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return &http.Response{Header: http.Header{}, Body: http.NoBody}
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
		return response
	}
}

// inProcess calls h without a server, so requests come from their RemoteAddr.
func inProcess(_ *testing.T, h http.Handler) func(*http.Request) *http.Response {
	return func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
}

// Listen serves what [Serve] does on a listener until the test ends, for frameworks with a server of their own.
type Listen func(t *testing.T, from net.Listener, text func() string, limiters ...*core.Limiter)

// Serve serves on a loopback address.
func (l Listen) Serve(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l(t, listener, text, limiters...)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}
	t.Cleanup(client.CloseIdleConnections)
	return Send(t, client, "http://"+listener.Addr().String())
}

// Peers sends each request over a connection of its own, which has the request's RemoteAddr.
func (l Listen) Peers(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
	t.Helper()
	from := &peers{accepted: make(chan net.Conn), closed: make(chan struct{})}
	l(t, from, text, limiters...)
	return func(r *http.Request) *http.Response {
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				from.accepted <- peer{far, peerOf(r)}
				return near, nil
			},
		}}
		return Send(t, client, "http://sash.example")(r)
	}
}

// peers is a listener that accepts what it is given.
type peers struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (p *peers) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *peers) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*peers) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// peer is a connection from an address.
type peer struct {
	net.Conn
	addr net.Addr
}

func (p peer) RemoteAddr() net.Addr { return p.addr }

// peerOf returns the other end as a listener of the request's network would name it.
func peerOf(r *http.Request) net.Addr {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return &net.UnixAddr{Name: r.RemoteAddr, Net: "unix"}
	}
	if ap, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return net.TCPAddrFromAddrPort(ap)
	}
	return oddAddr(r.RemoteAddr)
}

type oddAddr string

func (oddAddr) Network() string  { return "tcp" }
func (a oddAddr) String() string { return string(a) }
