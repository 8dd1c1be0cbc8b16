package main

import (
	"fmt"
	"time"
)

// loads are how many goroutines offer checks of how many keys, by column.
var loads = []struct {
	column, title string
	keys, workers int
	denied        bool
}{
	{"1", "1 goroutine", 10, 1, false},
	{"16", "16 goroutines, 1,000 keys", 1000, 16, false},
	{"64", "64 goroutines, 1,000 keys", 1000, 64, false},
	{"256", "256 goroutines, 1,000 keys", 1000, 256, false},
	{"256, denied", "256 goroutines, repeated denials", 1000, 256, true},
}

// checks measures how many checks there are in a second, and what Redis spends on one under that load.
func (r *run) checks() {
	second := r.table("redis-checks", "Redis: checks a second, by goroutines", "redis_rate")
	thread := r.table("redis-cpu", "Redis: µs of its main thread a check, under that load", "redis_rate")
	s := r.server()
	for _, l := range loads {
		r.say("checks in Redis, %s", l.column)
		for range r.more() {
			for _, c := range inRedis(s.rdb) {
				// More than anyone can do, and windows so short that entries leave as others come.
				lim := limit{quota: 1_000_000 / l.keys, window: r.span / 8}
				if l.denied {
					lim = limit{quota: 5, window: time.Hour}
				}
				offer := load{keys: names(l.keys), workers: l.workers, span: r.span / 2}
				sample, micros, err := s.offer(c, lim, offer, r.span/8, l.denied)
				second.row(c).put(l.column, sample.second(), err)
				thread.row(c).put(l.column, micros, err)
			}
		}
	}
}

// serverCost measures what Redis spends on one check. All contestants get the same checks at the same rate, which none
// of them finds hard, so that they decide about logs of the same length.
func (r *run) serverCost() {
	const rate = 10_000
	due := func(n int) time.Duration { return time.Duration(n) * time.Second / rate }
	quotas := []int{100, 1000, 10_000}
	t := r.table("redis-thread", "Redis: µs of its main thread at 10,000 checks a second, by quota", "redis_rate")
	s := r.server()
	for _, verb := range []string{"allow", "deny"} {
		for _, quota := range quotas {
			column, denied := verb+" "+number(float64(quota)), verb == "deny"
			lim, offer := limit{quota: quota, window: r.span * 5 / 8}, load{workers: 16, due: due, span: r.span / 2}
			warm := 2 * lim.window // then all that keep a log drop entries
			if denied {
				lim.window, warm = time.Hour, r.span/16
				offer.keys = names(max(2, 20_000/quota))
			} else { // half of the quota is asked for
				offer.keys = names(max(1, int(2*rate*lim.window.Seconds()/float64(quota)+0.5)))
			}
			r.say("the server's cost, %s", column)
			for range r.rounds {
				for _, c := range append(inRedis(s.rdb)[1:], algorithms(s.rdb)...) {
					_, micros, err := s.offer(c, lim, offer, warm, denied)
					t.row(c).put(column, micros, err)
				}
			}
		}
	}
}

// offer warms a contestant up, offers it a load, and returns also what Redis spends on a check. Denials are measured
// with quotas that are used up.
func (s *server) offer(c contestant, lim limit, l load, warm time.Duration, denied bool) (sample, float64, error) {
	s.flush()
	made, err := c.make(lim)
	if err != nil {
		return sample{}, 0, err
	}
	defer made.end()
	if denied {
		fill(made, l.keys, lim.quota)
	}
	first := l
	first.span = warm
	first.run(made.check) // dials, loads the script, fills the windows
	before := s.spent()
	got := l.run(made.check)
	return got, (s.spent() - before) / float64(got.checks), got.trouble(c.kind, denied)
}

// serverBytes measures what a key takes in Redis when its quota is used up.
func (r *run) serverBytes() {
	t := r.table("redis-bytes", "Redis: bytes, where the quota is used up", "")
	s := r.server()
	r.say("bytes in Redis")
	for _, quota := range []int{10, 100, 1000, 10_000} {
		key, unit := "a key of "+number(float64(quota)), "a unit of "+number(float64(quota))
		for _, c := range append(inRedis(s.rdb), algorithms(s.rdb)...) {
			if c.kind == floor {
				continue
			}
			s.flush()
			l, err := c.make(limit{quota: quota, window: time.Hour})
			if err != nil {
				t.row(c).fault(key, err)
				continue
			}
			fill(l, names(1), quota)
			n := float64(s.bytes())
			t.row(c).add(key, n)
			t.row(c).add(unit, n/float64(quota))
			l.end()
		}
	}
}

// fill uses up the quota of each key, one check after another: some give up where two meet.
func fill(l limiter, keys []string, quota int) {
	load{keys: keys, workers: min(16, len(keys)), checks: len(keys) * quota}.run(l.check)
}

func names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("user-%07d", i)
	}
	return names
}
