package coretest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
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

// againstOracle compares random traces: bursts within one microsecond, waits
// of exactly a Retry-After or one microsecond less, several limits, costs, peeks, resets.
func againstOracle(t *testing.T, c StoreConfig) {
	store, advance := c.New(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	policies := []core.Limits{
		{{Name: "a", Quota: 1, Window: 10 * time.Millisecond}},
		{{Name: "a", Quota: 5, Window: 10 * time.Second}},
		{{Name: "a", Quota: 100, Window: time.Minute}},
		{{Name: "a", Quota: 300, Window: 7 * time.Second}},
		{{Name: "a", Quota: 3, Window: time.Second}, {Name: "b", Quota: 10, Window: time.Minute}},
		{{Name: "a", Quota: 40, Window: time.Hour}, {Name: "b", Quota: 7, Window: 1300 * time.Millisecond}, {Name: "c", Quota: 20, Window: time.Minute}},
		{{Name: "a", Quota: 200, Window: time.Second}, {Name: "b", Quota: 150, Window: 3 * time.Second}},
	}
	for trace, done := 0, 0; done < c.Checks; trace++ {
		limits := policies[trace%len(policies)]
		l := limiter(t, store, limits, core.WithName(fmt.Sprintf("oracle-%x-%d", seed, trace)))
		longest, largest := time.Duration(0), 0
		for _, limit := range limits {
			longest, largest = max(longest, limit.Window), max(largest, limit.Quota)
		}
		o := new(oracle)
		var last core.Decision
		for step := range 1500 {
			switch r.IntN(12) {
			case 0:
				wait := time.Duration(r.Int64N(int64(longest)/int64(largest)*4 + 1)).Truncate(time.Microsecond)
				advance(wait)
				o.now += wait
			case 1:
				advance(time.Microsecond)
				o.now += time.Microsecond
			case 2:
				if last.RetryAfter > 0 {
					wait := last.RetryAfter - time.Duration(r.IntN(2))*time.Microsecond
					advance(wait)
					o.now += wait
				}
			case 3:
				if r.IntN(100) == 0 {
					if err := l.Reset(t.Context(), "k"); err != nil {
						t.Fatal(err)
					}
					o.entries = nil
				}
			}
			o.forget(longest)
			cost := 1
			if r.IntN(3) == 0 {
				cost = 1 + r.IntN(min(largest+1, 40))
			}
			if r.IntN(10) == 0 {
				cost = 1
				got, err := l.Peek(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if want := o.fits(limits, 1, o.now); got.Allowed != want {
					t.Fatalf("seed %#x, trace %d, step %d: peek says %v, the oracle %v", seed, trace, step, got.Allowed, want)
				}
			}
			want := o.ask(limits, cost)
			if want.Allowed {
				o.record(cost)
			}
			last = allow(t, l, "k", cost)
			got := core.Decision{Allowed: last.Allowed, Remaining: last.Remaining, RetryAfter: last.RetryAfter,
				ResetAfter: last.ResetAfter, Used: last.Used, Violated: last.Violated}
			if len(got.Violated) == 0 {
				got.Violated = nil
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %#x, trace %d, step %d, limits %v, cost %d, %d entries:\ngot  %+v\nwant %+v",
					seed, trace, step, limits, cost, len(o.entries), got, want)
			}
			done++
		}
	}
}
