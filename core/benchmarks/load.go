package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// load is how checks are offered.
type load struct {
	keys    []string // in turn, so that each gets its share
	workers int
	due     func(n int) time.Duration // when check n is to be made; nil is as soon as the workers can
	span    time.Duration             // it ends after that
	checks  int                       // or after so many, if not 0
	keeps   bool                      // the calls
}

// sample is what one load saw of one limiter.
type sample struct {
	checks  int
	allowed int
	failed  int
	err     error // the first
	elapsed time.Duration
	calls   []call
}

// run offers a load. A check that is due at an instant is not held up by workers who are late.
func (l load) run(c check) sample {
	ctx := context.Background()
	runtime.GC() // each starts without what the one before it left
	return inParallel(l.workers, func(i int, start time.Time) (s sample) {
		end := time.Duration(0)
		for n := i; l.checks == 0 || n < l.checks; n += l.workers {
			began := end
			if l.due != nil {
				time.Sleep(l.due(n) - time.Since(start))
				began = time.Since(start)
			}
			if l.span > 0 && began >= l.span {
				break
			}
			ok, err := c(ctx, l.keys[n%len(l.keys)])
			end = time.Since(start)
			s.count(ok, err)
			if l.keeps {
				s.calls = append(s.calls, call{start.Add(began).UnixNano(), start.Add(end).UnixNano(), ok, 0})
			}
		}
		return s
	})
}

// inParallel has workers work at once, and adds up what they saw.
func inParallel(workers int, work func(worker int, start time.Time) sample) (all sample) {
	each := make([]sample, workers)
	start := time.Now()
	var wait sync.WaitGroup
	for i := range each {
		wait.Go(func() { each[i] = work(i, start) })
	}
	wait.Wait()
	all.elapsed = time.Since(start)
	for _, s := range each {
		all.checks += s.checks
		all.allowed += s.allowed
		all.failed += s.failed
		all.err = cmp.Or(all.err, s.err)
		all.calls = append(all.calls, s.calls...)
	}
	return all
}

func (s *sample) count(ok bool, err error) {
	s.checks++
	if ok {
		s.allowed++
	}
	if err != nil {
		s.failed++
		s.err = cmp.Or(s.err, err)
	}
}

func (s *sample) second() float64 { return float64(s.checks) / s.elapsed.Seconds() }

// tolerated is the share of checks that may go wrong, which on a busy machine some do.
const tolerated = 0.01

// trouble says whether this was other work than was meant: who answers with errors, or denies what others admit, is the
// fastest of all.
func (s *sample) trouble(k kind, denied bool) error {
	share := func(n int) float64 { return float64(n) / float64(max(1, s.checks)) }
	switch {
	case s.checks == 0:
		return fmt.Errorf("no check was made")
	case share(s.failed) > tolerated:
		return fmt.Errorf("%.1f %% of its checks fail: %w", 100*share(s.failed), s.err)
	case k == floor:
		return nil
	case denied && share(s.allowed) > tolerated, !denied && share(s.allowed) < 1-tolerated:
		return fmt.Errorf("it allows %.1f %%", 100*share(s.allowed))
	}
	return nil
}
