package redisclient

import (
	"context"
	"errors"
	"net"
	"os"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/internal/deadline"
)

// From go-redis 9.15 on, a pool that cannot connect dials again: five times, 100 ms apart (Options.DialerRetries),
// which is longer than a decision may take. A pool has its settings from the client that made it, so the store's
// clone cannot change them. Instead, a hook of the client is told how each dial ends, and the first failure ends the
// calls that wait for a connection.

// Redials reports whether this go-redis dials again after a failure.
var Redials = func() bool {
	_, has := reflect.TypeFor[redis.Options]().FieldByName("DialerRetries")
	return has
}()

// dialWatch is a hook of one client. When a dial fails, it ends the store's calls that wait for a connection.
type dialWatch struct {
	client weak.Pointer[byte]
	node   bool // whether the client is a node of a cluster or Ring, which itself runs the store's calls

	mu      sync.Mutex
	calls   uint64              // how many have waited so far
	waiting map[*dialCtx]uint64 // calls by their number
	last    error               // of the latest dial
	ended   time.Time           // when the latest dial ended

	silence silence

	adding sync.Mutex                 // guards adding a clientHook
	hook   atomic.Pointer[clientHook] // the newest of the client, if its clones keep no hooks
}

// recentDial is how long a failed dial is the reason why calls time out. A pool that cannot connect dials once a
// second.
const recentDial = 2 * time.Second

// dialWatches has the dialWatch of each client that has one. watchedNodes has the clusters and Rings whose nodes have
// one.
var dialWatches, watchedNodes sync.Map

// watchDials returns the client's watch.
func watchDials(client *redis.Client, node bool) *dialWatch {
	added := &dialWatch{client: weak.Make(startOf(client)), node: node, waiting: map[*dialCtx]uint64{}}
	known, first := storeOnce(&dialWatches, client, added)
	w, _ := known.(*dialWatch)
	if first {
		client.AddHook(w)
	}
	return w
}

// storeOnce stores a value for a client, unless there is one, for as long as the client is in use. It returns the
// stored value, and reports whether it is this one.
func storeOnce(values *sync.Map, client, value any) (kept any, first bool) {
	start := startOf(client)
	key := weak.Make(start)
	kept, has := values.LoadOrStore(key, value)
	if !has {
		runtime.AddCleanup(start, func(key weak.Pointer[byte]) { values.Delete(key) }, key)
	}
	return kept, !has
}

// startOf returns the client without its type: for each type of client with which package weak was used, the compiler
// would make a thousand functions, which made this package take four times as long to compile.
func startOf(client any) *byte { return (*byte)(reflect.ValueOf(client).UnsafePointer()) }

// dialling is the context of a dial, which ends but has no deadline.
type dialling struct{ context.Context }

func (dialling) Deadline() (end time.Time, ok bool) { return end, false }

// DialHook notes how a dial ends, and does not change it unless the client is closed: its pool would go on dialling for
// up to five times the DialTimeout. Unless the server hangs, a dial of the store ends when its context does: at the
// deadline itself a net.Dialer would fail even if the connection was made before, and this process could not run.
func (w *dialWatch) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if one, ok := deadline.ForOne(ctx); ok && !w.silence.hangs() {
			ctx = dialling{one}
		}
		if !Redials {
			return patient(next(ctx, network, addr))
		}
		w.mu.Lock()
		before, again := w.calls, w.last != nil
		w.mu.Unlock()
		if again && w.closed() {
			w.dialEnded(before, redis.ErrClosed)
			return nil, redis.ErrClosed
		}
		conn, err := next(ctx, network, addr)
		if err == nil || ctx.Err() == nil { // a canceled dial tells nothing about the server
			w.dialEnded(before, err)
		}
		return patient(conn, err)
	}
}

// patientConn tries once more what has timed out. Where this process cannot run, deadlines pass before a command is
// sent, and while its reply waits in the socket: a connection looks at the clock first.
type patientConn struct{ net.Conn }

// oneLook is for how long a patientConn tries once more.
const oneLook = time.Millisecond

// patient makes the connection of a dial a patientConn.
func patient(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return conn, err
	}
	if raw, ok := conn.(syscall.Conn); ok { // go-redis looks whether it is still open
		return struct {
			patientConn
			syscall.Conn
		}{patientConn{conn}, raw}, nil
	}
	return patientConn{conn}, nil
}

func (c patientConn) Read(b []byte) (n int, err error) {
	if n, err = c.Conn.Read(b); errors.Is(err, os.ErrDeadlineExceeded) {
		c.SetReadDeadline(time.Now().Add(oneLook)) //nolint:errcheck // Read fails as well
		n, err = c.Conn.Read(b)
	}
	return n, err
}

func (c patientConn) Write(b []byte) (n int, err error) {
	if n, err = c.Conn.Write(b); n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		c.SetWriteDeadline(time.Now().Add(oneLook)) //nolint:errcheck // as above
		n, err = c.Conn.Write(b)
	}
	return n, err
}

// NetConn lets go-redis 9.23 find the socket below TLS.
func (c patientConn) NetConn() net.Conn { return c.Conn }

