package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/internal/redisurl"
	"github.com/sashlimit/sash/examples/internal/watch"
)

const usage = "go run ./examples/service -rules examples/gateway/limits.yaml"

const hint = `Asked whether a request may be served, this answers by the rules of %[2]s.
Look at "allowed", and at "policy", which is the name of the rule:

  curl -i -d '{"method": "POST", "path": "/login", "ip": "192.0.2.1"}' http://%[1]s/check
`

func main() {
	file := flag.String("rules", "", "`FILE` of rules, such as examples/gateway/limits.yaml")
	listen := flag.String("listen", "localhost:8081", "`ADDRESS` to listen on, for proxies and backends only")
	flag.Parse()
	if *file == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "service: give it -rules FILE, as in", usage)
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*file, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file, listen string) error {
	signal.Ignore(syscall.SIGHUP) // until watch.Rules handles it, which loads the file in any case
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	store, err := redisurl.Store()
	if err != nil {
		return err
	}
	s, err := newService(file, core.WithStore(store))
	if err != nil {
		return err
	}
	go watch.Rules(ctx, s.set)
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return errors.Join(fmt.Errorf("-listen: %w", err), s.set.Close())
	}
	fmt.Printf(hint, strings.Replace(listener.Addr().String(), "[::]", "localhost", 1), file)
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
