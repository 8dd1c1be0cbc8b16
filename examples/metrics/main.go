// Command metrics shows what there is to see of limiters. It serves requests, sends some to itself, and has metrics for
// Prometheus at /metrics. compose.yaml starts it with Redis, Prometheus and a dashboard in Grafana:
//
//	docker compose -f examples/metrics/compose.yaml up
//
// Without Docker, "go run ./examples/metrics" keeps the logs in memory, or in the Redis of REDIS_URL.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/prommetrics"
	"github.com/sashlimit/sash/examples/internal/redisurl"
	"github.com/sashlimit/sash/nethttp"
)

const hint = `%[1]s/metrics counts the requests that this program sends to itself, and yours.
The last 5 of 35 get 429, and are counted with outcome="denied",policy="login":
  for i in $(seq 35); do curl -s -o /dev/null -w '%%{http_code}\n' -H 'X-Customer: me' %[1]s/login; done
  curl -s %[1]s/metrics | grep sash_decisions_total
`

func main() {
	handler, err := newHandler(prometheus.NewRegistry())
	if err != nil {
		log.Fatal(err)
	}
	host := cmp.Or(os.Getenv("HOST"), "127.0.0.1")
	listener, err := net.Listen("tcp", net.JoinHostPort(host, cmp.Or(os.Getenv("PORT"), "8080")))
	if err != nil {
		log.Fatal(err, "; set PORT to choose another one")
	}
	url := fmt.Sprintf("http://127.0.0.1:%d", listener.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // it is TCP
	fmt.Printf(hint, url)
	go traffic(url)
	log.Fatal(http.Serve(listener, handler)) //nolint:gosec // an example without timeouts
}

// newHandler makes two routes with a limiter each, and one for Prometheus, which only Prometheus should reach in yours.
func newHandler(registry *prometheus.Registry) (http.Handler, error) {
	store, err := redisurl.Store()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	var limiters []*core.Limiter
	for name, limits := range map[string]core.Limits{
		"api":   {core.PerSecond(20), core.PerMinute(600)},
		"login": {core.PerMinute(30), core.InFlight(4)},
	} {
		opts := []core.Option{
			core.WithName(name), core.WithStore(store), core.WithObserver(prommetrics.Observer(registry)),
			core.WithStoreObserver(prommetrics.StoreObserver(registry)),
		}
		if name == "login" {
			opts = append(opts, core.WithShadow(core.PerMinute(2))) // would that be enough?
		}
		limiter, err := core.New(limits, core.ByHeader("X-Customer", core.Unverified), opts...)
		if err != nil {
			return nil, err
		}
		limiters = append(limiters, limiter)
		mux.Handle("/"+name, nethttp.From(limiter)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "served")
		})))
	}
	registry.MustRegister(prommetrics.Collector(limiters...))
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux, nil
}
