package core_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// countedJoint is a store that counts questions over several logs.
type countedJoint struct {
	store.Full

	asked atomic.Int64
}

func (c *countedJoint) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	c.asked.Add(1)
	return c.Full.Take(ctx, takes, answers)
}

// However many calls wait for a limit that they share, they ask as often as one, and what is given back makes as many
// of them ask as can have it. Calls that wait for another limit do not ask.
func TestWaitersOfOneLimitAskAsOne(t *testing.T) {
	const waiters = 300
	org := core.ByValue(orgKey{})
	for desc, c := range map[string]struct {
		limit    core.Limit
		idle     int64 // questions in ten seconds
		giveBack func(*testing.T, core.Decision)
	}{
		"slots":  {core.InFlight(4).By(org), 20, release},
		"window": {core.PerHour(4).By(org), 0, undo},
	} {
		t.Run(desc, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs := &countedJoint{Full: core.NewMemoryStore()}
				l := newLimiter(t, core.Limits{core.PerHour(1000), c.limit}, core.WithStore(logs))
				acme, ctx := inOrg(t.Context(), "acme"), inOrg(t.Context(), "other")
				var held []core.Decision
				for i := range 4 {
					held = append(held, allowedIn(acme, t, l, "holder "+strconv.Itoa(i)))
				}
				var admitted atomic.Int64
				for i := range waiters {
					go func() {
						if d, err := l.Wait(acme, "user "+strconv.Itoa(i)); err == nil && d.Allowed {
							admitted.Add(1)
						}
					}()
				}
				synctest.Wait()
				asks := func(most int64, what string) {
					t.Helper()
					synctest.Wait()
					if n := logs.asked.Swap(0); n > most {
						t.Errorf("%s: the store was asked %d times, want at most %d", what, n, most)
					}
				}
				asks(4+waiters, "when they come")
				time.Sleep(10 * time.Second)
				asks(c.idle, "while they wait")
				c.giveBack(t, allowedIn(ctx, t, l, "k"))
				asks(1, "a request of another organisation")
				for _, d := range held {
					c.giveBack(t, d)
				}
				asks(2*4, "four units are given back")
				if n := admitted.Load(); n != 4 {
					t.Errorf("%d are admitted, want 4", n)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func undo(t *testing.T, d core.Decision) {
	t.Helper()
	if err := d.Undo(t.Context()); err != nil {
		t.Error(err)
	}
}

func allowedIn(ctx context.Context, t *testing.T, l *core.Limiter, key string) core.Decision {
	t.Helper()
	d, err := l.Allow(ctx, key)
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	return d
}

// With random limits, requests, waits and contexts that end, no call waits while there is room for it.
func TestNobodyWaitsWhileThereIsRoom(t *testing.T) {
	seed := rand.Uint64()
	for trial := range 60 {
		synctest.Test(t, func(t *testing.T) { waitTrial(t, seed, uint64(trial)) })
	}
}

func hasRoom(t *testing.T, l *core.Limiter, p pending) bool {
	t.Helper()
	d, err := l.Peek(p.ctx, p.key)
	if err != nil {
		t.Error(err)
	}
	return d.Allowed
}

// slowJoint is a store whose answers take time.
type slowJoint struct{ store.Full }

func (s slowJoint) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	time.Sleep(rand.N(4 * time.Millisecond))
	err := s.Full.Take(ctx, takes, answers)
	time.Sleep(rand.N(4 * time.Millisecond))
	return err
}

func (s slowJoint) Settle(ctx context.Context, settlement store.Settlement) error {
	time.Sleep(rand.N(4 * time.Millisecond))
	err := s.Full.Settle(ctx, settlement)
	time.Sleep(rand.N(4 * time.Millisecond))
	return err
}

type pending struct {
	*waiter

	ctx context.Context
	key string
}

func waitTrial(t *testing.T, seed, trial uint64) {
	r := rand.New(rand.NewPCG(seed, trial))
	org := core.ByValue(orgKey{})
	of := func(quota int, name string) core.Limit {
		limit := core.InFlight(quota)
		if r.IntN(2) == 0 {
			limit = core.Limit{Quota: quota, Window: time.Duration(5+r.IntN(20)) * time.Second}
		}
		limit.Name = name
		return limit
	}
	limits := core.Limits{
		of(1+r.IntN(3), "user"), of(1+r.IntN(4), "organisation").By(org), of(2+r.IntN(6), "all").By(core.Global()),
	}
	logs := store.Full(core.NewMemoryStore())
	if r.IntN(2) == 0 { // behind the guard, with questions that take time
		logs = slowJoint{logs}
	}
	l := newLimiter(t, limits, core.WithStore(logs), core.WithTimeout(10*time.Second), core.WithDenyCache(0))
	var held []core.Decision
	var waiting []pending
	var wg sync.WaitGroup
	defer wg.Wait()
	all, end := context.WithCancel(t.Context())
	defer end()
	for step := range 120 {
		user := r.IntN(6)
		key, ctx := "user "+strconv.Itoa(user), inOrg(all, strconv.Itoa(user%3))
		switch n := r.IntN(12); {
		case n < 4:
			ctx, cancel := context.WithCancel(ctx)
			w := &waiter{cancel: cancel, done: make(chan struct{})}
			wg.Go(func() {
				defer close(w.done)
				w.d, w.err = l.Wait(ctx, key)
			})
			waiting = append(waiting, pending{w, ctx, key})
		case n < 5:
			if d, err := l.Allow(ctx, key); err != nil {
				t.Error(err)
			} else if d.Allowed {
				held = append(held, d)
			}
		case n < 9 && len(held) > 0:
			i := r.IntN(len(held))
			d := held[i]
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
			wg.Go(func() {
				if n < 7 {
					release(t, d)
				} else {
					undo(t, d)
				}
			})
		case n < 10 && len(waiting) > 0:
			waiting[r.IntN(len(waiting))].cancel()
		case n < 11:
			if err := l.Reset(t.Context(), key); err != nil {
				t.Error(err)
			}
		default:
			time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		}
		if r.IntN(3) == 0 {
			continue // what comes next happens at the same time
		}
		time.Sleep(300 * time.Millisecond) // until all questions are answered
		synctest.Wait()
		waiting = slices.DeleteFunc(waiting, func(p pending) bool {
			if p.ended() && p.err == nil {
				held = append(held, p.d)
			}
			return p.ended()
		})
		for _, p := range waiting {
			if !hasRoom(t, l, p) {
				continue
			}
			time.Sleep(50 * time.Millisecond) // a question may be under way
			if synctest.Wait(); !p.ended() && hasRoom(t, l, p) {
				t.Fatalf("seed %#x, trial %d, step %d: %v: a call for %q waits, and there is room",
					seed, trial, step, limits, p.key)
			}
		}
	}
	end()
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A call that waits has one Decision on its stack, and not several.
func TestBytesOfAWaiter(t *testing.T) {
	if testlen.Race {
		t.Skip("the race detector takes memory for each goroutine")
	}
	if !alone(t) { // other tests' memory is freed at any time
		return
	}
	for desc, c := range map[string]struct {
		limits core.Policy
		key    func(int) string
		most   uint64
	}{
		"one key":  {core.PerHour(1), func(int) string { return "k" }, 7_000},
		"own keys": {core.PerHour(1), strconv.Itoa, 7_000},
		"a common limit": {
			core.Limits{core.PerHour(10), core.PerHour(1).By(core.Global())}, strconv.Itoa, 12_000,
		},
	} {
		t.Run(desc, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const waiters = 2_000
				l := newLimiter(t, c.limits)
				for i := range waiters {
					if _, err := l.Allow(t.Context(), c.key(i)); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				before := memoryInUse()
				for i := range waiters {
					go func() {
						if _, err := l.Wait(ctx, c.key(i)); err == nil {
							t.Error("admitted")
						}
					}()
				}
				synctest.Wait()
				if bytes := (memoryInUse() - before) / waiters; bytes > c.most {
					t.Errorf("a waiter takes %d bytes, want at most %d", bytes, c.most)
				}
			})
		})
	}
}

func memoryInUse() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
