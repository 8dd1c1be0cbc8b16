package redisstore_test

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/redisstore"
)

// stalled returns a context of a limiter in a process that cannot run until the test ends. The timeout is over.
func stalled(t *testing.T, timeout time.Duration) context.Context {
	t.Helper()
	runs := make(chan struct{})
	t.Cleanup(func() { close(runs) })
	d := deadline.New(timeout, nil)
	d.Round = func() { <-runs }
	d.Begin()
	ctx := d.Within(context.Background(), time.Now())
	time.Sleep(timeout + timeout/2) // real time, since Redis and go-redis have no other clock
	if ctx.Err() != nil {
		t.Fatal("the context has ended")
	}
	return ctx
}

// A call that begins late because this process could not run has its time, also for a new connection.
func TestCallsThatBeginLate(t *testing.T) {
	rdb := redis.NewClient(at(redistest.Start(t)))
	defer rdb.Close()
	if err := take(stalled(t, time.Second/2), rdb); err != nil {
		t.Error(err)
	}
}

// lateConn is a connection at which this process never looks before a deadline: neither when a command is to be sent,
// nor when the reply has arrived.
type lateConn struct {
	*net.TCPConn

	sends, passed bool   // the deadlines of writes and reads are yet to come, and have passed
	reply         []byte // that waits
}

func (c *lateConn) SetWriteDeadline(t time.Time) error {
	c.sends = !c.sends
	return c.TCPConn.SetWriteDeadline(t)
}

func (c *lateConn) Write(b []byte) (int, error) {
	if c.sends {
		return 0, os.ErrDeadlineExceeded
	}
	return c.TCPConn.Write(b)
}

func (c *lateConn) SetReadDeadline(t time.Time) error {
	c.passed = false
	return c.TCPConn.SetReadDeadline(t)
}

func (c *lateConn) Read(b []byte) (n int, err error) {
	if c.passed {
		return 0, os.ErrDeadlineExceeded
	}
	if n = copy(b, c.reply); n > 0 {
		c.reply = c.reply[n:]
		return n, nil
	}
	if n, err = c.TCPConn.Read(b); err != nil {
		return 0, err
	}
	c.reply, c.passed = append(c.reply, b[:n]...), true
	return 0, os.ErrDeadlineExceeded
}

// lateDials is a hook that makes a lateConn of each connection.
type lateDials struct{ keeper }

func (*lateDials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if tcp, ok := conn.(*net.TCPConn); ok {
			conn = &lateConn{TCPConn: tcp}
		}
		return conn, err
	}
}

// A process that is so late that deadlines have passed before it looks at a connection sends its commands and reads the
// replies that wait. Otherwise it would take a Redis that answers at once for one that does not.
func TestLateReadsAndWrites(t *testing.T) {
	o := at(redistest.Start(t))
	o.MaxRetries = -1
	rdb := redis.NewClient(o)
	defer rdb.Close()
	redisstore.New(rdb)
	rdb.AddHook(new(lateDials))
	for range 3 { // the first makes a connection
		if err := take(t.Context(), rdb); err != nil {
			t.Error(err)
		}
	}
}

// dialCounter is a hook that counts connections.
type dialCounter struct {
	keeper

	dials atomic.Int32
}

func (c *dialCounter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c.dials.Add(1)
		return next(ctx, network, addr)
	}
}

// A server that hangs is given up at the deadline of one operation, although the process could not run: go-redis does
// not connect for another attempt.
func TestHangingServerOfABusyProcess(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(at(server))
	defer rdb.Close()
	counter := new(dialCounter)
	rdb.AddHook(counter)
	if err := take(t.Context(), rdb); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	wantClass(t, take(stalled(t, 50*time.Millisecond), rdb), redisstore.ClassTimeout, "slow")
	if n := counter.dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A dial has no deadline of its own, at which it would fail although the connection was made before; but it has one
// again when a server that has never answered leaves a call without an answer.
func TestDialsOfABusyProcess(t *testing.T) {
	var dials, withDeadline, soon atomic.Int32
	refused := true
	client := plain(t, &redis.Options{
		Addr: "127.0.0.1:1", MaxRetries: -1, PoolSize: 100,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials.Add(1)
			if end, ok := ctx.Deadline(); ok {
				withDeadline.Add(1)
				if time.Until(end) < time.Second { // a newer go-redis sets its DialTimeout, which is 5 s
					soon.Add(1)
				}
			}
			if refused {
				return nil, errRefused
			}
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
		},
	})
	ask := func() {
		if err := take(stalled(t, 50*time.Millisecond), client); err == nil {
			t.Error("no error")
		}
	}
	ask()
	refused = false
	ask()
	if dials.Load() == 0 || soon.Load() > 0 {
		t.Errorf("%d of %d dials have the deadline of their call", soon.Load(), dials.Load())
	}
	ask()
	if withDeadline.Load() == 0 {
		t.Error("a dial to a server that hangs has no deadline")
	}
}
