package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
)

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
				s.flush()
				// More than anyone can do, in a window that is long beside a lease.
				lim, err := c.make(limit{quota: 10_000_000, window: 5 * r.span / 4})
				if err != nil {
					t.row(c).fault(l.column, err)
					continue
				}
				offer := load{keys: l.keys, workers: l.workers, span: r.span / 2}
				offer.run(lim.check)
				offer.span = r.span
				sample := offer.run(lim.check)
				if err := sample.trouble(c.kind, false); err != nil {
					t.row(c).fault(l.column, err)
				} else {
					t.row(c).add(l.column, sample.second())
				}
				lim.end()
			}
		}
		for _, row := range t.Rows[1:3] {
			times := func(other string) float64 {
				a, _ := t.value(row.Name, l.column)
				b, _ := t.value(other, l.column)
				return a / b
			}
			r.say("%s: %.2f times sash, %.2f times redis_rate", row.Name, times("sash"), times("redis_rate"))
		}
	}
}

func (r *results) writeLeases(dir string) error {
	chart, err := r.leaseChart().svg()
	if err != nil {
		return err
	}
	readme, err := replaced(filepath.Join(dir, "README.md"), "leases", r.machine()+r.text())
	if err != nil {
		return err
	}
	text, err := r.json()
	if err != nil {
		return err
	}
	return writeFiles(dir, map[string][]byte{
		"results/leases.json": text, "charts/leases.svg": chart, "README.md": readme,
	})
}

func (r *results) leaseChart() *chart {
	c := r.chart("leases", fmt.Sprintf("Processes that share %s in any second", number(sharedQuota)),
		"As WSO2 and APISIX do: each process counts, and they exchange counts. A lease: units taken ahead. "+
			"Percent: less is better. Checks a second, and times redis_rate: more.")
	c.panel("above the quota, %: 3 processes, 150 % load", r.bars("leases-over", "150 % by 3", ""))
	c.panel("above the quota, %: 8 processes, 150 % load", r.bars("leases-over", "150 % by 8", ""))
	c.panel("denied with room left, %: 3 processes, 100 % load", r.bars("leases-denied", "100 % by 3", ""))
	c.panel("denied with room left, %: 8 processes, 100 % load", r.bars("leases-denied", "100 % by 8", ""))
	c.panel("256 goroutines, one key", r.bars("leases-checks", "256, one key", ""))
	c.panel("64 goroutines, 1,000 keys, some far busier", r.bars("leases-checks", "64, zipf", ""))
	return c
}
