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

// inProcess are the tables of one check in the process's own memory.
type inProcess struct{ one, many *Table }

// memory measures one check of one key and of many, and the memory that keys take.
func (r *run) memory() {
	columns := []string{
		"one key", "one key, denied", "100,000 even", "100,000 zipf", "1,000,000 even", "1,000,000 zipf",
	}
	t := inProcess{
		one:  r.table("memory-1", "In memory: ns a check, 1 goroutine", columns...),
		many: r.table("memory-64", "In memory: ns from one check to the next, 64 goroutines", columns...),
	}
	size := r.table("memory-keys", "In memory: a key that is new, a million of them", "ns", "bytes")
	r.say("one key in memory")
	for range r.more() {
		for _, c := range inMemory() {
			for _, workers := range []int{1, 64} {
				r.oneKey(t, c, columns[0], workers, limit{quota: 10_000_000, window: time.Second}, false)
				r.oneKey(t, c, columns[1], workers, limit{quota: 1, window: time.Hour}, c.kind != floor)
			}
		}
	}
	r.manyKeys(t, 100_000, columns[2], columns[3], nil)
	r.manyKeys(t, r.million, columns[4], columns[5], size)
	t.one.against("go-limiter")
	t.many.against("go-limiter")
}

func (r *run) oneKey(t inProcess, c contestant, column string, workers int, lim limit, denied bool) {
	l, err := c.make(lim)
	if err != nil {
		t.one.row(c).fault(column, err)
		return
	}
	defer l.end()
	key := names(1)
	if denied {
		l.check(context.Background(), key[0])
	}
	r.measure(t, c, l, column, spin{keys: key, order: []uint32{0}, workers: workers, denied: denied})
}

// manyKeys are asked for evenly, and as the world asks: some far more than
// others.
func (r *run) manyKeys(t inProcess, n int, evenly, zipf string, size *Table) {
	r.say("%d keys in memory", n)
	keys := names(n)
	even, busy := make([]uint32, 1<<20), make([]uint32, 1<<20)
	chance := rand.New(rand.NewPCG(1, 2)) // the same for everyone
	law := rand.NewZipf(chance, 1.1, 1, uint64(n-1))
	place := chance.Perm(n) // or the busiest keys would lie beside each other
	for i := range even {
		even[i], busy[i] = uint32(chance.IntN(n)), uint32(place[law.Uint64()])
	}
	for range r.rounds {
		for _, c := range inMemory() {
			before := heap()
			// Nothing leaves a window of a minute while this lasts.
			l, err := c.make(limit{quota: 10_000_000, window: time.Minute, keys: n})
			if err != nil {
				t.one.row(c).fault(evenly, err)
				continue
			}
			start := time.Now()
			for _, key := range keys {
				if ok, err := l.check(context.Background(), key); !ok || err != nil {
					t.one.row(c).fault(evenly, errors.Join(errors.New("it denies a key that is new"), err))
					break
				}
			}
			if size != nil {
				size.row(c).add("ns", float64(time.Since(start))/float64(n))
				size.row(c).add("bytes", (heap()-before)/float64(n))
			}
			for _, workers := range []int{1, 64} {
				r.measure(t, c, l, evenly, spin{keys: keys, order: even, workers: workers})
				r.measure(t, c, l, zipf, spin{keys: keys, order: busy, workers: workers})
			}
			l.end()
		}
	}
}

func (r *run) measure(t inProcess, c contestant, l limiter, column string, s spin) {
	s.span = r.span / 16
	s.run(l.check) // warms up
	runtime.GC()   // begins without what the others left
	s.span = r.span / 5
	ns, err := s.run(l.check)
	table := t.one
	if s.workers > 1 {
		table = t.many
	}
	if err != nil {
		table.row(c).fault(column, err)
		return
	}
	table.row(c).add(column, ns)
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
