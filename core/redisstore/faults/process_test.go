package faults_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/nethttp"
)

// A request whose client hangs up is counted, and is not let through because of that.
func TestClientsVanish(t *testing.T) {
	const clients = 500
	server := redisserver.Start(t)
	for _, c := range []struct {
		how     string
		failure core.Failure
		timeout time.Duration // a busy machine must not look like a store that is away
		hangs   bool
	}{
		{"500 send a request and hang up, FailOpen", core.FailOpen, time.Minute, false},
		{"the same with a store that hangs, FailLocal", core.FailLocal, timeout, true},
	} {
		func() {
			r := begin(t, "clients vanish", c.how)
			defer r.end()
			var handled, decided, degraded atomic.Int64
			opts := []core.Option{
				core.WithName(strings.ToLower(c.failure.String())),
				core.WithStore(redisstore.New(r.client(&redis.Options{Addr: server.Addr()}))),
				core.WithFailure(c.failure), core.WithTimeout(c.timeout), core.WithDenyCache(0),
				core.WithObserver(func(_ context.Context, e core.Event) {
					decided.Add(1)
					if e.Decision.Degraded {
						degraded.Add(1)
					}
				}),
			}
			l, err := core.NewFor[*http.Request](core.PerHour(5), core.Global(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			r.closers = append(r.closers, l.Close)
			count := func(http.ResponseWriter, *http.Request) { handled.Add(1) }
			web := httptest.NewServer(nethttp.From(l)(http.HandlerFunc(count)))
			r.closers = append(r.closers, func() error { web.Close(); return nil })
			if c.hangs {
				r.inject(server.Pause)
			}
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					conn, err := net.Dial("tcp", web.Listener.Addr().String())
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close() // at once
					fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: sash\r\n\r\n")
				})
			}
			wg.Wait()
			if !eventually(30*time.Second, func() bool { return decided.Load() == clients }) {
				r.errorf("%d requests decided of %d", decided.Load(), clients)
			}
			r.all.asked, r.all.degraded = clients, int(degraded.Load())
			if want := map[bool]int64{true: clients}[c.hangs]; degraded.Load() != want {
				r.errorf("%d decisions without the store, want %d", degraded.Load(), want)
			}
			web.Close() // which waits for the handlers
			r.exactly("", int(handled.Load()), 5)
			if c.hangs {
				server.Resume()
			}
		}()
	}
}

// A limiter that is closed has left nothing behind, whether its store was there or not.
func TestThousandLimiters(t *testing.T) {
	server := redisserver.Start(t)
	r := begin(t, "1,000 limiters", "New, use, Close; half of them without a store")
	defer r.end()
	l := r.limiter(core.PerHour(1), r.client(&redis.Options{Addr: server.Addr()})) // so that all is there that stays
	r.burst(l, "k", 1)
	files := openFiles()
	r.inject(func() {})
	var wg sync.WaitGroup
	for part := range 50 { // since go-redis tries for some time to reach a server that is not there
		wg.Go(func() {
			for i := part; i < 1000; i += 50 {
				addr := server.Addr()
				if i%2 == 1 {
					addr = "127.0.0.1:1"
				}
				rdb := redis.NewClient(&redis.Options{Addr: addr})
				l, err := core.New(core.PerHour(2), core.ByText(),
					core.WithName("thousand"), core.WithStore(redisstore.New(rdb)), longTimeout)
				if err != nil {
					t.Error(err)
					return
				}
				of := r.burst(l, strconv.Itoa(i), 3)
				if of.admitted != 2 || of.degraded != 3*(i%2) {
					t.Errorf("limiter %d: %d admitted, %d degraded", i, of.admitted, of.degraded)
				}
				l.Close()
				rdb.Close()
			}
		})
	}
	wg.Wait()
	r.over()
	if !eventually(10*time.Second, func() bool { return openFiles() <= files }) {
		r.errorf("%d files are open, %d before", openFiles(), files)
	}
	r.tellf("open files %d, %d", files, openFiles())
}

// openFiles is 0 where the system does not tell.
func openFiles() int {
	files, _ := os.ReadDir("/proc/self/fd")
	return len(files)
}

// A client that is denied and goes on at full speed causes next to no load on the server.
func TestDenialFlood(t *testing.T) {
	server := redisserver.Start(t)
	r := begin(t, "denial flood", "one key, as fast as the process can")
	defer r.end()
	l, err := core.New(core.PerHour(5), core.ByText(),
		core.WithStore(redisstore.New(r.client(&redis.Options{Addr: server.Addr()}))), longTimeout)
	if err != nil {
		t.Fatal(err)
	}
	r.closers = append(r.closers, l.Close)
	r.burst(l, "k", 6)
	calls := func() (n int) {
		for line := range strings.Lines(do(t, server, "INFO", "commandstats").(string)) {
			var calls int
			if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &calls); err == nil {
				n += calls
			}
		}
		return n
	}
	before := calls()
	began := time.Now()
	const lasts = 3 * time.Second
	var denials atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for time.Since(began) < lasts {
				for range 100 {
					if d, err := l.Allow(context.Background(), "k"); err != nil || d.Allowed || d.Degraded {
						t.Error(d, err)
						return
					}
				}
				denials.Add(100)
			}
		})
	}
	wg.Wait()
	asked := float64(calls()-before) / time.Since(began).Seconds()
	r.tellf("%.1f store calls/s, %.0f denials/s", asked, float64(denials.Load())/time.Since(began).Seconds())
	if asked > 2 {
		r.errorf("%.1f store calls a second", asked)
	}
}

// What an outage has recorded of one key may be more than the store takes in the time of one decision.
func TestLargeOutage(t *testing.T) {
	slow(t)
	const units = 50_000
	server := redisserver.Start(t)
	r := begin(t, "large outage", fmt.Sprintf("kill -9; %d units of one key", units))
	r.within = time.Minute // to bring them all
	defer r.end()
	l := r.limiter(core.PerHour(100_000), r.client(&redis.Options{Addr: server.Addr()}))
	r.inject(server.Kill)
	before := r.burst(l, "k", units)
	r.degraded(before, true)
	wait := r.stream(l, 50, 4*time.Second, only("k"))
	r.lift(l, "k", server.Restart)
	during := wait()
	r.exactly("", before.admitted+during.admitted, units+during.asked)
	r.logged(l, "k", units+during.asked)
}
