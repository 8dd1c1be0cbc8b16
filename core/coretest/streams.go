package coretest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
)

// StreamsConfig says how a framework on fasthttp is used with the adapter under test. C is the framework's context.
type StreamsConfig[C any] struct {
	// Serve serves a handler behind a limiter, and both behind middleware that recovers from panics, until the test
	// ends.
	Serve func(t *testing.T, from net.Listener, l *core.Limiter, handler func(C) error)

	Hijack       func(C, func(net.Conn))
	Upgrade      func(C, func(net.Conn)) // with an answer of status 101 and its fields
	Silent       func(C, func(net.Conn)) // without an answer
	Stream       func(C, io.Reader) error
	StreamWriter func(C, func(*bufio.Writer))
}

// Streams tests what goes on after a handler of fasthttp has returned: bodies that are streamed and connections that
// are hijacked hold a permit until they end, and not longer.
func Streams[C any](t *testing.T, c StreamsConfig[C]) {
	t.Run("Endings", func(t *testing.T) { streamEndings(t, c) })
	t.Run("Upgrades", func(t *testing.T) { streamUpgrades(t, c) })
}

// permitServer serves a handler of which one runs at a time for each user.
type permitServer struct {
	t        *testing.T
	l        *core.Limiter
	listener net.Listener
}

func newPermitServer[C any](t *testing.T, c StreamsConfig[C], h func(C) error, refund core.Option) *permitServer {
	t.Helper()
	s := &permitServer{t: t, l: limiterFor(t, core.NewMemoryStore(), core.InFlight(1), byUser, refund)}
	var err error
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	c.Serve(t, s.listener, s.l, h)
	return s
}

func (s *permitServer) inUse() int {
	d, err := s.l.Peek(context.Background(), "ann")
	if err != nil {
		s.t.Error(err)
	}
	return d.Used
}

// free waits until the permit is free.
func (s *permitServer) free() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), maxWait)
	defer cancel()
	d, err := s.l.Wait(ctx, "ann")
	if err != nil {
		s.t.Fatalf("the permit is left behind: %v", err)
	}
	if err := d.Release(ctx); err != nil {
		s.t.Error(err)
	}
}

// ask sends a request with further header fields over a connection of its own.
func (s *permitServer) ask(fields string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(maxWait))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: sash.example\r\nUser: ann\r\n"+fields+"\r\n")
	return c
}

// pieces is a body that is read in pieces, of which the last waits.
type pieces struct {
	left int
	wait func()
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.left == 0 {
		p.wait()
		return 0, io.EOF
	}
	p.left--
	return copy(b, "piece\n"), nil
}

// Handlers that end in whatever way leave no permit behind. It is held while a body is streamed, or a hijacked
// connection is used, after the handler has returned.
func streamEndings[C any](t *testing.T, f StreamsConfig[C]) {
	down := errors.New("down")
	during, end := make(chan struct{}, 1), make(chan struct{})
	wait := func() {
		during <- struct{}{}
		<-end
	}
	hijack := func(c C) { f.Hijack(c, func(c net.Conn) { wait(); c.Close() }) }
	const dropped = "a connection that is closed before it is hijacked"
	for _, c := range []struct {
		desc  string
		waits bool
		serve func(C) error
	}{
		{"return", false, func(C) error { return nil }},
		{"an error", false, func(C) error { return down }},
		{"a panic", false, func(C) error { panic("boom") }},
		{"a stream", true, func(c C) error { return f.Stream(c, &pieces{3, wait}) }},
		{"a stream and an error", false, func(c C) error { f.Stream(c, &pieces{3, func() {}}); return down }},
		{"events", true, func(c C) error {
			f.StreamWriter(c, func(w *bufio.Writer) {
				io.WriteString(w, "data: 1\n\n")
				w.Flush()
				wait()
			})
			return nil
		}},
		{"a hijacked connection", true, func(c C) error { hijack(c); return nil }},
		{"a hijacked connection and a panic", true, func(c C) error { hijack(c); panic("boom") }},
		{"a hijacked connection and an error", true, func(c C) error { hijack(c); return down }},
		{dropped, false, func(c C) error {
			f.Hijack(c, func(net.Conn) { t.Error("the handler of the connection has run") })
			return nil
		}},
	} {
		t.Run(c.desc, func(t *testing.T) {
			const rounds = 100
			begun, asked := make(chan int, 1), make(chan int, rounds)
			var s *permitServer
			s = newPermitServer(t, f, func(ctx C) error {
				begun <- s.inUse()
				return c.serve(ctx)
			}, core.WithRefund(func(_ context.Context, status int) bool { asked <- status; return false }))
			fields := ""
			if c.desc == dropped {
				fields = "Connection: close\r\n"
			}
			for range rounds {
				conn := s.ask(fields)
				if used := <-begun; used != 1 {
					t.Errorf("%d permits are in use while the handler runs", used)
				}
				if c.waits {
					<-during
					if s.inUse() != 1 {
						t.Error("the permit is free while the body is sent or the connection is used")
					}
					end <- struct{}{}
				}
				bufio.NewReader(conn).ReadString('\n')
				conn.Close()
				s.free()
			}
			if len(asked) != rounds {
				t.Errorf("WithRefund was called %d times, want %d", len(asked), rounds)
			}
		})
	}
}

// An upgrade has status 101, as in the other frameworks, whether the framework answers or the connection's handler.
func streamUpgrades[C any](t *testing.T, f StreamsConfig[C]) {
	for desc, h := range map[string]func(C){
		"an upgrade":     func(c C) { f.Upgrade(c, func(c net.Conn) { io.Copy(c, c) }) },
		"a hijack alone": func(c C) { f.Silent(c, func(c net.Conn) { echo(c, c, nil) }) },
	} {
		asked := make(chan int, 1)
		s := newPermitServer(t, f, func(c C) error { h(c); return nil },
			core.WithRefund(func(_ C, status int) bool { asked <- status; return true }))
		c := s.ask(upgradeFields)
		in := bufio.NewReader(c)
		if r, err := http.ReadResponse(in, nil); err != nil || r.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %v, %v", desc, r, err)
		}
		checkEcho(t, desc, in, c)
		if got := <-asked; got != 101 {
			t.Errorf("%s: asked about %d, want 101", desc, got)
		}
		c.Close()
	}
}
