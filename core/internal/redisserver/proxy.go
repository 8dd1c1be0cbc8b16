package redisserver

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Proxy passes TCP connections on to a server and spoils them on demand. Its
// methods may be called from any goroutine at any time.
type Proxy struct {
	listener *listener
	target   string

	mu      sync.Mutex
	fault   fault
	dropped int
}

// fault is what is to happen to what arrives.
type fault struct {
	delay, trickle  time.Duration
	hole, drop, cut bool
}

// StartProxy runs a proxy to the server at target until the test ends.
func StartProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{listener: listen(tb), target: target}
	p.listener.run(p.serve)
	return p
}

// Addr is the address for clients to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetDelay holds back what arrives from the server from now on, each time for at least d. Requests are not delayed.
func (p *Proxy) SetDelay(d time.Duration) { p.set(func(f *fault) { f.delay = d }) }

// Trickle passes on what arrives from the server byte by byte from now on, one each d; 0 ends it.
func (p *Proxy) Trickle(d time.Duration) { p.set(func(f *fault) { f.trickle = d }) }

// DropReplies swallows what arrives from the server from now on, or ceases to. Requests still reach it and take effect.
// A client that has lost a reply must give up the connection, or it takes the next reply for the lost one.
func (p *Proxy) DropReplies(drop bool) { p.set(func(f *fault) { f.drop = drop }) }

// BlackHole makes the server vanish without a word, or lets it come back. What either side sends meanwhile is
// swallowed, and no client learns that the server has ended a connection. A connection that has lost anything stays
// dead, while others and new ones work again.
func (p *Proxy) BlackHole(on bool) { p.set(func(f *fault) { f.hole = on }) }

// CutReply passes on the first half of what arrives next from the server, and then resets that connection. What follows
// on others is passed on whole.
func (p *Proxy) CutReply() { p.set(func(f *fault) { f.cut = true }) }

func (p *Proxy) set(change func(*fault)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.fault)
}

// Dropped counts how often something was swallowed. That a request took effect
// does not tell that its reply is lost yet: it may still be on its way here.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	gone           chan struct{} // closed when the client is
	dead           bool          // has lost something to a black hole; guarded by Proxy.mu
}

// serve passes on one connection until either side ends it.
func (p *Proxy) serve(client net.Conn) {
	l := &link{client: client, gone: make(chan struct{})}
	if p.isDead(l) {
		p.requests(l) // which go nowhere
		return
	}
	server, err := net.DialTimeout("tcp", p.target, doTimeout)
	if err != nil {
		return
	}
	p.listener.open(server)
	defer p.listener.forget(server)

	l.server = server
	p.listener.running.Go(func() {
		defer server.Close()
		p.requests(l)
	})
	p.replies(l)
}

// requests passes on what the client says.
func (p *Proxy) requests(l *link) {
	defer close(l.gone)
	buf := make([]byte, 32<<10)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			return
		}
		if p.isDead(l) {
			p.swallowed()
			continue
		}
		if _, err := l.server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// replies passes on what the server says, spoilt as was asked for.
func (p *Proxy) replies(l *link) {
	buf := make([]byte, 32<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			if p.isDead(l) {
				<-l.gone
			}
			return
		}
		fault := p.next()
		if p.isDead(l) || fault.drop {
			p.swallowed()
			continue
		}
		if !l.reply(buf[:n], fault) {
			return
		}
	}
}

func (p *Proxy) isDead(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.dead = l.dead || p.fault.hole
	return l.dead
}

func (p *Proxy) swallowed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped++
}

// next is what is to happen to what the server has just said.
func (p *Proxy) next() fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	fault := p.fault
	p.fault.cut = false
	return fault
}

// reply tells whether the client has got all and the link goes on.
func (l *link) reply(data []byte, fault fault) bool {
	if !l.wait(fault.delay) {
		return false
	}
	if fault.cut {
		_, _ = l.client.Write(data[:len(data)/2])
		reset(l.client)
		return false
	}
	size := len(data)
	if fault.trickle > 0 {
		size = 1
	}
	for piece := range slices.Chunk(data, size) {
		if !l.wait(fault.trickle) {
			return false
		}
		if _, err := l.client.Write(piece); err != nil {
			return false
		}
	}
	return true
}

// wait tells whether the client is still there after d.
func (l *link) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-l.gone:
		return false
	}
}
