// Cluster runs a Redis Cluster of three nodes on this machine, kills one, starts it again, and shows what the
// clients of a server with a limit see meanwhile. It needs redis-server on PATH, and stops all that it has started.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/nethttp"
)

// clients have their logs on the first, second and third node.
var clients = []string{"bob", "dan", "kim"}

func main() {
	// An operator would want these logs: sash's tells of the outage and its remedy, newer versions of go-redis log
	// each failed dial.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	redis.SetLogger(discard{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := show(ctx, os.Stdout)
	if ctx.Err() != nil {
		err = errors.New("interrupted; all nodes are stopped")
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// discard is a logger for go-redis that writes nothing.
type discard struct{}

func (discard) Printf(context.Context, string, ...any) {}

func show(ctx context.Context, out io.Writer) error {
	nodes, err := startCluster(ctx)
	defer nodes.stop()
	if err != nil {
		return err
	}

	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.addrs()})
	defer rdb.Close()
	s := site{out: out}
	limiter, err := core.NewFor[*http.Request](core.PerMinute(10),
		core.ByHeader("X-Client", core.Unverified), // to be believed only in a demonstration
		core.WithName("cluster"),
		core.WithStore(redisstore.New(rdb)),
		core.WithTimeout(5*time.Second), // of a busy machine; without it 100 ms
		core.WithObserver(func(_ context.Context, e core.Event) {
			if e.Decision.Degraded {
				s.alone.Add(1)
			}
		}),
	)
	if err != nil {
		return err
	}
	defer limiter.Close()
	if err := s.open(nethttp.From(limiter)); err != nil {
		return err
	}
	defer s.server.Close()

	fmt.Fprintf(out, "A Redis Cluster on ports %v. Each client may send 10 requests in any minute.\n", nodes.ports())

	fmt.Fprint(out, "\nAll nodes are up. Each client sends 4 requests:\n")
	if err := s.send(ctx, 4); err != nil {
		return err
	}

	nodes[1].kill()
	fmt.Fprint(out, "\nNode 2 is killed. Each client sends 8 more:\n")
	if err := s.send(ctx, 8); err != nil {
		return err
	}
	fmt.Fprint(out, `Redis still counts bob and kim. The server counts dan by itself until his node is back,
from nothing, since it cannot see what he had used before.
`)

	killed := time.Now()
	if err := nodes[1].start(); err != nil {
		return err
	}
	for back := false; !back; {
		d, err := limiter.Peek(ctx, "dan")
		back = err == nil && !d.Degraded
		if !back && time.Since(killed) > 30*time.Second {
			return errors.New("node 2 does not come back")
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "\nNode 2 is started again, and %.1f s later Redis counts dan: what the server has admitted\n"+
		"is in his log now, and counts against his 10. Each client sends 4 more:\n", time.Since(killed).Seconds())
	return s.send(ctx, 4)
}

// site is a server with a limit, and its clients.
type site struct {
	out    io.Writer
	server http.Server
	url    string
	alone  atomic.Int64 // requests that were decided without Redis
}

func (s *site) open(limit func(http.Handler) http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.url = "http://" + listener.Addr().String()
	hello := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Hello!\n") }
	s.server.Handler = limit(http.HandlerFunc(hello))
	s.server.ReadHeaderTimeout = 5 * time.Second
	go s.server.Serve(listener) //nolint:errcheck // it ends when it is closed
	return nil
}

// send sends so many requests of each client, in turn, and prints what became of them.
func (s *site) send(ctx context.Context, n int) error {
	var allowed, denied, alone [3]int
	for range n {
		for i, name := range clients {
			before := s.alone.Load()
			status, err := s.get(ctx, name)
			switch {
			case err != nil:
				return err
			case status == http.StatusOK:
				allowed[i]++
			case status == http.StatusTooManyRequests:
				denied[i]++
			default:
				return fmt.Errorf("status %d", status)
			}
			alone[i] += int(s.alone.Load() - before)
		}
	}
	for i, name := range clients {
		fmt.Fprintf(s.out, "  %s, on node %d:  %d allowed, %d denied", name, i+1, allowed[i], denied[i])
		if alone[i] > 0 {
			fmt.Fprintf(s.out, "  (%d decided without Redis)", alone[i])
		}
		fmt.Fprintln(s.out)
	}
	return nil
}

func (s *site) get(ctx context.Context, name string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("X-Client", name)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer w.Body.Close()
	_, err = io.Copy(io.Discard, w.Body)
	return w.StatusCode, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
