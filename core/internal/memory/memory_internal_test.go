package memory

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/allocs"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

func sliding(quota int, window time.Duration) *store.Limit {
	return &store.Limit{Log: window.String(), Quota: quota, Window: window}
}

// policy makes takes of keys under one limit.
type policy struct {
	s     *Store
	ns    *store.Namespace
	limit *store.Limit
}

func newPolicy(s *Store, name string, limit *store.Limit) policy {
	return policy{s, store.NewNamespace(name, "own", nil), limit}
}

func (p policy) key(text string) store.Key {
	return store.Key{Namespace: p.ns, Identity: store.Identity{Kind: "by", Text: text}}
}

func (p policy) take(text string, cost int, mode store.Mode) (id uint64, a store.Answer) {
	takes := []store.Take{{Key: p.key(text), Limit: p.limit, Cost: cost, Mode: mode}}
	answers := make([]store.Answer, 1)
	p.s.Take(takes, answers)
	return takes[0].ID, answers[0]
}

func (p policy) allow(text string) bool {
	_, a := p.take(text, 1, store.ModeCharge)
	return a.Allowed
}

func (p policy) used(text string) int {
	_, a := p.take(text, 1, store.ModePeek)
	return a.Used
}

func (p policy) giveBack(text string, id uint64) {
	p.s.Settle(&store.Settlement{Key: p.key(text), Limit: p.limit, ID: id})
}

func (p policy) reset(text string) {
	k := p.key(text)
	p.s.Reset(&k, []*store.Limit{p.limit}, 0)
}

// of returns the entry that has the logs of a key, or nil, after f has looked at it, unless f is nil.
func (s *Store) of(k store.Key, f func(*entry)) *entry {
	p := s.lock(&k, sliding(1, 1), false)
	defer p.unlock()
	if f != nil && p.entry != nil {
		f(p.entry)
	}
	return p.entry
}

