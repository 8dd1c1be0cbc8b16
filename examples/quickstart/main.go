// Quickstart serves with 5 requests per 10 seconds to each client, and prints
// each decision. With REDIS_URL set, several of it share one quota.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/nethttp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, os.Stdout, os.Getenv("PORT"), os.Getenv("REDIS_URL"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, out io.Writer, port, redisURL string) error {
	options := []core.Option{core.WithName("quickstart"), core.WithObserver(printTo(out))}
	where := "this process alone counts; set REDIS_URL=redis://localhost:6379 for several that share a quota"
	if redisURL != "" {
		store, err := connect(ctx, redisURL)
		if err != nil {
			return err
		}
		// The default timeout is 100 ms, which a busy laptop may exceed: then each process counts by itself.
		options = append(options, core.WithStore(store), core.WithTimeout(5*time.Second))
		where = "all processes on this Redis share the quota"
	}

	limit := core.Limit{Quota: 5, Window: 10 * time.Second}
	handler := nethttp.New(limit, core.ByIP(), options...)(http.HandlerFunc(hello))

	if port == "" {
		port = "8080"
	}
	listener, err := net.Listen("tcp", "localhost:"+port)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %s is taken: choose another, as in PORT=8081 go run ./examples/quickstart", port)
	}
	if err != nil {
		return fmt.Errorf("PORT=%s: %w", port, err)
	}
	url := "http://" + listener.Addr().String()
	fmt.Fprintf(out, `sash quickstart on %[1]s: each client may send 5 requests in any 10 seconds
(%[2]s)

Try it from another terminal:

  for i in 1 2 3 4 5 6 7; do curl -s -o /dev/null -w '%%{http_code}\n' %[1]s; done
  curl -i %[1]s

Each line is a decision:

`, url, where)

	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Hello!\n") }

// connect looks whether the server is there, only to tell a newcomer at once
// what is wrong: sash itself would start without it.
func connect(ctx context.Context, url string) (core.Store, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w; write it as redis://localhost:6379", err)
	}
	client := redis.NewClient(options)
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("no Redis answers at %s: %w", options.Addr, err)
	}
	return redisstore.New(client), nil
}

func printTo(out io.Writer) func(context.Context, core.Event) {
	return func(_ context.Context, e core.Event) {
		verdict := fmt.Sprintf("allowed, %d left", e.Decision.Remaining)
		switch {
		case e.Err != nil:
			verdict = e.Err.Error()
		case !e.Decision.Allowed:
			verdict = fmt.Sprintf("denied, free in %.1f s", e.Decision.RetryAfter.Seconds())
		}
		fmt.Fprintf(out, "%s  %-15s  %s\n", time.Now().Format(time.TimeOnly), e.Key, verdict)
	}
}
