package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/sashlimit/sash/core"
)

// checks measures what a caller sees: how many checks, how long one takes,
// what it allocates, and what Redis spends on it under that load.
func (r *run) checks() {
	loads := []struct {
		column        string
		keys, workers int
		denied        bool
	}{
		{"16", 1000, 16, false},
		{"64", 1000, 64, false},
		{"256", 1000, 256, false},
		{"256, one key", 1, 256, false},
		{"256, denied", 1000, 256, true},
	}
	const alone = "1"
	columns := []string{alone}
	for _, l := range loads {
		columns = append(columns, l.column)
	}
	second := r.table("redis-checks", "Redis: checks a second, by goroutines", columns...)
	p50 := r.table("redis-p50", "Redis: µs a check, the median", columns...)
	p99 := r.table("redis-p99", "Redis: µs a check, the 99th percentile", columns...)
	allocs := r.table("redis-allocs", "Redis: allocations a check", columns...)
	thread := r.table("redis-cpu", "Redis: µs of its main thread a check, under that load", columns[1:]...)
	second.against("redis_rate")
	p50.against("redis_rate")
	p99.against("redis_rate")
	thread.against("redis_rate")

	s := r.server()
	note := func(c contestant, column string, sample *sample) {
		second.row(c).add(column, sample.second())
		p50.row(c).add(column, sample.took.quantile(0.50).Seconds()*1e6)
		p99.row(c).add(column, sample.took.quantile(0.99).Seconds()*1e6)
		allocs.row(c).add(column, sample.allocs)
	}
	turn := func(c contestant, column string, keys []string, workers int, denied bool) error {
		// More than anyone can do, and windows so short that entries leave as
		// others come.
		lim := limit{quota: 1_000_000 / len(keys), window: r.span / 8}
		switch {
		case denied:
			lim = limit{quota: 5, window: time.Hour}
		case len(keys) == 1:
			lim.quota = 100_000
		}
		s.flush()
		l, err := c.make(lim)
		if err != nil {
			return err
		}
		defer l.end()
		if denied {
			fill(l, c, keys, lim.quota)
		}
		offer := load{keys: keys, workers: workers, span: r.span / 8}
		offer.run(l.check) // dials, loads the script, fills the windows
		offer.span = r.span / 2
		before := s.used(c.command)
		sample := offer.run(l.check)
		after := s.used(c.command)
		if err := sample.trouble(c.kind, denied); err != nil {
			return err
		}
		note(c, column, &sample)
		thread.row(c).add(column, (after.thread-before.thread)/float64(sample.checks))
		return nil
	}
	r.say("checks in Redis, one at a time")
	for range r.more() {
		s.flush()
		all := inRedis(s.rdb)
		samples, faults := r.callAfterCall(all)
		for i, c := range all {
			if fault := cmp.Or(faults[i], samples[i].trouble(c.kind, false)); fault != nil {
				second.row(c).fault(alone, fault)
			} else {
				note(c, alone, &samples[i])
			}
		}
	}
	for _, l := range loads {
		r.say("checks in Redis, %s", l.column)
		for range r.more() {
			for _, c := range inRedis(s.rdb) {
				if err := turn(c, l.column, names(l.keys), l.workers, l.denied); err != nil {
					second.row(c).fault(l.column, err)
				}
			}
		}
	}
}

// callAfterCall gives the turn to the next contestant after each check of one: how long a single one takes depends
// on whether the kernel has put Redis to sleep, which it does for seconds on end or not at all. They share a heap, so
// who allocates much also holds up the others.
func (r *run) callAfterCall(all []contestant) (samples []sample, faults []error) {
	const each = 10 // keys, so that their logs hold some entries
	keys := names(each * len(all))
	samples, faults = make([]sample, len(all)), make([]error, len(all))
	limiters := make([]limiter, len(all))
	for i, c := range all {
		if limiters[i], faults[i] = c.make(limit{quota: 1000, window: r.span / 8}); faults[i] != nil {
			limiters[i].check = func(context.Context, string) (bool, error) { return false, nil }
			continue
		}
		defer limiters[i].end()
		offer := load{keys: keys[each*i : each*(i+1)], workers: 1, checks: 1000}
		offer.run(limiters[i].check) // dials, loads the script
		samples[i].allocs = offer.run(limiters[i].check).allocs
	}
	ctx := context.Background()
	runtime.GC()
	for n, start := 0, time.Now(); time.Since(start) < 2*r.span; n++ {
		for _, i := range rand.Perm(len(all)) { // or each would come after the same one
			s, began := &samples[i], time.Now()
			ok, err := limiters[i].check(ctx, keys[each*i+n%each])
			took := time.Since(began)
			s.count(ok, err, took)
			s.elapsed += took
		}
	}
	return samples, faults
}

