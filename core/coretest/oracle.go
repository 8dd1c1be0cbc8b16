package coretest

import (
	"slices"
	"time"

	"github.com/sashlimit/sash/core"
)

// oracle is the definition, written down without any cleverness: a list of
// what was admitted when, looked through from end to end for each question.
type oracle struct {
	now     time.Duration
	entries []oracleEntry
}

type oracleEntry struct {
	at   time.Duration
	cost int
}

// used is how many units are in the window that ends at instant t.
func (o *oracle) used(window, t time.Duration) int {
	units := 0
	for _, e := range o.entries {
		if t-window < e.at && e.at <= t {
			units += e.cost
		}
	}
	return units
}

// fits reports whether every limit has room for cost at instant t.
func (o *oracle) fits(limits core.Limits, cost int, t time.Duration) bool {
	for _, l := range limits {
		if o.used(l.Window, t)+cost > l.Quota {
			return false
		}
	}
	return true
}

// ask is what a decision about a request of this cost must say. It records
// nothing.
func (o *oracle) ask(limits core.Limits, cost int) core.Decision {
	d := core.Decision{Allowed: o.fits(limits, cost, o.now)}
	least, longest := -1, 0
	left := 0
	for i, l := range limits {
		used := o.used(l.Window, o.now)
		denies := used+cost > l.Quota
		if denies {
			d.Violated = append(d.Violated, l.Name)
		}
		charged := cost
		if !d.Allowed {
			charged = 0
		}
		if d.Allowed || denies {
			if r := max(0, l.Quota-used-charged); least < 0 || r < left {
				least, left = i, r
			}
		}
		if l.Window > limits[longest].Window {
			longest = i
		}
	}
	d.Remaining = left
	d.Used = o.used(limits[longest].Window, o.now)
	d.ResetAfter = o.reset(limits[least].Window)
	if d.Allowed && d.ResetAfter == 0 {
		d.ResetAfter = limits[least].Window
	}
	if !d.Allowed {
		d.RetryAfter = o.retry(limits, cost)
	}
	return d
}

func (o *oracle) reset(window time.Duration) time.Duration {
	for _, e := range o.entries { // in the order of their instants
		if o.now-window < e.at {
			return e.at + window - o.now
		}
	}
	return 0
}

// retry tries the instants at which anything leaves, from the earliest on.
func (o *oracle) retry(limits core.Limits, cost int) time.Duration {
	var leaving []time.Duration
	for _, e := range o.entries {
		for _, l := range limits {
			if t := e.at + l.Window; t > o.now {
				leaving = append(leaving, t)
			}
		}
	}
	slices.Sort(leaving)
	for _, t := range leaving {
		if o.fits(limits, cost, t) {
			return t - o.now
		}
	}
	return 0
}

func (o *oracle) record(cost int) {
	o.entries = append(o.entries, oracleEntry{o.now, cost})
}

// forget drops what no window of this length will see again.
func (o *oracle) forget(window time.Duration) {
	o.entries = slices.DeleteFunc(o.entries, func(e oracleEntry) bool { return e.at <= o.now-window })
}
