package faults_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
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
)

const (
	busyFor    = 3 * time.Second
	healthy    = 50 * time.Millisecond // the slowest PING of a Redis that answers
	wholeShare = 0.6                   // of a processor, at least, for a process that other processes leave alone
	busyHanged = 10 * time.Second      // until the breaker of a store that hangs has opened, in a process that computes
)

// busySetups are processes that have too little CPU time.
var busySetups = map[string]struct {
	procs   int // GOMAXPROCS, or 0 for all
	callers int
	keys    int
	limit   core.Limit
	burn    time.Duration // what a caller computes after each decision
}{
	"repeated denials": {0, 256, 1, core.PerHour(5), 0},
	"a rolling second": {0, 256, 16, core.Limit{Quota: 1000, Window: time.Second}, 0},
	"handlers of 5 ms": {1, 64, 8, core.PerHour(20), 5 * time.Millisecond},
}

// A process that has no CPU time hardly ever takes its own slowness for an outage of Redis, also beside a Redis that
// hangs: it admits at most one unit in a hundred too many.
func TestBusyProcess(t *testing.T) {
	slow(t)
	server, hangs := redisserver.Start(t), redisserver.Start(t)
	hangs.Pause()
	for name := range busySetups {
		for _, failure := range []core.Failure{core.FailLocal, core.FailOpen, core.FailClosed} {
			t.Run(fmt.Sprint(name, " ", failure), func(t *testing.T) {
				worst := ping(t, server)
				out, share := busy(t, name, server.Addr(), hangs.Addr(), failure)
				var asked, degraded, most, quota int
				var opened time.Duration
				if n, err := fmt.Sscanf(out, "busy %d %d %d %d %d", &asked, &degraded, &most, &quota, &opened); n != 5 {
					t.Fatalf("%q: %v", out, err)
				}
				t.Logf("%d of %d degraded, %d of %d in a window, given up after %v, slowest PING %v, "+
					"%.2f of a processor", degraded, asked, most, quota, opened, worst(), share)
				if worst() > healthy || share < wholeShare {
					t.Skip("Redis itself was slow, or other processes had the CPU time: this machine is too busy")
				}
				if degraded*100 > asked || most*100 > quota*101 {
					t.Errorf("%d of %d degraded, %d of %d in a window", degraded, asked, most, quota)
				}
				if opened == 0 || opened > busyHanged {
					t.Errorf("the store that hangs was given up after %v", opened)
				}
			})
		}
	}
}

// ping measures the slowest PING until it is asked for it.
func ping(t *testing.T, server *redisserver.Server) (worst func() time.Duration) {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	var most atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			begun := time.Now()
			if rdb.Ping(context.Background()).Err() == nil {
				most.Store(max(most.Load(), int64(time.Since(begun))))
			}
			time.Sleep(time.Millisecond) // or else PING itself would take the CPU time of the process under test
		}
	})
	return func() time.Duration {
		cancel()
		done.Wait()
		rdb.Close()
		return time.Duration(most.Load())
	}
}

// busy runs one of busySetups as a process of its own, and returns what it prints, and its share of a processor.
func busy(t *testing.T, setup, addr, hangs string, failure core.Failure) (out string, share float64) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestRunBusyProcess$")
	args := []string{setup, addr, hangs, strconv.Itoa(int(failure))}
	c.Env = append(os.Environ(), "SASH_BUSY="+strings.Join(args, ","))
	c.Stderr = os.Stderr
	begun := time.Now()
	b, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	cpu := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	return string(b), cpu.Seconds() / time.Since(begun).Seconds()
}

func TestRunBusyProcess(t *testing.T) {
	args := strings.Split(os.Getenv("SASH_BUSY"), ",")
	if len(args) != 4 {
		return // only as a part of TestBusyProcess
	}
	s := busySetups[args[0]]
	if s.procs > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(s.procs))
	}
	failure, _ := strconv.Atoi(args[3])
	limiter := func(addr string) *core.Limiter {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		l, err := core.New(s.limit, core.ByText(), core.WithStore(redisstore.New(rdb)),
			core.WithName("busy-"+strconv.Itoa(s.limit.Quota)+args[3]), core.WithFailure(core.Failure(failure)))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	begun := time.Now()
	opened := make(chan time.Duration, 1)
	go func() {
		hanging := limiter(args[2])
		for hanging.Stats().Breaker == "closed" {
			hanging.Allow(context.Background(), "k")
		}
		opened <- time.Since(begun)
	}()
	l := limiter(args[1])
	var asked, degraded atomic.Int64
	spans := make([][]span, s.keys)
	var mu sync.Mutex
	var all sync.WaitGroup
	for caller := range s.callers {
		all.Go(func() {
			for n := caller; time.Since(begun) < busyFor; n++ {
				began := time.Now()
				d, err := l.Allow(context.Background(), strconv.Itoa(n%s.keys))
				asked.Add(1)
				if d.Degraded || err != nil {
					degraded.Add(1)
				}
				if d.Allowed {
					mu.Lock()
					spans[n%s.keys] = append(spans[n%s.keys], span{began, time.Now()})
					mu.Unlock()
				}
				if s.burn > 0 {
					compute(s.burn)
				}
			}
		})
	}
	all.Wait()
	given := time.Duration(0)
	select {
	case given = <-opened:
	case <-time.After(busyHanged):
	}
	most := 0
	for _, of := range spans {
		most = max(most, surely(of, s.limit.Window))
	}
	fmt.Println("busy", asked.Load(), degraded.Load(), most, s.limit.Quota, int64(given))
}

var sum atomic.Uint64

// compute takes about so much CPU time.
func compute(d time.Duration) {
	n := uint64(0)
	for range d / time.Nanosecond * 2 {
		n = n*31 + 1
	}
	sum.Store(n)
}

// surely returns how many of the spans are within one window, at most.
func surely(spans []span, window time.Duration) (most int) {
	for _, first := range spans {
		n, end := 0, first.began.Add(window)
		for _, s := range spans {
			if !s.began.Before(first.began) && !s.ended.After(end) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
