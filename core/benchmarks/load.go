package main

import (
	"context"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"time"
)

// load is how checks are offered.
type load struct {
	keys    []string // in turn, so that each gets its share
	workers int
	rate    int             // checks a second; 0 is as many as the workers can
	at      []time.Duration // or when each is due, and then it keeps the calls
	span    time.Duration   // it ends after that
	checks  int             // or after so many, if not 0
}

// sample is what one load saw of one limiter.
type sample struct {
	checks  int
	allowed int
	failed  int
	err     error // the first
	took    histogram
	elapsed time.Duration
	allocs  float64 // of the process, a check
	calls   []call
}

// due is when check n is to be made, if there is such an instant.
func (l load) due(n int) (at time.Duration, ok bool) {
	switch {
	case l.at != nil:
		return l.at[n], true
	case l.rate > 0:
		return time.Duration(n) * time.Second / time.Duration(l.rate), true
	}
	return 0, false
}

// run offers a load. With a rate, check n is due at a fixed instant, so that a
// worker who is late holds up nobody else.
func (l load) run(c check) sample {
	workers := make([]sample, l.workers)
	ctx := context.Background()
	var before, after runtime.MemStats
	runtime.GC() // each starts without what the one before it left
	runtime.ReadMemStats(&before)
	start := time.Now()
	var wait sync.WaitGroup
	for i := range workers {
		wait.Go(func() {
			w, end := &workers[i], time.Duration(0)
			for n := i; l.checks == 0 || n < l.checks; n += l.workers {
				began := end
				if at, ok := l.due(n); ok {
					time.Sleep(at - time.Since(start))
					began = time.Since(start)
				}
				if l.span > 0 && began >= l.span {
					return
				}
				ok, err := c(ctx, l.keys[n%len(l.keys)])
				end = time.Since(start)
				w.count(ok, err, end-began)
				if l.at != nil {
					w.calls = append(w.calls, call{start.Add(began).UnixNano(), start.Add(end).UnixNano(), ok, 0})
				}
			}
		})
	}
	wait.Wait()
	s := sample{elapsed: time.Since(start)}
	runtime.ReadMemStats(&after)
	for i := range workers {
		s.merge(&workers[i])
	}
	s.allocs = float64(after.Mallocs-before.Mallocs) / float64(s.checks)
	return s
}

func (s *sample) count(ok bool, err error, took time.Duration) {
	s.checks++
	s.took.add(took)
	if ok {
		s.allowed++
	}
	if err != nil {
		s.failed++
		if s.err == nil {
			s.err = err
		}
	}
}

func (s *sample) merge(w *sample) {
	s.checks += w.checks
	s.allowed += w.allowed
	s.failed += w.failed
	if s.err == nil {
		s.err = w.err
	}
	s.calls = append(s.calls, w.calls...)
	for i, n := range w.took {
		s.took[i] += n
	}
}

func (s *sample) second() float64 { return float64(s.checks) / s.elapsed.Seconds() }

// tolerated is the share of checks that may go wrong, which on a busy machine
// some do.
const tolerated = 0.01

// trouble says whether this was other work than was meant: who answers with
// errors, or denies what others admit, is the fastest of all.
func (s *sample) trouble(k kind, denied bool) error {
	share := func(n int) float64 { return float64(n) / float64(max(1, s.checks)) }
	switch {
	case s.checks == 0:
		return fmt.Errorf("no check was made")
	case share(s.failed) > tolerated:
		return fmt.Errorf("%.1f %% of its checks fail: %w", 100*share(s.failed), s.err)
	case k == floor:
		return nil
	case denied && share(s.allowed) > 0.01, !denied && share(s.allowed) < 0.99:
		return fmt.Errorf("it allows %.1f %%", 100*share(s.allowed))
	}
	return nil
}

// histogram counts durations in steps of 1/32 of a power of two.
type histogram [2048]uint32

func (h *histogram) add(d time.Duration) {
	n := uint64(max(d, 0))
	shift := max(bits.Len64(n)-6, 0)
	h[shift*32+int(n>>shift)]++
}

// quantile is the middle of the step in which that share of all is reached.
func (h *histogram) quantile(share float64) time.Duration {
	total := 0.0
	for _, n := range h {
		total += float64(n)
	}
	sum := 0.0
	for i, n := range h {
		if sum += float64(n); sum < share*total {
			continue
		}
		if i < 64 {
			return time.Duration(i)
		}
		shift := i/32 - 1
		return time.Duration(i%32+32)<<shift + 1<<shift/2
	}
	return 0
}
