package redisstore_test

import (
	"bufio"
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
)

var leasedLimits = core.Limits{{Quota: 1000, Window: 100 * time.Millisecond}, core.PerSecond(6000)}

// leasedUse is a request that a process has admitted, at some instant from before to after, in ns of the wall clock.
type leasedUse struct {
	before, after int64
	cost          int
}

// Processes use leases on one key, while some are stopped for longer than a lease, some are killed, and the server
// stops. No window of true uses is over a quota.
func TestLeasesOfProcesses(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 3, 8}[testlen.Of(1, 0):testlen.Of(2, 3)] {
		t.Run(fmt.Sprint(processes), func(t *testing.T) { leasesOf(t, processes) })
	}
}

func leasesOf(t *testing.T, processes int) {
	server := redistest.Start(t)
	var mu sync.Mutex
	var uses []leasedUse
	var readers sync.WaitGroup
	begin := func() *exec.Cmd {
		length := 5 + rand.IntN(40)
		c, out := process(t, "TestLeasingProcess", fmt.Sprintf("SASH_LEASING=%s %d", server.Addr(), length))
		readers.Go(func() {
			for {
				var u leasedUse
				if _, err := fmt.Fscan(out, &u.before, &u.after, &u.cost); err != nil {
					return
				}
				mu.Lock()
				uses = append(uses, u)
				mu.Unlock()
			}
		})
		return c
	}
	running := make([]*exec.Cmd, processes)
	for i := range running {
		running[i] = begin()
	}
	for ends := time.Now().Add(time.Duration(testlen.Of(1500, 20_000)) * time.Millisecond); time.Now().Before(ends); {
		// Real time, since other processes are stopped and killed: a bubble has only this one.
		time.Sleep(time.Duration(50+rand.IntN(200)) * time.Millisecond)
		i := rand.IntN(processes)
		switch rand.IntN(6) {
		case 0:
			running[i].Process.Kill()
			running[i] = begin()
		case 1:
			server.Pause()
			time.Sleep(time.Duration(rand.IntN(120)) * time.Millisecond)
			server.Resume()
		default:
			running[i].Process.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			running[i].Process.Signal(syscall.SIGCONT)
		}
	}
	for _, c := range running {
		c.Process.Kill()
	}
	readers.Wait()
	units := 0
	for _, u := range uses {
		units += u.cost
	}
	for _, l := range leasedLimits {
		most := fullest(uses, l.Window)
		t.Logf("%d units, %d of %d in the fullest window of %v", units, most, l.Quota, l.Window)
		if most > l.Quota {
			t.Errorf("%d units in a window of %v, of %d", most, l.Window, l.Quota)
		}
	}
	if units == 0 {
		t.Error("nothing was admitted")
	}
}

// fullest returns the most units that were certainly used in one window.
func fullest(uses []leasedUse, window time.Duration) (most int) {
	slices.SortFunc(uses, func(a, b leasedUse) int { return cmp.Compare(a.after, b.after) })
	units := 0
	var within byBefore
	for _, u := range uses {
		heap.Push(&within, u)
		for units += u.cost; len(within) > 0 && within[0].before <= u.after-int64(window); {
			units -= heap.Pop(&within).(leasedUse).cost
		}
		most = max(most, units)
	}
	return most
}

type byBefore []leasedUse

func (b byBefore) Len() int           { return len(b) }
func (b byBefore) Less(i, j int) bool { return b[i].before < b[j].before }
func (b byBefore) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *byBefore) Push(u any)        { *b = append(*b, u.(leasedUse)) }
func (b *byBefore) Pop() any {
	last := len(*b) - 1
	u := (*b)[last]
	*b = (*b)[:last]
	return u
}

func TestLeasingProcess(t *testing.T) {
	text := os.Getenv("SASH_LEASING")
	if text == "" {
		return // only as a part of TestLeasesOfProcesses
	}
	var addr string
	var length int
	if _, err := fmt.Sscan(text, &addr, &length); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	l, err := core.New(leasedLimits, core.Global(), core.WithStore(redisstore.New(rdb)), core.WithName("leased"),
		core.WithLease(time.Duration(length)*time.Millisecond), core.WithFailure(core.FailClosed))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	out := bufio.NewWriter(os.Stdout)
	for range 4 {
		go func() {
			var lines strings.Builder
			for {
				cost := 1
				if rand.IntN(10) == 0 {
					cost += rand.IntN(8)
				}
				before := time.Now().UnixNano()
				d, err := l.AllowN(context.Background(), "k", cost)
				after := time.Now().UnixNano()
				if err == nil && d.Allowed {
					fmt.Fprintln(&lines, before, after, cost)
				}
				if lines.Len() > 2000 {
					mu.Lock()
					io.WriteString(out, lines.String())
					out.Flush()
					mu.Unlock()
					lines.Reset()
				}
				pause := time.Duration(rand.IntN(100)) * time.Microsecond
				if time.Now().UnixMilli()/300%3 == 0 {
					pause *= 20
				}
				time.Sleep(pause)
			}
		}()
	}
	os.Stdin.Read(make([]byte, 1)) // until it is killed, or its parent has ended
}
