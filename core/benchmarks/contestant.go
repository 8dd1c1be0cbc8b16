// Package benchmarks measures sash beside other rate limiters and beside the
// least that the same work can cost. It is a module of its own, so that its
// contestants are nobody's dependencies.
package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
)

// check asks once whether key may go on. An error fails the whole run: a
// contestant that answers nothing is the fastest of all.
type check func(ctx context.Context, key string) (allowed bool, err error)

// contestant is one way to limit in Redis.
type contestant struct {
	name    string
	command string // what it sends, as INFO commandstats calls it
	floor   bool   // it decides nothing and is there to show what the rest costs
	prepare func(rdb *redis.Client, quota int, window time.Duration) (check, error)
}

// contestants run in this order, in turn. Ratios are to the first.
var contestants = []contestant{sashOne, sashTwo, redisRate, floorEvalsha, floorPing}

// load is how checks are offered.
type load struct {
	keys    []string // in turn, so that each gets its share
	workers int
	rate    int // checks a second; 0 is as many as the workers can
	span    time.Duration
}

// sample is what one load saw of one contestant.
type sample struct {
	checks   int
	allowed  float64 // of all checks
	second   float64 // checks a second
	p50, p99 time.Duration
	allocs   float64 // of the process, a check
}

// run offers a load. With a rate, check n is due at a fixed instant, and a
// worker that is late does not slow down the checks that follow.
func (l load) run(ctx context.Context, c check) (sample, error) {
	type worker struct {
		took    []time.Duration
		allowed int
		err     error
	}
	workers := make([]worker, l.workers)
	for i := range workers {
		workers[i].took = make([]time.Duration, 0, 1000+200_000/l.workers) // not to be counted as the contestant's
	}
	var (
		before, after runtime.MemStats
		next          atomic.Int64
		wait          sync.WaitGroup
	)
	runtime.GC() // each starts without what the one before it left
	runtime.ReadMemStats(&before)
	start := time.Now()
	for i := range workers {
		wait.Go(func() {
			w := &workers[i]
			for w.err == nil {
				n := next.Add(1) - 1
				if l.rate > 0 {
					time.Sleep(time.Duration(n)*time.Second/time.Duration(l.rate) - time.Since(start))
				}
				began := time.Since(start)
				if began >= l.span {
					return
				}
				var ok bool
				ok, w.err = c(ctx, l.keys[int(n)%len(l.keys)])
				w.took = append(w.took, time.Since(start)-began)
				if ok {
					w.allowed++
				}
			}
		})
	}
	wait.Wait()
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)

	var s sample
	var took []time.Duration
	allowed := 0
	var errs []error
	for i := range workers {
		took = append(took, workers[i].took...)
		allowed += workers[i].allowed
		errs = append(errs, workers[i].err)
	}
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	if len(took) == 0 {
		return s, errors.New("no check was made")
	}
	slices.Sort(took)
	s.checks = len(took)
	s.allowed = float64(allowed) / float64(s.checks)
	s.second = float64(s.checks) / elapsed.Seconds()
	s.p50, s.p99 = took[len(took)/2], took[len(took)*99/100]
	s.allocs = float64(after.Mallocs-before.Mallocs) / float64(s.checks)
	return s, nil
}

// series are the values of one cell of a table, one of each round.
type series []float64

func (s series) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratio is the median of the ratios within each round: what slows down the
// machine for a while slows down both sides of a ratio.
func (s series) ratio(to series) float64 {
	each := make(series, len(s))
	for i := range s {
		each[i] = s[i] / to[i]
	}
	return each.median()
}

// above is the median of the differences within each round.
func (s series) above(floor series) float64 {
	each := make(series, len(s))
	for i := range s {
		each[i] = s[i] - floor[i]
	}
	return each.median()
}

// table prints rows in columns that line up, the first to the left and the
// others to the right.
type table struct {
	out  io.Writer
	rows [][]string
}

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

func (t *table) print(title string) {
	fmt.Fprintf(t.out, "\n\n%s\n\n", title)
	widest := 0
	for _, r := range t.rows {
		widest = max(widest, len(r[0]))
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, r := range t.rows {
		fmt.Fprintf(w, "%-*s\t", widest, r[0])
		for _, c := range r[1:] {
			fmt.Fprintf(w, "%s\t", c)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Fprintln(t.out)
}
