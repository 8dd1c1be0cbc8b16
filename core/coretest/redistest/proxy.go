package redistest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy passes TCP connections on to a server and spoils them on demand. Its
// methods may be called from any goroutine at any time.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	target  string
	delay   time.Duration
	drop    bool
	dropped int
	closed  bool
	conns   map[net.Conn]struct{}
}

// StartProxy runs a proxy to the server at target until the test ends.
func StartProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	p := &Proxy{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Addr is the address for clients to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetTarget sends new connections elsewhere. Those that are open stay as they
// are; Cut makes their clients come again.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// SetDelay holds back what arrives from the server from now on, each time for
// at least d. Requests are not delayed.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// DropReplies swallows what arrives from the server from now on, or ceases to.
// Requests still reach it and take effect. A client that has lost a reply must
// give up the connection, or it takes the next reply for the lost one.
func (p *Proxy) DropReplies(drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = drop
}

// Dropped counts how often something was swallowed. That a request took effect
// does not tell that its reply is lost yet: it may still be on its way here.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// Cut resets every connection that has carried anything, on both sides. What is
// on its way is lost: a request may or may not take effect. New connections are
// served as before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // makes Close reset the connection
		}
		_ = conn.Close()
	}
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true // so that nothing opens after the cut
	p.mu.Unlock()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve passes on one connection until either side ends it.
func (p *Proxy) serve(client net.Conn) {
	p.open(client)
	defer p.forget(client)

	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, doTimeout)
	if err != nil {
		return
	}
	p.open(server)
	defer p.forget(server)

	gone := make(chan struct{})
	p.running.Go(func() {
		defer close(gone)
		defer server.Close()
		_, _ = io.Copy(server, client) // either side may end it in any way
	})
	p.reply(client, server, gone)
}

// reply passes on what the server says, spoilt as was asked for.
func (p *Proxy) reply(client, server net.Conn, gone <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		delay, drop := p.delay, p.drop
		if drop {
			p.dropped++
		}
		p.mu.Unlock()
		if drop {
			continue
		}
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-gone:
				return
			}
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// open puts a connection within reach of Cut.
func (p *Proxy) open(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = struct{}{}
	if p.closed {
		_ = conn.Close()
	}
}

func (p *Proxy) forget(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	_ = conn.Close()
}
