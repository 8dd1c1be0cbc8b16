package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
)

func main() {
	file := flag.String("rules", "", "`FILE` of rules, such as examples/gateway/limits.yaml")
	listen := flag.String("listen", ":8081", "`ADDRESS` to listen on, which only proxies and backends may reach")
	flag.Parse()
	if *file == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "service: give it -rules FILE")
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*file, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file, listen string) error {
	signal.Ignore(syscall.SIGHUP) // until Watch handles it, which loads the file in any case
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	store := core.Store(core.NewMemoryStore())
	if address := os.Getenv("REDIS_URL"); address != "" {
		options, err := redis.ParseURL(address)
		if err != nil {
			return err
		}
		store = redisstore.New(redis.NewClient(options))
	}
	s, err := newService(file, core.WithStore(store))
	if err != nil {
		return err
	}
	go func() {
		if err := s.set.Watch(ctx); err != nil {
			slog.Error("the rules are not loaded again when they change", "error", err)
		}
	}()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return errors.Join(err, s.set.Close())
	}
	fmt.Printf("http://%s\n", listener.Addr())
	server := &http.Server{Handler: s, ReadTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = server.Shutdown(ctx)
	}
	return errors.Join(err, s.set.Close())
}