// Takes of one or several logs of a key, of other algorithms too, allocate nothing once their logs have their size.
func TestNothingIsAllocated(t *testing.T) {
	testlen.SkipRace(t) // with the race detector, some of what is on the stack is on the heap
	p := newPolicy(New(1000), "p", sliding(100, time.Second))
	other := newPolicy(p.s, "q", p.limit)
	bucket := &store.Limit{Log: "b", Quota: 10, Window: time.Second, Algorithm: store.TokenBucket, Refill: 1000}
	month := &store.Limit{Log: "m", Quota: 10, Window: time.Hour, Algorithm: store.FixedWindow}
	take := func(p policy, l *store.Limit, cost int, mode store.Mode) store.Take {
		return store.Take{Key: p.key("k"), Limit: l, Cost: cost, Mode: mode}
	}
	for name, takes := range map[string][]store.Take{
		"one":      {take(p, p.limit, 1, store.ModeCharge)},
		"peek":     {take(p, p.limit, 1, store.ModePeek)},
		"cost":     {take(p, sliding(1000, 2*time.Second), 5, store.ModeCharge)},
		"at most":  {take(p, sliding(5, 3*time.Millisecond), 5, store.ModeAtMost)},
		"several":  {take(p, p.limit, 1, store.ModeCharge), take(p, bucket, 1, 0), take(p, month, 1, 0)},
		"two keys": {take(p, p.limit, 1, store.ModeCharge), take(other, p.limit, 1, store.ModeCharge)},
	} {
		answers := make([]store.Answer, len(takes))
		do := func() {
			for i := range takes {
				takes[i].ID = 0
			}
			p.s.Take(takes, answers)
		}
		for range 20_000 {
			do()
		}
		if n := allocs.PerRun(5000, do); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Several logs of a key are decided together, under the lock of the key alone, and are settled each by the ID that it
// gave.
func TestSeveralLogsOfOneKey(t *testing.T) {
	p := newPolicy(New(10), "p", nil)
	limits := []*store.Limit{sliding(3, time.Hour), sliding(2, time.Minute)}
	ids := [2][]uint64{}
	take := func(allowed, used int) {
		t.Helper()
		takes, answers := make([]store.Take, 2), make([]store.Answer, 2)
		for i, l := range limits {
			takes[i] = store.Take{Key: p.key("k"), Limit: l, Cost: 1}
		}
		p.s.Take(takes, answers)
		for i, a := range answers {
			if ids[i] = append(ids[i], takes[i].ID); a.Allowed != (i < allowed) || a.Used != used {
				t.Errorf("log %d: %+v, want %d allowed, %d used", i, a, allowed, used)
			}
		}
	}
	p.limit = limits[0]
	p.allow("k") // the first log has another ID
	p.giveBack("k", 1)
	take(2, 0)
	for i := range p.s.shards { // a take that needs one of these locks would wait without end
		p.s.shards[i].mu.Lock()
	}
	take(2, 1)
	take(1, 2)
	take(1, 2)
	for i := range p.s.shards {
		p.s.shards[i].mu.Unlock()
	}
	for i, l := range limits {
		p.limit = l
		p.giveBack("k", ids[i][0])
	}
	take(2, 1)
	if ids[0][0] == ids[1][0] {
		t.Errorf("IDs %d: each log gives its own", ids)
	}
}

// An entry is three cache lines, and its first log lies within.
func TestSizes(t *testing.T) {
	p := newPolicy(New(10), "p", sliding(10, time.Hour))
	before := p.s.Bytes()
	p.allow("k")
	if n := p.s.Bytes() - before - smallestTable*16; n != 192 && math.MaxInt > math.MaxInt32 {
		t.Errorf("a key takes %d bytes, want 192: the documentation tells the memory of keys", n)
	}
}

// Bytes is about what the heap has grown by.
func TestBytes(t *testing.T) {
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for _, cost := range []int{1, 2} { // logs are kept in another way if requests cost more than a unit
		before := heap()
		p := newPolicy(New(100_000), "p", sliding(1000, time.Hour))
		for i := range 5000 {
			text := fmt.Sprintf("a key whose text is longer than fits into the log %d", i)
			for range i % 100 {
				p.take(text, cost, store.ModeCharge)
			}
		}
		grown, got := heap()-before, p.s.Bytes()
		if got > grown+grown/20 || got < grown*9/10 {
			t.Errorf("cost %d: %d bytes, but the heap has grown by %d", cost, got, grown)
		}
		runtime.KeepAlive(p.s)
	}
}

// Logs without entries are removed, so that other keys get their places.
func TestVoidEntriesAreRemoved(t *testing.T) {
	for name, take := range map[string]func(policy, string){
		"undone": func(p policy, key string) {
			id, _ := p.take(key, 1, store.ModeCharge)
			p.giveBack(key, id)
		},
		"never": func(p policy, key string) { p.take(key, 11, store.ModeCharge) },
		"reset": func(p policy, key string) {
			p.take(key, 1, store.ModeCharge)
			p.reset(key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPolicy(New(1000), "p", sliding(10, 24*time.Hour))
				for i := range 5000 {
					take(p, fmt.Sprint(i))
				}
				if p.s.Shared() > 0 {
					t.Errorf("%d takes of shared logs; want none", p.s.Shared())
				}
				time.Sleep(sweepPeriod + time.Second)
				if synctest.Wait(); p.s.Keys() > 0 {
					t.Errorf("%d keys", p.s.Keys())
				}
			})
		})
	}
}

// Peeks at keys without a log take no places.
func TestPeeksAddNothing(t *testing.T) {
	p := newPolicy(New(10), "p", sliding(1, time.Minute))
	if _, a := p.take("a", 1, store.ModePeek); !a.Allowed || p.s.Keys() != 0 {
		t.Errorf("%+v, and %d keys have a place; want none", a, p.s.Keys())
	}
}

// The logs of one key are removed each when it is void, and the entry with the last.
func TestLogsLeaveOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy(New(10), "p", nil)
		logs := func() (n int) {
			p.s.of(p.key("k"), func(e *entry) {
				for l := &e.log; l != nil; l = l.next {
					n++
				}
			})
			return n
		}
		for _, window := range []time.Duration{time.Hour, time.Minute, 24 * time.Hour, 10 * time.Minute} {
			p.limit = sliding(5, window)
			p.allow("k")
		}
		for _, c := range []struct {
			at   time.Duration
			logs int
		}{{0, 4}, {2 * time.Minute, 3}, {11 * time.Minute, 2}, {2 * time.Hour, 2}, {25 * time.Hour, 0}} {
			time.Sleep(c.at - time.Duration(p.s.clock()))
			synctest.Wait()
			if n := logs(); n != c.logs {
				t.Errorf("%d logs after %v, want %d: the first is part of the entry", n, c.at, c.logs)
			}
		}
		if p.s.Keys() != 0 || p.s.timerAt.Load() != noTimer {
			t.Errorf("%d keys, a timer at %d", p.s.Keys(), p.s.timerAt.Load())
		}
	})
}

