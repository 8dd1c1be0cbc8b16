package main

import "math/rand/v2"

// leases measures what leases make of the checks of one process.
func (r *run) leases() {
	const n = 1000
	even := names(n)
	chance := rand.New(rand.NewPCG(1, 2)) // the same for everyone
	law, place := rand.NewZipf(chance, 1.1, 1, n-1), chance.Perm(n)
	zipf := make([]string, 1<<16-1) // odd, so that each worker comes to all of them
	for i := range zipf {
		zipf[i] = even[place[law.Uint64()]]
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
	t := r.table("leases-checks", "Checks a second of 1,000 keys in Redis, by goroutines")
	for _, l := range loads {
		t.Columns = append(t.Columns, l.column)
	}
	t.against("redis_rate")
	s := r.server()
	for _, l := range loads {
		r.say("leases, %s", l.column)
		for range r.more() {
			for _, c := range leasing(s.rdb) {
				// More than anyone can do, in a window that is long beside a lease.
				lim := limit{quota: 10_000_000, window: 5 * r.span / 4}
				offer := load{keys: l.keys, workers: l.workers, span: r.span}
				if sample, _, err := s.offer(c, lim, offer, r.span/2, false); err != nil {
					t.row(c).fault(l.column, err)
				} else {
					t.row(c).add(l.column, sample.second())
				}
			}
		}
	}
}
