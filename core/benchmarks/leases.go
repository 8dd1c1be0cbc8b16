package main

// leases measures what leases make of the checks of one process.
func (r *run) leases() {
	const n = 1000
	even := names(n)
	_, order := orders(n)
	zipf := make([]string, 1<<16-1) // odd, so that each worker comes to all of them
	for i := range zipf {
		zipf[i] = even[order[i]]
	}
	loads := []struct {
		column  string
		keys    []string
		workers int
	}{
		{"64, even", even, 64}, {"256, even", even, 256},
		{"64, zipf", zipf, 64}, {"256, zipf", zipf, 256},
		{"256, one key", even[:1], 256},
	}
	t := r.table("leases-checks", "Checks a second of 1,000 keys in Redis, by goroutines", "redis_rate")
	s := r.server()
	for _, l := range loads {
		r.say("leases, %s", l.column)
		for range r.more() {
			for _, c := range leasing(s.rdb) {
				// More than anyone can do, in a window that is long beside a lease.
				lim := limit{quota: 10_000_000, window: 5 * r.span / 4}
				offer := load{keys: l.keys, workers: l.workers, span: r.span}
				sample, _, err := s.offer(c, lim, offer, r.span/2, false)
				t.row(c).put(l.column, sample.second(), err)
			}
		}
	}
}
