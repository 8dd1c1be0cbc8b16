package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
	"github.com/sashlimit/sash/nethttp"
)

// process starts a test of this file as a process of its own, which the environment tells its Redis. It ends when its
// input does.
func process(t *testing.T, test, env string) (c *exec.Cmd, out *bufio.Reader) {
	t.Helper()
	c = exec.Command(os.Args[0], "-test.run=^"+test+"$")
	c.Env, c.Stderr = append(os.Environ(), env), os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		c.Process.Kill()
		c.Wait()
	})
	return c, bufio.NewReader(stdout)
}

const (
	servingSlots    = 10
	servingCallers  = 100 // of each process
	servingRequests = 10  // of each caller
)

// Two processes serve 200 requests at a time. A counter in the handlers, which both share, never exceeds the slots.
func TestSlotsOverTwoProcesses(t *testing.T) {
	rdb := start(t)
	var outputs []*bufio.Reader
	for range 2 {
		_, out := process(t, "TestServingProcess", "SASH_SERVING_REDIS="+rdb.Options().Addr)
		outputs = append(outputs, out)
	}
	served, most := 0, 0
	for i, out := range outputs {
		line, err := out.ReadString('\n')
		var ownServed, ownMost, denied int
		if n, _ := fmt.Sscanf(line, "served %d, %d at a time, denied %d", &ownServed, &ownMost, &denied); n != 3 {
			t.Fatalf("process %d: %q, %v", i, line, err)
		}
		if denied == 0 {
			t.Errorf("process %d was denied nothing, so this shows nothing", i)
		}
		served, most = served+ownServed, max(most, ownMost)
		t.Logf("process %d: %s", i, line)
	}
	if most > servingSlots || served != 2*servingCallers*servingRequests {
		t.Errorf("%d at a time and %d served, want %d at most and %d",
			most, served, servingSlots, 2*servingCallers*servingRequests)
	}
	if keys := rdb.Keys(t.Context(), "*:f:*").Val(); len(keys) > 0 {
		t.Errorf("slots are left in %s", strings.Join(keys, ", "))
	}
	rdb.Del(t.Context(), "running") // the only key without a TTL
}

func TestServingProcess(t *testing.T) {
	addr := os.Getenv("SASH_SERVING_REDIS")
	if addr == "" {
		return // only as a part of TestSlotsOverTwoProcesses
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute})
	defer rdb.Close()
	l, err := core.New(core.Limits{core.InFlight(servingSlots), core.PerHour(1_000_000)}, core.Global(),
		core.WithStore(redisstore.New(rdb)), core.WithTimeout(time.Minute), core.WithName("serving"))
	if err != nil {
		t.Fatal(err)
	}
	var most, served, denied atomic.Int64
	h := nethttp.From(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		ctx := context.Background()
		now, err := rdb.Incr(ctx, "running").Result()
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			continue
		}
		if err = errors.Join(err, rdb.Ping(ctx).Err(), rdb.Decr(ctx, "running").Err()); err != nil {
			t.Error(err)
		}
	}))
	var wg sync.WaitGroup
	for range servingCallers {
		wg.Go(func() {
			for n := 0; n < servingRequests; {
				w := httptest.NewRecorder()
				switch h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)); w.Code {
				case http.StatusOK:
					served.Add(1)
					n++
				case http.StatusTooManyRequests:
					denied.Add(1)
				default:
					t.Errorf("status %d: %s", w.Code, w.Body)
					n++
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	fmt.Printf("served %d, %d at a time, denied %d\n", served.Load(), most.Load(), denied.Load())
}

const (
	killedCallers = 16
	killedQuota   = 400
	killedShared  = 600
)

// killed is a request of one of three users, beside a log that all users share, on another server of the cluster.
func killed(user int) jointRequest { return besideShared("killed", user, killedQuota, killedShared) }

// Processes are killed while they ask one server of a cluster after the other. What they have taken may miss until
// it leaves its window, at most one request for each caller, but no log admits more than its quota.
func TestKilledBetweenServers(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	addrs := strings.Join(cluster.Addrs(), ",")
	admitted := make([]int, 3)
	const kills = 4
	for n := range kills {
		c, out := process(t, "TestKilledProcess", "SASH_KILLED_REDIS="+addrs)
		for range 20 + rand.IntN(60) {
			readAdmitted(t, out, admitted)
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(out) // what it has told before it was killed
		for line := range strings.Lines(string(rest)) {
			if strings.HasSuffix(line, "\n") {
				readAdmitted(t, bufio.NewReader(strings.NewReader(line)), admitted)
			}
		}
		c.Wait()
		t.Logf("killed %d: %v admitted", n, admitted)
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer rdb.Close()
	s := redisstore.New(rdb)
	jointID.Store(rand.Uint64())
	for user := range admitted {
		for {
			ok, err := killed(user).take(t.Context(), s, store.ModeCharge)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			admitted[user]++
		}
	}
	total, missing := 0, kills*killedCallers
	for user, n := range admitted {
		total += n
		if used := killed(user).used(t, s)[0]; n > killedQuota || used < n || used > n+missing {
			t.Errorf("user %d: %d admitted of %d, the log holds %d", user, n, killedQuota, used)
		}
	}
	used := killed(0).used(t, s)[1]
	if total > killedShared || used < total || used > total+missing || total < killedShared-missing {
		t.Errorf("%d admitted of %d, the log that all share holds %d", total, killedShared, used)
	}
	t.Logf("%d of %d admitted, %d units held by what was killed", total, killedShared, used-total)
}

func readAdmitted(t *testing.T, out *bufio.Reader, admitted []int) {
	t.Helper()
	line, err := out.ReadString('\n')
	var user int
	if n, _ := fmt.Sscanf(line, "admitted %d", &user); n != 1 {
		t.Fatalf("%q, %v", line, err)
	}
	admitted[user]++
}

func TestKilledProcess(*testing.T) {
	addrs := os.Getenv("SASH_KILLED_REDIS")
	if addrs == "" {
		return // only as a part of TestKilledBetweenServers
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(addrs, ","), ReadTimeout: time.Minute})
	defer rdb.Close()
	s := redisstore.New(rdb)
	jointID.Store(rand.Uint64())
	for caller := range killedCallers {
		go func() {
			for user := caller % 3; ; user = (user + 1) % 3 {
				ok, err := killed(user).take(context.Background(), s, store.ModeCharge)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
				if ok {
					fmt.Fprintf(os.Stdout, "admitted %d\n", user) // in one write, which a kill does not cut
				}
			}
		}()
	}
	os.Stdin.Read(make([]byte, 1)) // until it is killed, or its parent has ended
}