// closed reports whether the client is closed. It sends a command with a context that has ended, because a closed pool
// returns its error before it looks at the context. The command goes through a clone without the user's hooks and
// Limiter. If clones keep hooks, closed returns false.
func (w *dialWatch) closed() bool {
	client := (*redis.Client)(unsafe.Pointer(w.client.Value())) //nolint:gosec // it was made of one
	if client == nil || ClonesKeepHooks() {
		return false
	}
	clone := client.WithTimeout(0)
	clone.Options().Limiter = nil
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return errors.Is(clone.Ping(ctx).Err(), redis.ErrClosed)
}

// ProcessHook ends a call of the store when the dial fails that the call waits for.
func (w *dialWatch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if !w.node {
		return next
	}
	return func(ctx context.Context, cmd redis.Cmder) error {
		return w.run(ctx, func(ctx context.Context) error { return next(ctx, cmd) }, cmd)
	}
}

// ProcessPipelineHook does the same for several commands.
func (w *dialWatch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if !w.node {
		return next
	}
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return w.run(ctx, func(ctx context.Context) error { return next(ctx, cmds) }, cmds...)
	}
}

func (w *dialWatch) run(ctx context.Context, send func(context.Context) error, cmds ...redis.Cmder) error {
	if ctx.Value(isStoreCtx{}) == nil {
		return send(ctx)
	}
	c := &dialCtx{Context: ctx, watch: w}
	defer c.release()
	return c.dialError(send(c), cmds...)
}

// isStoreCtx is the key of a value that the contexts of the store's calls on clusters and Rings have. It tells the hook
// of a node that a call is the store's.
type isStoreCtx struct{}

// dialEnded notes the result of a dial. If the dial has failed, dialEnded ends the calls that were waiting when it
// began, which are the first ones up to the number before.
func (w *dialWatch) dialEnded(before uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last, w.ended = err, time.Now(); err == nil {
		return
	}
	for c, number := range w.waiting {
		if number <= before {
			delete(w.waiting, c)
			c.end(err)
		}
	}
}

// reason returns why a call has not ended in time: the error of a recent dial, or err.
func (w *dialWatch) reason(err error) error {
	if w == nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil && time.Since(w.ended) < recentDial {
		return w.last
	}
	return err
}

// dialCtx is the context of one call. It ends with its parent, or when a dial fails that the call waits for.
//
// A pool calls Done once before it looks for an idle connection, and again only if it has to wait or to dial. So the
// first Done returns the parent's channel, and a call on an open connection needs no channel of its own. Since a
// context should return the same channel each time, this one is passed to go-redis only: behind all hooks of the
// client, if its clones do not keep them.
type dialCtx struct {
	context.Context

	watch *dialWatch

	mu     sync.Mutex
	asked  bool          // whether Done was called
	done   chan struct{} // what the second and later calls of Done return
	closed bool          // whether done is
	stop   func() bool   // stops watching the parent
	cause  error         // the error of the dial that has failed
	until  time.Time     // the deadline of the latest operation on a connection
}

func (c *dialCtx) Done() <-chan struct{} {
	c.mu.Lock()
	if c.timedOut() {
		c.mu.Unlock()
		return ended
	}
	if !c.asked || !Redials {
		c.asked = true
		c.mu.Unlock()
		return c.Context.Done()
	}
	added := c.done == nil
	if added {
		c.done = make(chan struct{})
		c.stop = context.AfterFunc(c.Context, func() { c.end(nil) })
	}
	done := c.done
	c.mu.Unlock()
	if w := c.watch; added {
		w.mu.Lock()
		w.calls++
		w.waiting[c] = w.calls
		w.mu.Unlock()
	}
	return done
}

func (c *dialCtx) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.cause != nil:
		return context.Canceled
	case c.timedOut():
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// Deadline is called before each operation on a connection.
func (c *dialCtx) Deadline() (time.Time, bool) {
	end, ok := c.Context.Deadline()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = end
	return end, ok
}

// timedOut reports whether an operation has timed out. The context then ends, although a [deadline.Context] may last
// longer: otherwise go-redis would repeat the command.
func (c *dialCtx) timedOut() bool { return !c.until.IsZero() && !time.Now().Before(c.until) }

var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// end ends the context, with a cause if a dial has failed.
func (c *dialCtx) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed, c.cause = true, cause
		close(c.done)
	}
}

// process runs a command, whether the client's dials are watched or not.
func (c *dialCtx) process(ctx context.Context, client *redis.Client, cmd redis.Cmder) error {
	c.Context = ctx
	defer c.release()
	err := client.Process(c, cmd)
	c.mu.Lock()
	until := c.until
	c.mu.Unlock()
	c.watch.silence.note(err, until)
	return c.dialError(err, cmd)
}

// dialError replaces the errors of commands that a failed dial has ended by the error of the dial.
func (c *dialCtx) dialError(err error, cmds ...redis.Cmder) error {
	c.mu.Lock()
	cause := c.cause
	c.mu.Unlock()
	if cause == nil {
		return err
	}
	for _, cmd := range cmds {
		if errors.Is(cmd.Err(), context.Canceled) {
			cmd.SetErr(cause)
		}
	}
	if errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// release frees what waits for the parent or for a dial.
func (c *dialCtx) release() {
	c.mu.Lock()
	stop := c.stop
	c.mu.Unlock()
	if stop != nil {
		stop()
		c.watch.mu.Lock()
		defer c.watch.mu.Unlock()
		delete(c.watch.waiting, c)
	}
}