// Instants do not decrease, though a caller may read the clock first and get the lock last.
func TestInstantsDoNotDecrease(t *testing.T) {
	p := newPolicy(New(10), "p", sliding(1, time.Hour))
	p.allow("k")
	e := p.s.of(p.key("k"), nil)
	later := e.now + int64(2*time.Hour)
	e.now = later
	if !p.allow("k") {
		t.Error("denied by a unit that has left the window")
	}
	k := p.key("k")
	if all := p.s.Log(&k, p.limit); len(all) != 1 || int64(all[0].At.Sub(p.s.start)) != later {
		t.Errorf("%v, want an entry at %v", all, time.Duration(later))
	}
}

// A take that has found an entry which is removed before it gets the lock uses the next one of the key, whose IDs are
// others: a settlement of what was removed does nothing.
func TestRemovedEntry(t *testing.T) {
	p := newPolicy(New(10), "p", sliding(10, time.Hour))
	first, _ := p.take("k", 1, store.ModeCharge)
	e := p.s.of(p.key("k"), nil)
	p.reset("k")
	if e.takeOne(&store.Take{Key: p.key("k"), Limit: p.limit, Cost: 1}, new(store.Answer), instant{}) {
		t.Error("a removed entry decides")
	}
	second, a := p.take("k", 1, store.ModeCharge)
	if p.giveBack("k", first); !a.Allowed || first == second || p.used("k") != 1 || p.s.Keys() != 1 {
		t.Errorf("id %d, then %d, %+v; %d used, %d keys", first, second, a, p.used("k"), p.s.Keys())
	}
}

// The same holds for one of several logs of a key.
func TestRemovedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := newPolicy(New(10), "p", sliding(10, time.Hour))
		short := policy{long.s, long.ns, sliding(10, time.Second)}
		long.allow("k")
		first, _ := short.take("k", 1, store.ModeCharge)
		time.Sleep(time.Minute)
		short.s.sweepAll()
		second, a := short.take("k", 1, store.ModeCharge)
		if short.giveBack("k", first); a.Used != 0 || first == second || short.used("k") != 1 {
			t.Errorf("id %d, then %d, %+v; %d used", first, second, a, short.used("k"))
		}
	})
}

// The longest lease with which permits of a log were renewed holds for all of them, also where keys share a log. They
// leave when it has ended.
func TestPermits(t *testing.T) {
	for _, places := range []int{100, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := New(places)
			newPolicy(s, "filler", sliding(1, time.Hour)).allow("x")
			lease := &store.Limit{Log: "p", Quota: 3, Window: 3 * time.Second, Permits: true}
			longer := *lease
			longer.Window = time.Minute
			p := newPolicy(s, "p", lease)
			first, _ := p.take("a", 1, store.ModeCharge)
			p.take("a", 1, store.ModeCharge)
			s.Renew(&store.Renewal{Key: p.key("a"), Limit: &longer, IDs: []uint64{first}})
			time.Sleep(30 * time.Second)
			if n := p.used("a"); n != 2 {
				t.Errorf("%d places: %d permits, want both by the longer lease", places, n)
			}
			time.Sleep(2 * time.Minute)
			if synctest.Wait(); s.sharing.Load() != 0 || s.Keys() != 1 {
				t.Errorf("%d places: %d keys, %d shared entries", places, s.Keys(), s.sharing.Load())
			}
		})
	}
}

// Entries may be merged without an ID, and may be older than those of the log.
func TestMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, places := range []int{100, 1} {
			s := New(places)
			newPolicy(s, "filler", sliding(1, time.Hour)).allow("x")
			p := newPolicy(s, "p", sliding(9, time.Hour))
			p.allow("b")
			k := p.key("b")
			m := store.MergeRequest{Key: k, Limit: p.limit, Entries: []store.Entry{
				{ID: 7000, Cost: 2, Age: time.Minute}, {Cost: 1}, {ID: 7001, Cost: 1, Age: time.Hour},
			}}
			s.Merge(&m)
			all := s.Log(&k, p.limit)
			if len(all) != 3 || all[0].Cost != 2 || all[0].Age != time.Minute {
				t.Errorf("%d places: %v", places, all)
			}
		}
	})
}

