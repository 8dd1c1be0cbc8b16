package redisserver

import (
	"net"
	"sync"
	"testing"
)

// listener serves TCP connections until the test ends.
type listener struct {
	net.Listener
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

func listen(tb testing.TB) *listener {
	tb.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("redisserver: %v", err)
	}
	l := &listener{Listener: socket, conns: map[net.Conn]struct{}{}}
	tb.Cleanup(l.end)
	return l
}

// run hands each connection to serve and closes it afterwards.
func (l *listener) run(serve func(net.Conn)) {
	l.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			l.running.Go(func() {
				l.open(conn)
				defer l.forget(conn)
				serve(conn)
			})
		}
	})
}

// open puts a connection within reach of cut.
func (l *listener) open(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[conn] = struct{}{}
	if l.closed {
		_ = conn.Close()
	}
}

func (l *listener) forget(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
	_ = conn.Close()
}

// cut resets every open connection.
func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		reset(conn)
	}
}

func (l *listener) end() {
	_ = l.Close()
	l.mu.Lock()
	l.closed = true // so that nothing opens after the cut
	l.mu.Unlock()
	l.cut()
	l.running.Wait()
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // makes Close reset the connection
	}
	_ = conn.Close()
}
