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

// dial is a hook that remembers the latest dial of a client that has failed. So a server that refuses connections is
// told from one that hangs: from 9.15 on, go-redis dials again for longer than callers wait.
type dial struct {
	mu     sync.Mutex
	err    error
	addr   string
	failed time.Time
}

// recentDial is for how long a failed dial is the reason why calls time out. A pool that cannot connect dials once a
// second.
const recentDial = 2 * time.Second

// dials has the dial of each client that is in use, by its address.
var dials sync.Map

// watch returns the dial of a client, which it adds to the client's hooks at the first time: clients that are in use
// cannot be given hooks. So those of a Ring have none, as it pings its shards from the beginning.
func watch[C any](client *C, addHook func(redis.Hook)) *dial {
	address := reflect.ValueOf(client).Pointer()
	found, known := dials.LoadOrStore(address, new(dial))
	d, _ := found.(*dial)
	if !known {
		runtime.AddCleanup(client, func(address uintptr) { dials.Delete(address) }, address)
		addHook(d)
	}
	return d
}

// DialHook notes how a dial ends.
func (d *dial) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		d.mu.Lock()
		defer d.mu.Unlock()
		if err != nil || addr == d.addr {
			d.err, d.addr, d.failed = err, addr, time.Now()
		}
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
	if d.err != nil && time.Since(d.failed) < recentDial {
		return d.err
	}
	return err
}
