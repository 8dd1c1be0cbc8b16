package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

const childEnv = "SASH_CHILD" // which of the children below a process is, and where its Redis is

// children are processes of these tests. They run until they are killed, or until the process that has started them
// ends, or until they return.
var children = map[string]func(rdb redis.UniversalClient){
	"shares": share, "serves": serve, "holds": hold, "leases": useLeases,
}

// child is a process of its own.
type child struct {
	*exec.Cmd

	lines *bufio.Scanner
}

func startChild(t *testing.T, name string, addrs ...string) *child {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestChild$")
	c.Env, c.Stderr = append(os.Environ(), childEnv+"="+name+" "+strings.Join(addrs, " ")), os.Stderr
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		in.Close()
		c.Process.Kill()
		c.Wait()
	})
	return &child{c, bufio.NewScanner(out)}
}

func TestChild(t *testing.T) {
	words := strings.Fields(os.Getenv(childEnv))
	if len(words) == 0 {
		t.Skip("it is a part of other tests")
	}
	go func() {
		os.Stdin.Read(make([]byte, 1)) // until the parent has ended
		os.Exit(1)
	}()
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: words[1:], ReadTimeout: time.Minute})
	children[words[0]](rdb)
	rdb.Close()
}

const (
	sharers      = 16 // callers of a process
	sharedQuota  = 600
	sharingQuota = 400 // of each user
	sharingUsers = 3
)

var (
	sharing = &store.Limit{Log: "user", Quota: sharingQuota, Window: time.Hour}
	shared  = &store.Limit{Log: "all", Quota: sharedQuota, Window: time.Hour}
)

// sharedTakes is a request of a user, beside a log that all users share. On a cluster it is on another server.
func sharedTakes(user int, mode store.Mode) []store.Take {
	id := rand.Uint64() | 1
	return []store.Take{
		{Key: store.NewKey("user", fmt.Sprint(user)), Limit: sharing, Cost: 1, ID: id, Mode: mode},
		{Key: store.NewKey("all", "all"), Limit: shared, Cost: 1, ID: id, Mode: mode},
	}
}

// share makes requests until the shared log is full, and writes down those that are admitted.
func share(rdb redis.UniversalClient) {
	s := redisstore.New(rdb)
	var all sync.WaitGroup
	for caller := range sharers {
		all.Go(func() {
			answers := make([]store.Answer, 2)
			for n := caller; !answers[1].Known || answers[1].Used < sharedQuota; n++ {
				clear(answers)
				err := s.Take(context.Background(), sharedTakes(n%sharingUsers, store.ModeCharge), answers)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
				} else if answers[0].Allowed && answers[1].Allowed {
					fmt.Fprintf(os.Stdout, "%d\n", n%sharingUsers) // in one write, which a kill does not cut
				}
			}
		})
	}
	all.Wait()
}

// Processes share the quotas of several keys: no log is ever above its quota. On one server each unit is admitted. On a
// cluster, processes are killed while they ask one server after the other: what they have taken, one request for each
// caller at most, may miss until it leaves its window.
func TestProcessesShareQuotas(t *testing.T) {
	t.Parallel()
	for name, kills := range map[string]int{"server": 0, "cluster": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var addrs []string
			if kills > 0 {
				addrs = redisserver.StartCluster(t, 3).Addrs()
			} else {
				addrs = []string{redisserver.Start(t).Addr()}
			}
			var processes []*child
			for range max(kills+1, 3) {
				processes = append(processes, startChild(t, "shares", addrs...))
			}
			admitted, total := make([]int, sharingUsers), 0
			for i, c := range processes {
				for n := 0; c.lines.Scan(); n++ {
					var user int
					if _, err := fmt.Sscan(c.lines.Text(), &user); err == nil { // it may end with the word PASS
						admitted[user]++
						total++
					}
					if i < kills && n == 30 {
						c.Process.Kill()
					}
				}
			}
			rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
			defer rdb.Close()
			s, answers := redisstore.New(rdb), make([]store.Answer, 2)
			missing := kills * sharers
			used := func(i int) int {
				clear(answers)
				must(t, s.Take(t.Context(), sharedTakes(i, store.ModePeek), answers))
				return answers[0].Used
			}
			for user, n := range admitted {
				if used := used(user); used > sharingQuota || used < n || used > n+missing {
					t.Errorf("user %d: %d admitted, the log holds %d", user, n, used)
				}
			}
			if all := answers[1].Used; all > sharedQuota || all < total || all > total+missing ||
				kills == 0 && total != sharedQuota {
				t.Errorf("%d admitted, the log that all share holds %d of %d", total, all, sharedQuota)
			}
			t.Logf("%v admitted, the log that all share holds %d", admitted, answers[1].Used)
		})
	}
}

