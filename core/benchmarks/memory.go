package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
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
	one := r.table("memory-1", "In memory: ns a check, 1 goroutine")
	many := r.table("memory-64", "In memory: ns from one check to the next, 64 goroutines")
	size := r.table("memory-keys", "In memory: a key that is new, a million of them", "ns", "bytes")
	for _, s := range setups {
		r.say("in memory: %s", s.even)
		for _, t := range []*Table{one, many} {
			if t.Columns = append(t.Columns, s.even); s.zipf != "" {
				t.Columns = append(t.Columns, s.zipf)
			}
			t.against("go-limiter")
		}
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
					asks := spin{keys: keys, order: even, workers: []int{1, 64}[i], denied: s.denied && c.kind != floor}
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
	if ns, err := s.run(l.check); err != nil {
		row.fault(column, err)
	} else {
		row.add(column, ns)
	}
}

// spin asks for keys in a given order, as fast as it can.
type spin struct {
	keys    []string
	order   []uint32 // a power of two of them
	workers int
	span    time.Duration
	denied  bool
}

// run returns the time from one check of the process to the next.
func (s spin) run(c check) (ns float64, err error) {
	type worker struct {
		checks, wrong int
		err           error
		_             [64]byte // no two on one cache line
	}
	workers := make([]worker, s.workers)
	ctx := context.Background()
	start := time.Now()
	var wait sync.WaitGroup
	for i := range workers {
		wait.Go(func() {
			w, at, mask := &workers[i], i*len(s.order)/s.workers, len(s.order)-1
			for time.Since(start) < s.span {
				for range 64 { // the clock is not the limiter's
					ok, err := c(ctx, s.keys[s.order[at&mask]])
					if ok == s.denied || err != nil {
						w.wrong++
						w.err = err
					}
					at++
				}
				w.checks += 64
			}
		})
	}
	wait.Wait()
	elapsed := time.Since(start)
	var all worker
	for i := range workers {
		all.checks += workers[i].checks
		all.wrong += workers[i].wrong
		all.err = cmp.Or(all.err, workers[i].err)
	}
	checks := float64(all.checks)
	if share := float64(all.wrong) / checks; share > tolerated {
		cause := cmp.Or(all.err, errors.New("allowed or denied against the limit"))
		err = fmt.Errorf("%.1f %% of its checks go wrong: %w", 100*share, cause)
	}
	return float64(elapsed) / checks, err
}

// heap is what is in use.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what is in a sync.Pool goes with the second
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