// serverCost measures what Redis spends on one check. All contestants get the
// same checks at the same rate, which none of them finds hard, so that they
// decide about logs of the same length.
func (r *run) serverCost() {
	const rate = 10_000
	quotas := []int{5, 100, 1000, 10_000}
	columns := make([]string, 0, 2*len(quotas))
	for _, offer := range []string{"allow", "deny"} {
		for _, quota := range quotas {
			columns = append(columns, offer+" "+number(float64(quota)))
		}
	}
	script := r.table("redis-script", "Redis: µs within the script, by quota", columns...)
	thread := r.table("redis-thread", "Redis: µs of its main thread at 10,000 checks a second, by quota", columns...)
	script.against("redis_rate")
	thread.against("redis_rate")

	s := r.server()
	turn := func(c contestant, quota int, denied bool, column string) error {
		cost := max(1, c.cost)
		lim := limit{quota: quota, window: r.span * 5 / 8}
		offer := load{workers: 16, rate: rate}
		if denied {
			lim.window = time.Hour
			offer.keys = names(min(100, max(2, 20_000/quota)))
		} else { // half of the quota is asked for
			offer.keys = names(max(1, int(2*float64(rate*cost)*lim.window.Seconds()/float64(quota)+0.5)))
		}
		s.flush()
		l, err := c.make(lim)
		if err != nil {
			return err
		}
		defer l.end()
		if denied {
			fill(l, c, offer.keys, quota)
			offer.span = r.span / 16
		} else {
			offer.span = lim.window * time.Duration(max(1, c.windows)) // then all that keep a log drop entries
		}
		offer.run(l.check)
		offer.span = r.span / 2
		before := s.used(c.command)
		sample := offer.run(l.check)
		after := s.used(c.command)
		if err := sample.trouble(c.kind, denied); err != nil {
			return err
		}
		if c.command != "" {
			script.row(c).add(column, (after.command-before.command)/float64(sample.checks))
		}
		thread.row(c).add(column, (after.thread-before.thread)/float64(sample.checks))
		return nil
	}
	for _, c := range onServer(s.rdb) { // in this order, though not all have the first column
		script.row(c)
		thread.row(c)
	}
	for i, column := range columns {
		quota, denied := quotas[i%len(quotas)], i >= len(quotas)
		r.say("the server's cost, %s", column)
		for range r.rounds {
			for _, c := range onServer(s.rdb) {
				if c.cost > quota {
					continue
				}
				if err := turn(c, quota, denied, column); err != nil {
					thread.row(c).fault(column, err)
				}
			}
		}
	}
}

// serverBytes measures what a key takes in Redis when its quota is used up.
func (r *run) serverBytes() {
	quotas := []int{10, 100, 1000, 10_000}
	var columns []string
	for _, quota := range quotas {
		columns = append(columns, "a key of "+number(float64(quota)), "a unit of "+number(float64(quota)))
	}
	t := r.table("redis-bytes", "Redis: bytes, where the quota is used up", columns...)
	s := r.server()
	r.say("bytes in Redis")
	for i, quota := range quotas {
		for _, c := range []contestant{
			sash("sash", one, remote(s.rdb)),
			costing(10, sash("sash", one, remote(s.rdb))),
			sash("sash, Stream", one, streams(s.rdb)),
			sash("sash, fixed window", using(core.FixedWindow), remote(s.rdb)),
			sash("sash, sliding counter", using(core.SlidingCounter), remote(s.rdb)),
			sash("sash, token bucket", bucketOf, remote(s.rdb)),
			redisRate(s.rdb),
			ululeRedis(s.rdb),
			throttledRedis(s.rdb),
		} {
			s.flush()
			l, err := c.make(limit{quota: quota, window: time.Hour})
			if err != nil {
				t.row(c).fault(columns[2*i], err)
				continue
			}
			fill(l, c, names(1), quota)
			n := float64(s.bytes())
			t.row(c).add(columns[2*i], n)
			t.row(c).add(columns[2*i+1], n/float64(quota))
			l.end()
		}
	}
}

// fill uses up the quota of each key, one check after another: some give up
// where two meet.
func fill(l limiter, c contestant, keys []string, quota int) {
	load{keys: keys, workers: min(16, len(keys)), checks: len(keys) * quota / max(1, c.cost)}.run(l.check)
}

func names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("user-%07d", i)
	}
	return names
}