const (
	permits     = 10
	permitLease = 2 * time.Second
)

func newServing(rdb redis.UniversalClient) (*core.Limiter, error) {
	return core.New(core.Limits{core.InFlight(permits).Lease(permitLease), core.PerHour(1_000_000)}, core.ByText(),
		core.WithStore(redisstore.New(rdb)), core.WithName("serving"), core.WithTimeout(time.Minute))
}

// serve has 30 callers that each serve ten requests, and writes how many were under way at most, in all processes.
func serve(rdb redis.UniversalClient) {
	ctx := context.Background()
	l, err := newServing(rdb)
	var most, denied atomic.Int64
	var all sync.WaitGroup
	for range 3 * permits {
		all.Go(func() {
			for n := 0; n < 10; {
				d, failed := l.Allow(ctx, "k")
				if failed != nil || !d.Allowed {
					denied.Add(1)
					continue
				}
				n++
				now := rdb.Incr(ctx, "running").Val()
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
					continue
				}
				rdb.Decr(ctx, "running")
				if err := d.Release(ctx); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
		})
	}
	all.Wait()
	fmt.Println(most.Load(), denied.Load(), errors.Join(err, l.Close()))
}

// hold takes all permits and holds them.
func hold(rdb redis.UniversalClient) {
	l, err := newServing(rdb)
	for range permits {
		if d, failed := l.Allow(context.Background(), "k"); failed != nil || !d.Allowed {
			fmt.Fprintln(os.Stderr, d, failed, err)
		}
	}
	fmt.Println("held")
	select {}
}

