package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

const (
	heldSlots = 10
	heldLease = 2 * time.Second
)

func heldLimit() core.Limit { return core.InFlight(heldSlots).Lease(heldLease) }

// stamps returns when the slots in the only log were renewed, in microseconds.
func stamps(t *testing.T, rdb *redis.Client) (all []int64) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys %q, %v; want one", keys, err)
	}
	entries, err := rdb.ZRangeWithScores(t.Context(), keys[0], 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, int64(e.Score))
	}
	return all
}

// The slots of a process that is killed are free again when their lease ends, and none is earlier.
func TestSlotsOfKilledProcess(t *testing.T) {
	t.Parallel()
	rdb := start(t)
	c := exec.Command(os.Args[0], "-test.run=^TestSlotHoldingProcess$")
	c.Env = append(os.Environ(), "SASH_SLOTS_REDIS="+rdb.Options().Addr)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "held 10\n" {
		c.Process.Kill()
		t.Fatalf("%q, %v", line, err)
	}
	l := newLimiter(t, heldLimit(), redisstore.New(rdb))
	first := stamps(t, rdb)
	for range 3 { // the process lives for more than a lease
		last := slices.Max(stamps(t, rdb))
		for slices.Min(stamps(t, rdb)) <= last {
			if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed {
				t.Fatalf("%v, %v: a slot is free while the process lives", d, err)
			}
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	last := stamps(t, rdb)
	if len(first) != heldSlots || len(last) != heldSlots {
		t.Errorf("%d slots, then %d; want %d", len(first), len(last), heldSlots)
	}
	for n := range heldSlots {
		d, err := l.Wait(t.Context(), "k")
		now := rdb.Time(t.Context()).Val()
		if early := time.UnixMicro(last[n]).Add(heldLease).Sub(now); err != nil || !d.Allowed || early > 0 {
			t.Errorf("slot %d: %v, %v; %v before the lease ends", n, d, err, early)
		}
		defer d.Release(context.WithoutCancel(t.Context()))
	}
	free := rdb.Time(t.Context()).Val().Sub(time.UnixMicro(last[heldSlots-1]).Add(heldLease))
	t.Logf("all slots are taken again %v after their leases have ended", free)
	if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed {
		t.Errorf("%v, %v: one slot too many", d, err)
	}
}

func TestSlotHoldingProcess(t *testing.T) {
	addr := os.Getenv("SASH_SLOTS_REDIS")
	if addr == "" {
		return // only as a part of TestSlotsOfKilledProcess
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	l := newLimiter(t, heldLimit(), redisstore.New(rdb))
	held := 0
	for range heldSlots {
		if d, err := l.Allow(t.Context(), "k"); err == nil && d.Allowed {
			held++
		}
	}
	fmt.Println("held", held)
	os.Stdin.Read(make([]byte, 1)) // until it is killed, or its parent has ended
}

// Requests of two limiters of one Redis, as of two processes: no more run at the same time than there are slots, also
// together with a window.
func TestSlotsOfTwoClients(t *testing.T) {
	const requests, slots = 200, 10
	for _, policy := range []core.Policy{
		core.InFlight(slots), core.Limits{core.InFlight(slots), core.PerHour(2 * requests)},
	} {
		rdb := start(t)
		other := redis.NewClient(rdb.Options())
		defer other.Close()
		var limiters []*core.Limiter
		for _, client := range []*redis.Client{rdb, other} {
			limiters = append(limiters, newLimiter(t, policy, redisstore.New(client), core.WithName("slots")))
		}
		var running, most, served atomic.Int64
		var all sync.WaitGroup
		for n := range requests {
			all.Go(func() {
				d, err := limiters[n%2].Wait(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				now := running.Add(1)
				for old := most.Load(); now > old; old = most.Load() {
					if most.CompareAndSwap(old, now) {
						break
					}
				}
				served.Add(1)
				running.Add(-1)
				if err := d.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if most.Load() > slots || served.Load() != requests {
			t.Errorf("%v: %d at a time and %d served, want %d at most and %d",
				policy, most.Load(), served.Load(), slots, requests)
		}
		if keys := rdb.Keys(t.Context(), "*:f:*").Val(); len(keys) > 0 {
			t.Errorf("slots are left in %s", strings.Join(keys, ", "))
		}
	}
}

// A slot is renewed in a log whose windows vary as in any other: its scores are then others than the instants.
func TestRenewWhereWindowsVary(t *testing.T) {
	c := newClock(start(t))
	s := newStore(c)
	plan := planOf(core.Limits{{Quota: 1, Window: 2 * time.Second}}, store.Plan{Keep: 10 * time.Second, Varies: true})
	take := store.Take{Key: store.NewKey("varies", "k"), Plan: plan, Cost: 1, ID: 1}
	mustTake(t, s, take)
	c.Advance(time.Second)
	r := store.Renewal{Key: take.Key, Keep: plan.Keep, IDs: []uint64{1}}
	if err := s.(store.Renewer).Renew(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	c.Advance(1500 * time.Millisecond)
	take.ID, take.Mode = 2, store.ModePeek
	a, err := coretest.Take(t.Context(), s, take)
	if want := (store.State{Used: 1, Reset: 500 * time.Millisecond}); err != nil || a.State[0] != want {
		t.Errorf("%+v, %v; want %+v", a.State[0], err, want)
	}
}

// A request for up to so many units that is executed again is granted what it was granted before, also where one of
// its logs counts slots.
func TestSlotsWithGrantsSentTwice(t *testing.T) {
	c := newClock(start(t))
	c.processor = twice{processor: c.processor, t: t}
	s := full(redisstore.Single(newStore(c)))
	rate := planOf(core.Limits{core.PerHour(5)}, store.Plan{})
	slots := planOf(core.Limits{core.PerMinute(2)}, store.Plan{Slots: true})
	for _, first := range []int{0, 1} {
		keys := keysOf(t, 2, fmt.Sprint("grants", first))
		takes := []store.Take{{Key: keys[0], Plan: rate}, {Key: keys[1], Plan: slots}}
		takes[0], takes[1] = takes[first], takes[1-first]
		for i := range takes {
			takes[i].Cost, takes[i].ID, takes[i].Mode = 8, 1, store.ModeUpTo
		}
		answers := make([]store.Answer, 2)
		if err := coretest.TakeAll(t.Context(), s, takes, answers); err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if !a.Allowed || a.Granted != 5 || a.State[0].Used != 0 {
				t.Errorf("log %d, slots %v: %+v; want 5 granted", i, takes[i].Plan.Slots, a)
			}
		}
	}
}

// Slots that Redis has lost, as after FLUSHALL or a restart without its data, are there again after the next renewal,
// those beyond the quota included: nobody is admitted while as many requests run as there are slots.
func TestSlotsThatRedisHasLost(t *testing.T) {
	const slots = 3
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	var limiters []*core.Limiter
	for range slots + 1 {
		own := redis.NewClient(rdb.Options())
		defer own.Close()
		limiters = append(limiters, newLimiter(t, core.InFlight(slots).Lease(time.Second), redisstore.New(own)))
	}
	allow := func(l *core.Limiter, want bool) core.Decision {
		t.Helper()
		d, err := l.Allow(t.Context(), "k")
		if err != nil || d.Allowed != want {
			t.Errorf("%v, %v; want allowed %v", d, err, want)
		}
		return d
	}
	var old []core.Decision
	for n := range slots {
		old = append(old, allow(limiters[n], true))
	}
	last := limiters[slots]
	for loss, lose := range []func(){
		func() { server.Do("FLUSHALL") },
		func() { server.Kill(); server.Restart() },
	} {
		lose()
		var young []core.Decision
		for d, err := last.Allow(t.Context(), "k"); err == nil && d.Allowed; d, err = last.Allow(t.Context(), "k") {
			young = append(young, d)
		}
		if len(young) > slots {
			t.Errorf("loss %d: %d requests are admitted", loss, len(young))
		}
		living, there := int64(len(old)+len(young)), int64(0)
		if !eventually(func() bool {
			keys := append(rdb.Keys(t.Context(), "*").Val(), "none")
			there = rdb.ZCard(t.Context(), keys[0]).Val()
			return there == living
		}) {
			t.Fatalf("loss %d: Redis has %d slots, want those of %d requests", loss, there, living)
		}
		for _, d := range young {
			for _, l := range limiters {
				allow(l, false)
			}
			if err := d.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		allow(last, false)
	}
	for _, d := range old {
		if err := d.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if d := allow(last, true); d.Used != 0 {
		t.Errorf("%v: slots were left behind", d)
	}
}
