// Calls sends calls to an API that admits 5 a second. With REDIS_URL set, all processes together keep to that.
//
//	go run ./examples/calls -to https://api.example/v1/status -n 12
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/internal/redisurl"
	"github.com/sashlimit/sash/nethttp"
)

func main() {
	to := flag.String("to", "", "`URL` of the API; the default is one in this process")
	n := flag.Int("n", 12, "how many calls")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *to, *n)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string, n int) error {
	if url == "" {
		api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer api.Close()
		url = api.URL
	}
	store, err := redisurl.Store()
	if err != nil {
		return err
	}
	client, err := newClient(store)
	if err != nil {
		return err
	}
	begin := time.Now()
	for range n {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		w, err := client.Do(r)
		if err != nil {
			return err
		}
		w.Body.Close()
		fmt.Printf("%5d ms  status %d\n", time.Since(begin).Milliseconds(), w.StatusCode)
	}
	return nil
}

// newClient makes a client whose requests wait for a unit of the API's quota.
func newClient(store core.Store) (*http.Client, error) {
	// While Redis does not answer, no process knows what the others send, so none sends anything.
	limiter, err := core.New(core.PerSecond(5), core.ByText(), core.WithName("api.example"), core.WithStore(store),
		core.WithFailure(core.FailClosed), core.WithTimeout(5*time.Second), core.WithOverrides()) // to share pauses
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &nethttp.Transport{Limiter: limiter}, Timeout: time.Minute}, nil
}