// No more requests run at the same time than there are permits, in all processes together. The permits of a process
// that is killed are free when their lease ends, and none is earlier; while it lives, it renews them.
func TestPermitsOfProcesses(t *testing.T) {
	t.Parallel()
	rdb := start(t)
	addr := rdb.Options().Addr
	for _, c := range []*child{startChild(t, "serves", addr), startChild(t, "serves", addr)} {
		var most, denied int
		var failed string
		c.lines.Scan()
		if n, _ := fmt.Sscan(c.lines.Text(), &most, &denied, &failed); n != 3 || failed != "<nil>" {
			t.Fatalf("%q", c.lines.Text())
		}
		if most > permits || denied == 0 {
			t.Errorf("%d at a time, %d denied; want %d at most", most, denied, permits)
		}
	}
	rdb.Del(t.Context(), "running")
	stamps := func() (all []int64) {
		for _, key := range rdb.Keys(t.Context(), "*:in-flight").Val() {
			for _, e := range rdb.ZRangeWithScores(t.Context(), key, 0, -1).Val() {
				all = append(all, int64(e.Score))
			}
		}
		return all
	}
	if left := stamps(); len(left) > 0 {
		t.Fatalf("%d permits are left", len(left))
	}
	holder := startChild(t, "holds", addr)
	if holder.lines.Scan(); holder.lines.Text() != "held" {
		t.Fatalf("%q", holder.lines.Text())
	}
	l, err := newServing(rdb)
	must(t, err)
	defer l.Close()
	for range 3 { // renewals, which take longer than a lease
		for last := slices.Max(stamps()); slices.Min(stamps()) <= last; {
			if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed {
				t.Fatalf("%v, %v: a permit is free while the process lives", d, err)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	holder.Process.Kill()
	holder.Wait()
	last := stamps()
	for n := range permits {
		d, err := l.Wait(t.Context(), "k")
		now := rdb.Time(t.Context()).Val()
		if early := time.UnixMicro(last[n]).Add(permitLease).Sub(now); err != nil || !d.Allowed || early > 0 {
			t.Errorf("permit %d: %v, %v; %v before the lease ends", n, d, err, early)
		}
	}
}

var leasedLimits = core.Limits{{Quota: 1000, Window: 100 * time.Millisecond}, core.PerSecond(6000)}

// useLeases makes requests, and writes each one that was admitted at once: when it began and ended, and its cost.
func useLeases(rdb redis.UniversalClient) {
	l, err := core.New(leasedLimits, core.ByText(), core.WithStore(redisstore.New(rdb)), core.WithName("leased"),
		core.WithLease(20*time.Millisecond), core.WithFailure(core.FailClosed))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for range 4 {
		go func() {
			for {
				cost := 1
				if rand.IntN(10) == 0 {
					cost += rand.IntN(8)
				}
				before := time.Now().UnixNano()
				if d, err := l.AllowN(context.Background(), "k", cost); err == nil && d.Allowed {
					fmt.Println(before, time.Now().UnixNano(), cost)
				}
				<-time.After(time.Duration(rand.IntN(100)) * time.Microsecond)
			}
		}()
	}
	select {}
}

// Processes use leases on one key, while some are stopped for longer than a lease, some are killed, and the server
// stands still. No window of true uses is over a quota.
func TestLeasesOfProcesses(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	var mu sync.Mutex
	var before, after []int64 // of each unit
	var readers sync.WaitGroup
	used := make(chan bool, 1)
	begin := func() *child {
		c := startChild(t, "leases", server.Addr())
		readers.Go(func() {
			for c.lines.Scan() {
				var began, ended int64
				var cost int
				if _, err := fmt.Sscan(c.lines.Text(), &began, &ended, &cost); err != nil {
					continue
				}
				mu.Lock()
				before = append(before, slices.Repeat([]int64{began}, cost)...)
				after = append(after, slices.Repeat([]int64{ended}, cost)...)
				mu.Unlock()
				select {
				case used <- true:
				default:
				}
			}
		})
		return c
	}
	running := []*child{begin(), begin(), begin()}
	<-used
	for ends := time.Now().Add(time.Duration(testlen.Of(1, 10)) * time.Second); time.Now().Before(ends); {
		<-time.After(time.Duration(50+rand.IntN(200)) * time.Millisecond)
		switch i := rand.IntN(len(running)); rand.IntN(6) {
		case 0:
			running[i].Process.Kill()
			running[i] = begin()
		case 1:
			server.Pause()
			<-time.After(time.Duration(rand.IntN(120)) * time.Millisecond)
			server.Resume()
		default:
			running[i].Process.Signal(syscall.SIGSTOP)
			<-time.After(time.Duration(rand.IntN(100)) * time.Millisecond)
			running[i].Process.Signal(syscall.SIGCONT)
		}
	}
	for _, c := range running {
		c.Process.Kill()
	}
	readers.Wait()
	slices.Sort(before)
	slices.Sort(after)
	for _, l := range leasedLimits {
		most := 0
		for n, ends := range after { // those that ended by then, without those that began before the window
			began, _ := slices.BinarySearch(before, ends-int64(l.Window)+1)
			most = max(most, n+1-began)
		}
		t.Logf("%d units, %d of %d in the fullest window of %v", len(after), most, l.Quota, l.Window)
		if most > l.Quota {
			t.Errorf("%d units in a window of %v, of %d", most, l.Window, l.Quota)
		}
	}
}
