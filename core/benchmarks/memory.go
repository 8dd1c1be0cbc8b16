package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"
)

// setup is how keys are asked for in the process's own memory.
type setup struct {
	keys   int
	limit  limit
	denied bool
	even   string // the column of keys that are asked for evenly
	zipf   string // and of some far more than others, as the world asks
}

// memory measures one check of one key and of many, and the memory that keys take.
func (r *run) memory() {
	busy := limit{quota: 10_000_000, window: time.Second}
	long := limit{quota: 10_000_000, window: time.Minute} // nothing leaves it while this lasts
	setups := []setup{
		{1, busy, false, "one key", ""},
		{1, limit{quota: 1, window: time.Hour}, true, "one key, denied", ""},
		{100_000, long, false, "100,000 even", "100,000 zipf"},
		{r.million, long, false, "1,000,000 even", "1,000,000 zipf"},
	}
	one := r.table("memory-1", "In memory: ns a check, 1 goroutine", "go-limiter")
	many := r.table("memory-64", "In memory: ns from one check to the next, 64 goroutines", "go-limiter")
	size := r.table("memory-keys", "In memory: a key that is new, a million of them", "")
	for _, s := range setups {
		r.say("in memory: %s", s.even)
		keys := names(s.keys)
		even, zipf := orders(s.keys)
		for range r.rounds {
			for _, c := range inMemory() {
				before := heap()
				s.limit.keys = s.keys
				l, err := c.make(s.limit)
				if err != nil {
					one.row(c).fault(s.even, err)
					continue
				}
				start := time.Now()
				for _, key := range keys {
					if ok, err := l.check(context.Background(), key); !ok || err != nil {
						one.row(c).fault(s.even, errors.Join(errors.New("it denies a key that is new"), err))
						break
					}
				}
				if s.keys == r.million {
					size.row(c).add("ns", float64(time.Since(start))/float64(s.keys))
					size.row(c).add("bytes", (heap()-before)/float64(s.keys))
				}
				for i, t := range []*Table{one, many} {
					asks := spin{keys: keys, order: even, workers: []int{1, 64}[i], denied: s.denied}
					r.measure(t.row(c), l, s.even, asks)
					if asks.order = zipf; s.zipf != "" {
						r.measure(t.row(c), l, s.zipf, asks)
					}
				}
				l.end()
			}
		}
	}
}

// orders are in which keys are asked for, the same for everyone.
func orders(n int) (even, zipf []uint32) {
	even, zipf = make([]uint32, 1<<20), make([]uint32, 1<<20)
	chance := rand.New(rand.NewPCG(1, 2))
	law := rand.NewZipf(chance, 1.1, 1, uint64(max(n-1, 1)))
	place := chance.Perm(max(n, 2)) // or the busiest keys would lie beside each other
	for i := range even {
		even[i], zipf[i] = uint32(chance.IntN(n)), uint32(place[law.Uint64()])
	}
	return even, zipf
}

func (r *run) measure(row *Row, l limiter, column string, s spin) {
	s.span = r.span / 16
	s.run(l.check) // warms up
	runtime.GC()   // begins without what the others left
	s.span = r.span / 5
	got := s.run(l.check)
	row.put(column, float64(got.elapsed)/float64(got.checks), got.trouble(row.Kind, s.denied))
}

// spin asks for keys in a given order, as fast as it can.
type spin struct {
	keys    []string
	order   []uint32 // a power of two of them
	workers int
	span    time.Duration
	denied  bool
}

func (s spin) run(c check) sample {
	ctx := context.Background()
	return inParallel(s.workers, func(i int, start time.Time) (got sample) {
		at, mask := i*len(s.order)/s.workers, len(s.order)-1
		for time.Since(start) < s.span {
			for range 64 { // the clock is not the limiter's
				got.count(c(ctx, s.keys[s.order[at&mask]]))
				at++
			}
		}
		return got
	})
}

// heap is what is in use.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what is in a sync.Pool goes with the second
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
