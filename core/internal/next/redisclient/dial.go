package redisclient

import (
	"context"
	"errors"
	"net"
	"reflect"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// From go-redis 9.15 on, a pool that cannot connect dials again: five times, 100 ms apart, which is longer than callers
// wait. So a hook remembers how the latest dial of a client ended: that a server refuses connections is told from
// silence.
type dial struct {
	mu    sync.Mutex
	err   error
	ended time.Time
}

// recentDial is for how long a failed dial is the reason why calls time out. A pool that cannot connect dials once a
// second.
const recentDial = 2 * time.Second

// dials has the dial of each client that has one, by its address, and true for clusters and Rings.
var dials sync.Map

// watch returns the dial of a client. It adds the hook at the first time.
func watch(client *redis.Client) *dial {
	d := new(dial)
	if first(client, d) {
		client.AddHook(d)
	}
	return watched(client)
}

// watched returns the dial of a client, or nil.
func watched(client *redis.Client) *dial {
	found, _ := dials.Load(reflect.ValueOf(client).Pointer())
	d, _ := found.(*dial)
	return d
}

// watchNodes has a cluster or Ring watch the clients that it makes.
func watchNodes[C any](client *C, onNewNode func(func(*redis.Client))) {
	if first(client, true) {
		onNewNode(func(node *redis.Client) { watch(node) })
	}
}

// first stores a value for a client, for as long as this is in use, and reports whether there was none.
func first[C any](client *C, value any) bool {
	address := reflect.ValueOf(client).Pointer()
	_, has := dials.LoadOrStore(address, value)
	if !has {
		runtime.AddCleanup(client, func(address uintptr) { dials.Delete(address) }, address)
	}
	return !has
}

// DialHook notes how a dial ends.
func (d *dial) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		d.mu.Lock()
		d.err, d.ended = err, time.Now()
		d.mu.Unlock()
		return conn, err
	}
}

// ProcessHook changes nothing, and so does ProcessPipelineHook.
func (*dial) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (*dial) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// reason returns why a call had no answer in time: the error of a recent dial, or err.
func (d *dial) reason(err error) error {
	if d == nil || errors.Is(err, context.Canceled) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil && time.Since(d.ended) < recentDial {
		return d.err
	}
	return err
}
