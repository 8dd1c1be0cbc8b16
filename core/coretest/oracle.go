package coretest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// oracle is the definition, written down without any cleverness: a list of
// what was recorded when, looked through from end to end for each question.
type oracle struct {
	now     time.Duration
	entries []oracleEntry // in the order of their instants
	tally   tally         // in place of entries, of a limit of another algorithm than the sliding log
}

type oracleEntry struct {
	id   uint64
	at   time.Duration
	cost int
	part bool // the rest of it was trimmed away
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
func (o *oracle) fits(limits []store.Limit, cost int, t time.Duration) bool {
	for _, l := range limits {
		if o.used(l.Window, t)+cost > l.Quota {
			return false
		}
	}
	return true
}

// grant is how many units every limit has room for now, up to most.
func (o *oracle) grant(limits []store.Limit, most int) (units int) {
	if len(limits) > 0 && limits[0].Algorithm != store.SlidingLog {
		return max(0, min(most, limits[0].Quota-o.tally.used(&limits[0], o.now.Microseconds())))
	}
	for units < most && o.fits(limits, units+1, o.now) {
		units++
	}
	return units
}

// grantOf is how many units a take of ModeUpTo gets. A slot is one, whatever a request costs.
func (o *oracle) grantOf(t store.Take) int {
	if t.Plan.Slots {
		return t.Cost * o.grant(t.Plan.Deciding(), 1)
	}
	return o.grant(t.Plan.Deciding(), t.Cost)
}

// take is what a store must answer, and do.
func (o *oracle) take(t store.Take) store.Answer {
	if t.Plan.Algorithm() != store.SlidingLog {
		return o.tally.take(t, o.now.Microseconds())
	}
	all := t.Plan.Limits
	limits, shadow := all[:len(all)-t.Plan.Shadow], all[len(all)-t.Plan.Shadow:]
	granted, slots := 0, t.Plan.Slots
	if t.Mode == store.ModeUpTo {
		granted = o.grantOf(t)
		t.Cost = 1
	}
	if slots {
		t.Cost = 1
		switch t.Mode {
		case store.ModeChargeDenied:
			t.Mode = store.ModeCharge
		case store.ModeRecord:
			t.Mode = store.ModePeek
		case store.ModeCharge, store.ModePeek, store.ModeUpTo:
		}
	}
	a := store.Answer{
		Allowed: t.Mode == store.ModeRecord || o.fits(limits, t.Cost, o.now),
		Granted: granted,
		Shadow:  o.retry(shadow, t.Cost),
	}
	largest, smallest := 0, math.MaxInt
	for _, l := range limits {
		largest, smallest = max(largest, l.Quota), min(smallest, l.Quota)
	}
	for i, l := range all {
		a.State[i].Used = o.used(l.Window, o.now)
		if a.State[i].Used+t.Cost > l.Quota {
			a.Denied |= 1 << i
		}
	}
	switch {
	case t.Mode == store.ModePeek:
	case t.Mode == store.ModeUpTo && granted == 0:
	case t.Mode == store.ModeUpTo && !slots:
		o.record(t.ID, granted)
	case t.Mode == store.ModeRecord:
		o.record(t.ID, t.Cost)
		o.trim(max(largest, store.MaxRecorded))
	case a.Allowed:
		o.record(t.ID, t.Cost)
	case t.Mode == store.ModeChargeDenied && t.Cost <= smallest:
		o.record(t.ID, t.Cost)
		o.trim(max(largest, t.Plan.Bound))
	}
	if !a.Allowed {
		a.Retry = o.retry(limits, t.Cost)
	}
	for i, l := range all {
		a.State[i].Reset = o.reset(l.Window)
	}
	return a
}

// takeAll is what a store must answer, and do, about the takes of one request.
func takeAll(takes []store.Take, logs []*oracle) []store.Answer {
	if takes[0].Mode == store.ModeUpTo {
		takes = takesUpTo(takes, logs)
	}
	answers := make([]store.Answer, len(takes))
	mode, room := takes[0].Mode, true
	for i, t := range takes {
		t.Mode = store.ModePeek
		answers[i] = logs[i].take(t)
		room = room && answers[i].Allowed
	}
	for i, t := range takes {
		record := room || mode == store.ModeRecord || mode == store.ModeChargeDenied && !answers[i].Allowed
		if record && mode != store.ModePeek {
			answers[i] = logs[i].take(t)
		}
	}
	return answers
}

// takesUpTo returns takes of ModeUpTo of one request as their logs decide them: each with the units for which all have
// room, or, if there are none, each as a peek at one unit.
func takesUpTo(takes []store.Take, logs []*oracle) []store.Take {
	takes = slices.Clone(takes)
	least := takes[0].Cost
	for i, t := range takes {
		least = min(least, logs[i].grantOf(t))
	}
	for i := range takes {
		if takes[i].Cost = least; least == 0 {
			takes[i].Cost, takes[i].Mode = 1, store.ModePeek
		}
	}
	return takes
}

// holds reports whether the log has an entry with that ID.
func (o *oracle) holds(id uint64) bool {
	return slices.ContainsFunc(o.entries, func(e oracleEntry) bool { return e.id == id })
}

// holdsPart reports whether the log has an entry with that ID of which the rest was trimmed.
func (o *oracle) holdsPart(id uint64) bool {
	return slices.ContainsFunc(o.entries, func(e oracleEntry) bool { return e.id == id && e.part })
}

// newerAt reports whether an entry of an instant has an ID that was made later.
func (o *oracle) newerAt(at time.Duration, id uint64) bool {
	return slices.ContainsFunc(o.entries, func(e oracleEntry) bool { return e.at == at && e.id > id })
}

func (o *oracle) reset(window time.Duration) time.Duration {
	for _, e := range o.entries {
		if o.now-window < e.at {
			return e.at + window - o.now
		}
	}
	return 0
}

// retry tries the instants at which anything leaves, from the earliest on.
func (o *oracle) retry(limits []store.Limit, cost int) time.Duration {
	instants := []time.Duration{o.now}
	for _, e := range o.entries {
		for _, l := range limits {
			if t := e.at + l.Window; t > o.now {
				instants = append(instants, t)
			}
		}
	}
	slices.Sort(instants)
	for _, t := range instants {
		if o.fits(limits, cost, t) {
			return t - o.now
		}
	}
	return 0
}

func (o *oracle) record(id uint64, cost int) {
	o.entries = append(o.entries, oracleEntry{id: id, at: o.now, cost: cost})
}

// trim forgets the oldest units beyond so many.
func (o *oracle) trim(units int) {
	for excess := o.used(1<<62, o.now) - units; excess > 0; {
		oldest := &o.entries[0]
		out := min(excess, oldest.cost)
		excess -= out
		oldest.cost -= out
		oldest.part = true
		if oldest.cost == 0 {
			o.entries = o.entries[1:]
		}
	}
}

func (o *oracle) settle(id uint64, cost int) {
	for i := range o.entries {
		if e := &o.entries[i]; e.id == id && !e.part {
			e.cost = cost
		}
	}
	o.entries = slices.DeleteFunc(o.entries, func(e oracleEntry) bool { return e.cost == 0 })
}

func (o *oracle) renew(ids []uint64) {
	for _, id := range ids {
		o.entries = slices.DeleteFunc(o.entries, func(e oracleEntry) bool { return e.id == id })
		o.record(id, 1)
	}
}

func (o *oracle) merge(entries []store.Entry) {
	for _, m := range entries {
		if !slices.ContainsFunc(o.entries, func(e oracleEntry) bool { return e.id == m.ID }) {
			o.entries = append(o.entries, oracleEntry{id: m.ID, at: o.now - m.Age, cost: m.Cost})
		}
	}
	slices.SortStableFunc(o.entries, func(a, b oracleEntry) int { return cmp.Compare(a.at, b.at) })
}

func (o *oracle) log(window time.Duration) (entries []core.Entry) {
	for _, e := range o.entries {
		if o.now-window < e.at {
			entries = append(entries, core.Entry{At: time.Unix(0, 0).Add(e.at), Cost: e.cost})
		}
	}
	return entries
}

// forget drops what no window of this length will see again.
func (o *oracle) forget(window time.Duration) {
	o.entries = slices.DeleteFunc(o.entries, func(e oracleEntry) bool { return e.at <= o.now-window })
}
