package redisstore_test

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// leasedLimits are those of processes with so many callers each.
func leasedLimits(callers int) core.Limits {
	return core.Limits{{Quota: 250 * callers, Window: 100 * time.Millisecond}, core.PerSecond(1500 * callers)}
}

// leasedUse is a request that a process has admitted, at some instant from before to after, in ns of the wall clock.
type leasedUse struct {
	before, after int64
	cost          int
}

// Processes use leases on one key, while some are stopped for longer than a lease, some are killed, and the server
// stops. Half of them send commands again. No window of true uses is over a quota.
//
// SASH_LEASING_SECONDS is how long each case takes, and makes it four times as many requests.
func TestLeasesOfProcesses(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 3, 8}[testlen.Of(1, 0):testlen.Of(2, 3)] {
		for _, most := range []int{1, 8}[testlen.Of(1, 0):] {
			t.Run(fmt.Sprintf("%d processes, costs to %d", processes, most), func(t *testing.T) {
				leasesOf(t, processes, most)
			})
		}
	}
}

func leasesOf(t *testing.T, processes, mostCost int) {
	length, callers := time.Duration(testlen.Of(1500, 3_000))*time.Millisecond, 4
	if seconds, err := strconv.Atoi(os.Getenv("SASH_LEASING_SECONDS")); err == nil {
		length, callers = time.Duration(seconds)*time.Second, 16
	}
	server := redistest.Start(t)
	var mu sync.Mutex
	var uses []leasedUse
	var readers sync.WaitGroup
	checks, begun := 0, 0
	started := make(chan struct{}, 1) // receives a value when a process has used units
	begin := func() *exec.Cmd {
		begun++
		c, out := process(t, "TestLeasingProcess", fmt.Sprintf("SASH_LEASING=%s %d %d %d %v",
			server.Addr(), callers, 5+rand.IntN(40), mostCost, begun%2 == 0))
		readers.Go(func() {
			for {
				var u leasedUse
				if _, err := fmt.Fscan(out, &u.before, &u.after, &u.cost); err != nil {
					return
				}
				mu.Lock()
				if u.cost > 0 {
					select {
					case started <- struct{}{}:
					default:
					}
					uses = append(uses, u)
					checks++
				} else {
					checks -= u.cost
				}
				mu.Unlock()
			}
		})
		return c
	}
	running := make([]*exec.Cmd, processes)
	for i := range running {
		running[i] = begin()
	}
	select {
	case <-started: // which takes some time on a busy machine
	case <-time.After(time.Minute):
		t.Error("no process has used units for a minute")
	}
	for ends := time.Now().Add(length); time.Now().Before(ends); {
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
	t.Logf("%d checks by %d processes, %d of them admitted", checks, begun, len(uses))
	for _, l := range leasedLimits(callers) {
		units, most := fullest(uses, l.Window)
		t.Logf("%d units, %d of %d in the fullest window of %v", units, most, l.Quota, l.Window)
		if most > l.Quota || units == 0 {
			t.Errorf("%d units in a window of %v, of %d", most, l.Window, l.Quota)
		}
	}
}

// fullest returns how many units were used, and the most that were certainly used in one window.
func fullest(uses []leasedUse, window time.Duration) (all, most int) {
	slices.SortFunc(uses, func(a, b leasedUse) int { return cmp.Compare(a.after, b.after) })
	units := 0
	var within byBefore
	for _, u := range uses {
		heap.Push(&within, u)
		for units += u.cost; len(within) > 0 && within[0].before <= u.after-int64(window); {
			units -= heap.Pop(&within).(leasedUse).cost
		}
		all, most = all+u.cost, max(most, units)
	}
	return all, most
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

// setClock is the clock of a server that goes on and is set meanwhile.
type setClock struct {
	clock

	began   time.Time
	running sync.RWMutex // held while a command is executed, since a server's clock does not change within one
	ahead   time.Duration
	mu      sync.Mutex
	moved   time.Duration // of what the clock shows
}

// set sets the clock forward or back, and returns when.
func (c *setClock) set(by time.Duration) time.Time {
	c.running.Lock()
	defer c.running.Unlock()
	c.ahead += by
	return time.Now()
}

func (c *setClock) Process(ctx context.Context, cmd redis.Cmder) error {
	c.running.RLock()
	defer c.running.RUnlock()
	c.mu.Lock()
	now := time.Since(c.began) + c.ahead
	c.Advance(now - c.moved)
	c.moved = now
	c.mu.Unlock()
	return c.clock.Process(ctx, cmd)
}

// While the clock of the server is set, limiters with leases use no unit more than one without would: none when it is
// set back, and at most two quotas in a window around a step forward. A log recovers a window and a second after a step
// back, and leases end.
func TestLeasesWhenTheClockIsSet(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes three seconds")
	}
	const window, lease = 200 * time.Millisecond, 20 * time.Millisecond
	limit := core.Limit{Quota: 400, Window: window}
	for name, c := range map[string]struct {
		by    time.Duration
		times int
	}{
		"forward": {time.Hour, 1}, "back": {-time.Hour, 1}, "back a little": {-window / 4, 1},
		"back often": {-lease / 2, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &setClock{clock: newClock(start(t)), began: time.Now()}
			logs := redisstore.WithProcess(redisstore.New(server), server.Process)
			plain := newLimiter(t, limit, logs, core.WithName("leased"))
			var mu sync.Mutex
			var uses []leasedUse
			var all sync.WaitGroup
			ended := make(chan struct{})
			for range 3 {
				l := newLimiter(t, limit, redisstore.WithProcess(redisstore.New(server), server.Process),
					core.WithName("leased"), core.WithLease(lease))
				defer l.Close()
				for range 4 {
					all.Go(func() {
						for {
							before := time.Now().UnixNano()
							d, err := l.Allow(context.Background(), "k")
							u := leasedUse{before, time.Now().UnixNano(), 1}
							mu.Lock()
							if err != nil {
								t.Error(err)
							} else if d.Allowed {
								uses = append(uses, u)
							}
							mu.Unlock()
							select {
							case <-ended:
								return
							case <-time.After(rand.N(4 * time.Millisecond)):
							}
						}
					})
				}
			}
			newest := func() time.Time {
				entries, err := plain.Log(t.Context(), "k")
				if err != nil || len(entries) == 0 {
					t.Error("no entry", err)
					return time.Time{}
				}
				return entries[len(entries)-1].At
			}
			// Real time, as the server's keys and leases have.
			time.Sleep(2 * window)
			begun := newest()
			var first, last time.Time
			for range c.times {
				if last = server.set(c.by); first.IsZero() {
					first = last
				}
				time.Sleep(rand.N(lease))
			}
			time.Sleep(time.Until(last.Add(store.LongestLease + window)))
			if at := newest(); c.by > 0 && at.Sub(begun) < c.by {
				t.Errorf("the clock was not set: the newest entry was of %v and is of %v", begun, at)
			}
			close(ended)
			all.Wait()
			from := func(at time.Time) []leasedUse {
				return slices.DeleteFunc(slices.Clone(uses), func(u leasedUse) bool { return u.before < at.UnixNano() })
			}
			_, around := fullest(uses, window)
			_, after := fullest(from(last.Add(lease)), window)
			t.Logf("%d units in the fullest window, %d afterwards", around, after)
			if after > limit.Quota || around > limit.Quota && c.by < 0 || around > 2*limit.Quota {
				t.Errorf("%d units in a window, and afterwards %d, of %d", around, after, limit.Quota)
			}
			time.Sleep(window + lease) // in which all units leave, if the log has recovered
			if d, err := plain.Peek(t.Context(), "k"); err != nil || d.Used > 0 {
				t.Error("the log has not recovered", d, err)
			}
		})
	}
}

