package main

import (
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
	elapsed time.Duration
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
	runtime.GC() // each starts without what the one before it left
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
				w.count(ok, err)
				if l.at != nil {
					w.calls = append(w.calls, call{start.Add(began).UnixNano(), start.Add(end).UnixNano(), ok, 0})
				}
			}
		})
	}
	wait.Wait()
	s := sample{elapsed: time.Since(start)}
	for i := range workers {
		s.merge(&workers[i])
	}
	return s
}

func (s *sample) count(ok bool, err error) {
	s.checks++
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
