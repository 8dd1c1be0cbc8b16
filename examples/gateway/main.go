// Gateway is a reverse proxy that limits requests by the rules of a file, in front of any service.
//
//	go run ./examples/gateway -rules examples/gateway/limits.yaml -to http://localhost:9000 -listen :8080
//
// With REDIS_URL set, several of it share what they have counted. A changed file is taken over at once, and on SIGHUP.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/examples/internal/redisurl"
	"github.com/sashlimit/sash/examples/internal/watch"
	"github.com/sashlimit/sash/nethttp"
)

const usage = "go run ./examples/gateway -rules examples/gateway/limits.yaml -to http://localhost:9000"

const hint = `http://%[1]s passes requests on to %[2]s. RateLimit-Policy names the limits of a request;
the answer is 429 when they are used up, and 502 if nothing serves %[2]s:

  curl -i http://%[1]s/
`

func main() {
	file := flag.String("rules", "", "`FILE` of rules, such as examples/gateway/limits.yaml")
	target := flag.String("to", "", "`URL` of the service behind this, such as http://localhost:9000")
	listen := flag.String("listen", ":8080", "`ADDRESS` to listen on")
	flag.Parse()
	to, err := url.Parse(*target)
	if *file == "" || err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "gateway: give it -rules FILE and -to URL, with http:// or https://, as in", usage)
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*file, to, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file string, to *url.URL, listen string) error {
	signal.Ignore(syscall.SIGHUP) // until watch.Rules handles it, which loads the file in any case
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	store, err := redisurl.Store()
	if err != nil {
		return err
	}
	set, err := rules.Load(file, rules.WithOptions(core.WithStore(store)))
	if err != nil {
		return err
	}
	go watch.Rules(ctx, set)
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return errors.Join(fmt.Errorf("-listen: %w", err), set.Close())
	}
	fmt.Printf(hint, strings.Replace(listener.Addr().String(), "[::]", "localhost", 1), to)
	return errors.Join(serve(ctx, listener, nethttp.Rules(set)(proxy(to))), set.Close())
}