// sentAgain sends some commands again, as a client does that has lost a reply: at once, and goes on with the second
// reply; or later, when others have been executed.
type sentAgain struct{ processor }

func (c sentAgain) Process(ctx context.Context, cmd redis.Cmder) error {
	args := slices.Clone(cmd.Args())
	for i, arg := range args {
		if text, ok := arg.(*string); ok {
			args[i] = *text
		}
	}
	if err := c.processor.Process(ctx, cmd); err != nil {
		return err
	}
	switch rand.IntN(8) {
	case 0:
		return c.processor.Process(ctx, cmd)
	case 1:
		time.AfterFunc(rand.N(60*time.Millisecond), func() {
			c.processor.Process(context.Background(), redis.NewIntSliceCmd(context.Background(), args...))
		})
	}
	return nil
}

func TestLeasingProcess(t *testing.T) {
	text := os.Getenv("SASH_LEASING")
	if text == "" {
		return // only as a part of TestLeasesOfProcesses
	}
	var addr string
	var callers, length, mostCost int
	var again bool
	if _, err := fmt.Sscan(text, &addr, &callers, &length, &mostCost, &again); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	logs := redisstore.New(rdb)
	if again {
		logs = redisstore.WithProcess(logs, sentAgain{rdb}.Process)
	}
	l, err := core.New(leasedLimits(callers), core.Global(), core.WithStore(logs), core.WithName("leased"),
		core.WithLease(time.Duration(length)*time.Millisecond), core.WithFailure(core.FailClosed))
	if err != nil {
		t.Fatal(err)
	}
	for range callers {
		go useLeases(l, mostCost)
	}
	os.Stdin.Read(make([]byte, 1)) // until it is killed, or its parent has ended
}

// useLeases makes requests. It writes each one that was admitted at once, since the process may be killed, and now and
// then how many others there were, as a negative number of units.
func useLeases(l *core.Limiter, mostCost int) {
	others := 0
	for {
		cost := 1
		if rand.IntN(10) == 0 {
			cost += rand.IntN(mostCost)
		}
		before := time.Now().UnixNano()
		d, err := l.AllowN(context.Background(), "k", cost)
		after := time.Now().UnixNano()
		if err == nil && d.Allowed {
			fmt.Println(before, after, cost)
		} else if others++; others == 100 {
			fmt.Println(0, 0, -others)
			others = 0
		}
		pause := time.Duration(rand.IntN(100)) * time.Microsecond
		if time.Now().UnixMilli()/300%3 == 0 {
			pause *= 20
		}
		time.Sleep(pause)
	}
}