// The memory of a burst is freed two windows after it, also while the key is in use, but not while each window has such
// a burst.
func TestBurstsMemory(t *testing.T) {
	for cost, each := range map[int]int{1: 8, 2: 24} { // bytes of an entry
		synctest.Test(t, func(t *testing.T) {
			const burst = 10_000
			p := newPolicy(New(100), "p", sliding(4*burst, time.Minute))
			take := func(n int) {
				for range n {
					p.take("k", cost, store.ModeCharge)
				}
			}
			size := func() (n int) {
				p.s.of(p.key("k"), func(e *entry) { n = e.Bytes() / each })
				return n
			}
			for i := range 10 {
				take(burst)
				time.Sleep(59 * time.Second)
				if n := size(); n < burst {
					t.Errorf("cost %d: memory for %d after burst %d", cost, n, i)
				}
			}
			for range 120 {
				time.Sleep(time.Second)
				take(1)
			}
			if n := size(); n > 256 {
				t.Errorf("cost %d: memory for %d two windows after the last burst, for 60 entries", cost, n)
			}
		})
	}
}

// The timer removes each entry when it is void, and ends with the last.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1000)
		for _, window := range []time.Duration{48 * time.Hour, time.Hour, time.Minute, time.Second, 24 * time.Hour} {
			newPolicy(s, window.String(), sliding(1, window)).allow("k")
		}
		for _, c := range []struct {
			after time.Duration
			keys  int
		}{{31 * time.Second, 4}, {92 * time.Second, 3}, {2 * time.Hour, 2}, {25 * time.Hour, 1}, {49 * time.Hour, 0}} {
			time.Sleep(c.after - time.Duration(s.clock()))
			if synctest.Wait(); s.Keys() != c.keys {
				t.Errorf("%d keys after %v, want %d", s.Keys(), c.after, c.keys)
			}
		}
		if s.timerAt.Load() != noTimer {
			t.Errorf("a timer at %v", time.Duration(s.timerAt.Load()))
		}
	})
}

// A sweep by timer handles few entries each time it holds a shard's lock, and all of them in the end.
func TestSweepsHoldLocksBriefly(t *testing.T) {
	testlen.SkipRace(t)
	synctest.Test(t, func(t *testing.T) {
		const keys = 20_000
		p := newPolicy(New(1<<18), "p", sliding(1, time.Minute))
		for i := range keys {
			p.allow(strconv.Itoa(i))
		}
		p.s.timerAt.Store(noTimer) // the pending timer does nothing
		time.Sleep(2 * time.Minute)
		for i := range p.s.shards {
			sh := &p.s.shards[i]
			before := sh.entries.used
			sh.now = p.s.clock()
			if sh.sweep(p.s, 0); before-sh.entries.used > 2*sweepAtOnce || before < keys/shardCount/2 {
				t.Fatalf("%d of %d entries are removed at once", before-sh.entries.used, before)
			}
		}
		if p.s.sweepAll(); p.s.Keys() > 0 || len(p.s.shards[0].entries.all()) > 0 {
			t.Errorf("%d keys remain, in %d slots", p.s.Keys(), len(p.s.shards[0].entries.all()))
		}
	})
}

// Takes of one or several keys find and add entries, and find them removed, while others come and go. No key is over or
// below its quota.
func TestKeysComeAndGo(t *testing.T) {
	const keys, quota, callers = 300, 5, 4
	s := New(1000)
	steady := newPolicy(s, "steady", sliding(quota, time.Hour))
	fleeting := newPolicy(s, "fleeting", sliding(1, time.Millisecond))
	for i := range keys { // before other keys take the places
		steady.allow(strconv.Itoa(i))
	}
	var takes, background sync.WaitGroup
	done := make(chan struct{})
	until := func(f func(i int)) func() {
		return func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					f(i)
				}
			}
		}
	}
	background.Go(until(func(int) { s.sweepAll() }))
	background.Go(until(func(i int) {
		if key := strconv.Itoa(i % 5000); !fleeting.allow(key) && i%3 == 0 {
			fleeting.reset(key)
		}
	}))
	var mu sync.Mutex
	var allowed [keys]int
	for range callers {
		takes.Go(func() {
			for i := range 20 * keys {
				list := []store.Take{{Key: steady.key(strconv.Itoa(i % keys)), Limit: steady.limit, Cost: 1}}
				if i%2 == 0 { // with another key, which is mostly in use or without an entry
					list = append(list, store.Take{
						Key: fleeting.key(strconv.Itoa(i % 50)), Limit: sliding(1<<20, time.Second), Cost: 1,
					})
				}
				answers := make([]store.Answer, len(list))
				s.Take(list, answers)
				if answers[0].Allowed && answers[len(list)-1].Allowed {
					mu.Lock()
					allowed[i%keys]++
					mu.Unlock()
				}
			}
		})
	}
	takes.Wait()
	close(done)
	background.Wait()
	for k, n := range allowed {
		if n != quota-1 {
			t.Errorf("key %d was allowed %d of %d", k, n, quota-1)
		}
	}
}
