package redisstore_test

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
)

// errRefused is what a dialer returns where no server listens.
var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// takeWithin takes with a deadline, as a limiter does.
func takeWithin(t *testing.T, limit time.Duration, client redisstore.Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return take(ctx, client)
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// A take ends with the first failed dial, even if the pool dials again: go-redis does so from 9.15 on, four times.
func TestTakeEndsWithTheFirstFailedDial(t *testing.T) {
	for _, c := range []struct {
		name   string
		client func(dial dialer) redisstore.Client
	}{
		{"client", func(dial dialer) redisstore.Client {
			return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: dial, MaxRetries: -1})
		}},
		{"cluster", func(dial dialer) redisstore.Client {
			return redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{"127.0.0.1:1"}, Dialer: dial, MaxRedirects: -1,
			})
		}},
		{"Ring", func(dial dialer) redisstore.Client {
			return redis.NewRing(&redis.RingOptions{
				Addrs: map[string]string{"a": "127.0.0.1:1"}, Dialer: dial, MaxRetries: -1,
				HeartbeatFrequency: time.Hour,
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var dials atomic.Int32
			ended := make(chan struct{})
			client := c.client(func(context.Context, string, string) (net.Conn, error) {
				if dials.Add(1) > 1 {
					<-ended // until the take has returned
				}
				return nil, errRefused
			})
			err := takeWithin(t, 10*time.Second, client)
			close(ended)
			client.(io.Closer).Close()
			wantClass(t, err, redisstore.ClassRefused, "start the server")
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%v is not the dialer's error", err)
			}
		})
	}
}

// A refused connection is reported as such at once, at the start and after the loss of a connection.
func TestRefusedIsNoTimeout(t *testing.T) {
	server := redistest.Start(t)
	o := at(server)
	o.PoolSize = 100 // after so many failures a pool does not dial for a second
	used := redis.NewClient(o)
	defer used.Close()
	if err := takeWithin(t, time.Minute, used); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	unused := redis.NewClient(o)
	defer unused.Close()
	for _, client := range []*redis.Client{unused, used} {
		fastest := time.Hour
		for range 5 {
			began := time.Now()
			wantClass(t, takeWithin(t, 10*time.Second, client), redisstore.ClassRefused, "start the server")
			fastest = min(fastest, time.Since(began))
		}
		t.Logf("the fastest of 5 took %v", fastest)
		if fastest > 50*time.Millisecond { // one further dial would take 100 ms
			t.Errorf("the fastest of 5 took %v", fastest)
		}
	}
}

// A dial that hangs is a timeout, and not a refused connection.
func TestHangingDialIsTimeout(t *testing.T) {
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	rdb := plain(t, &redis.Options{Addr: "127.0.0.1:1", Dialer: hang})
	wantClass(t, takeWithin(t, 50*time.Millisecond, rdb), redisstore.ClassTimeout, "slow")
}

// A take ends in time whatever its client is set to, and whatever functions the client has.
func TestTakeEndsInTimeWithAnyClient(t *testing.T) {
	server, paused := redistest.Start(t), redistest.Start(t)
	paused.Pause()
	defer paused.Resume()
	hung := make(chan struct{})
	ended := make(chan error, 3)
	clients := map[string]redis.UniversalClient{
		"without deadlines": redis.NewClient(&redis.Options{Addr: paused.Addr(), ReadTimeout: -2}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{server.Addr()}, ContextTimeoutEnabled: true, MaxRedirects: -1,
			CredentialsProvider: func() (user, password string) { <-hung; return "", "" },
		}),
		"Ring": redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": server.Addr()}, ContextTimeoutEnabled: true, HeartbeatFrequency: time.Hour,
			NewClient: func(o *redis.Options) *redis.Client {
				o.OnConnect = func(context.Context, *redis.Conn) error { <-hung; return nil }
				return redis.NewClient(o)
			},
		}),
	}
	for name, client := range clients {
		go func() { ended <- takeWithin(t, 50*time.Millisecond, client) }()
		select {
		case err := <-ended:
			wantClass(t, err, redisstore.ClassTimeout, "slow")
		case <-time.After(10 * time.Second):
			t.Errorf("%s: a take with 50ms has not ended", name)
		}
	}
	close(hung)
	for _, client := range clients {
		client.Close()
	}
}

// Commands of the user's own are dialled for as often as the client is set to.
func TestOtherCommandsAreDialledForAgain(t *testing.T) {
	if _, has := reflect.TypeFor[redis.Options]().FieldByName("DialerRetries"); !has {
		t.Skip("this go-redis dials once")
	}
	server := redistest.Start(t)
	var dials atomic.Int32
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			return nil, errRefused
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	rdb := plain(t, &redis.Options{Addr: server.Addr(), Dialer: dial})
	redisstore.New(rdb)
	if err := rdb.Ping(t.Context()).Err(); err != nil || dials.Load() != 2 {
		t.Errorf("%d dials, %v", dials.Load(), err)
	}
}

// A client that is closed while it dials does not dial again.
func TestClosedClientDialsNoMore(t *testing.T) {
	if redisstore.DialsAfterClose() {
		t.Skip("this go-redis dials again, and its clones keep hooks")
	}
	var dials atomic.Int32
	dialling, closed := make(chan struct{}), make(chan struct{})
	dial := func(context.Context, string, string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			close(dialling)
		}
		<-closed
		return nil, errRefused
	}
	rdb := plain(t, &redis.Options{Addr: "127.0.0.1:1", Dialer: dial})
	failed := make(chan error, 1)
	go func() { failed <- takeWithin(t, time.Minute, rdb) }()
	<-dialling
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	close(closed)
	wantClass(t, <-failed, redisstore.ClassRefused, "start the server")
	for end := time.Now().Add(30 * time.Second); len(stacks("pool.(*ConnPool)")) > 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("the pool still dials:\n%s", stacks("pool.(*ConnPool)")[0])
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d dials", n)
	}
}

// stacks are the goroutines of which the stack has any of these texts.
func stacks(texts ...string) (found []string) {
	all := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(stack, text) }) {
			found = append(found, stack)
		}
	}
	return found
}

// A client that is closed leaves no goroutine of the store, and those of go-redis that dial end by themselves.
func TestNothingDialsAfterClose(t *testing.T) {
	const (
		ours   = "created by github.com/sashlimit/sash/core/redisstore."
		waits  = "context.(*cancelCtx).propagateCancel"
		theirs = "go-redis/v9"
	)
	before := len(stacks(ours, waits, theirs))
	server := redistest.Start(t)
	server.Kill()
	for range 20 {
		rdb := redis.NewClient(at(server))
		l := newLimiter(t, core.PerMinute(5), redisstore.New(rdb))
		for range 3 {
			_, err := l.Allow(t.Context(), "k")
			wantClass(t, err, redisstore.ClassRefused, "start the server")
		}
		l.Close()
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	}
	for end := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		left := stacks(ours, waits, theirs)
		if len(left) <= before {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before:\n%s", len(left), before, left[0])
		}
	}
}
