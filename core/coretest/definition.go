package coretest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// definition is what a store knows of one key, written down without any cleverness: a list of what was recorded when,
// looked through from end to end for each question.
type definition struct {
	now     time.Duration // since the Unix epoch
	entries []recorded    // in the order of their instants, of which those of bookings may be after now
	counted counted       // in place of entries, of a limit of another algorithm than the sliding log
}

type recorded struct {
	id   uint64
	at   time.Duration
	cost int
	part bool // the rest of it was trimmed away
}

// decide is what a store must answer, and do, about the takes of one request: all of them are recorded, or none.
func decide(takes []store.Take, logs []*definition) []store.Answer {
	answers, counts := make([]store.Answer, len(takes)), make([]store.Take, len(takes))
	mode, units, allowed := takes[0].Mode, takes[0].Cost, true
	if n := slices.IndexFunc(takes, func(t store.Take) bool { return !t.Plan.Slots }); n > 0 {
		units = takes[n].Cost // whatever the slots before it cost
	}
	for i, t := range takes {
		if mode == store.ModeUpTo {
			units = logs[i].grant(t.Plan, units)
		}
		counts[i] = countsAs(t)
		answers[i] = logs[i].judge(counts[i])
		allowed = allowed && answers[i].Allowed
	}
	for i, t := range counts {
		a := &answers[i]
		if mode == store.ModeUpTo && allowed {
			a.Granted = units
		}
		kept := allowed || t.Mode == store.ModeRecord || t.Mode == store.ModeChargeDenied && !a.Allowed
		if kept && t.Mode != store.ModePeek {
			logs[i].record(t, a)
		}
		logs[i].complete(t, a)
	}
	return answers
}

// countsAs returns a take with the mode and the cost that count. One of ModeUpTo is judged as a take of one unit, and a
// slot is one, whatever a request costs. Slots and limits of other algorithms record no denials.
func countsAs(t store.Take) store.Take {
	logs := t.Plan.Algorithm() == store.SlidingLog && !t.Plan.Slots
	switch {
	case t.Mode == store.ModeChargeDenied && !logs:
		t.Mode = store.ModeCharge
	case t.Mode == store.ModeRecord && !logs:
		t.Mode = store.ModePeek
	}
	if t.Mode == store.ModeUpTo || t.Plan.Slots {
		t.Cost = 1
	}
	return t
}

// grant is how many units, at most so many, a take of ModeUpTo gets.
func (d *definition) grant(p *store.Plan, most int) int {
	units := most
	for _, l := range p.Deciding() {
		left := max(l.Quota-d.used(l, d.now), 0)
		if p.Slots && left > 0 {
			left = most
		}
		units = min(units, left)
	}
	return units
}

// judge answers without what is known only after the take was recorded or denied.
func (d *definition) judge(t store.Take) store.Answer {
	a := store.Answer{
		Allowed: t.Mode == store.ModeRecord || d.fits(t.Plan.Deciding(), t.Cost, d.now),
		Shadow:  d.retry(t.Plan.Shadows(), t.Cost),
	}
	for i, l := range t.Plan.Limits {
		a.State[i].Used = d.used(l, d.now)
		if a.State[i].Used+t.Cost > l.Quota {
			a.Denied |= 1 << i
		}
	}
	return a
}

// complete fills in the waits, which are those after the take.
func (d *definition) complete(t store.Take, a *store.Answer) {
	if !a.Allowed {
		a.Retry = d.retry(t.Plan.Deciding(), t.Cost)
	}
	for i, l := range t.Plan.Limits {
		a.State[i].Reset = d.reset(l)
	}
}

func (d *definition) record(t store.Take, a *store.Answer) {
	largest, smallest := 0, math.MaxInt
	for _, l := range t.Plan.Deciding() {
		largest, smallest = max(largest, l.Quota), min(smallest, l.Quota)
	}
	cost := t.Cost
	if t.Mode == store.ModeUpTo && !t.Plan.Slots {
		cost = a.Granted
	}
	switch {
	case !a.Allowed && cost > smallest: // no wait will help
	case t.Plan.Algorithm() != store.SlidingLog:
		d.counted.add(&t.Plan.Limits[0], d.now, cost)
	default:
		d.add(recorded{id: t.ID, at: d.now, cost: cost})
	}
	switch {
	case t.Mode == store.ModeRecord || len(t.Plan.Deciding()) == 0:
		d.trim(max(largest, store.MaxRecorded))
	case !a.Allowed && cost <= smallest:
		d.trim(max(largest, t.Plan.Bound))
	}
}

// add adds an entry behind those that are not later.
func (d *definition) add(e recorded) {
	n := slices.IndexFunc(d.entries, func(other recorded) bool { return other.at > e.at })
	if n < 0 {
		n = len(d.entries)
	}
	d.entries = slices.Insert(d.entries, n, e)
}

// used is how many units a limit has in use at instant t, if nothing is recorded after those of the list.
func (d *definition) used(l store.Limit, t time.Duration) int {
	if l.Algorithm != store.SlidingLog {
		return d.counted.used(&l, t)
	}
	units := 0
	for _, e := range d.entries {
		if t-l.Window < e.at {
			units += e.cost
		}
	}
	return units
}

// fits reports whether every limit has room for cost at instant t.
func (d *definition) fits(limits []store.Limit, cost int, t time.Duration) bool {
	return !slices.ContainsFunc(limits, func(l store.Limit) bool { return d.used(l, t)+cost > l.Quota })
}

// retry tries the instants at which anything leaves, from the earliest on.
func (d *definition) retry(limits []store.Limit, cost int) time.Duration {
	instants := []time.Duration{d.now}
	for _, l := range limits {
		if l.Algorithm != store.SlidingLog && cost <= l.Quota {
			return d.counted.wait(&l, d.now, l.Quota-cost)
		}
		for _, e := range d.entries {
			if t := e.at + l.Window; t > d.now {
				instants = append(instants, t)
			}
		}
	}
	slices.Sort(instants)
	for _, t := range instants {
		if d.fits(limits, cost, t) {
			return t - d.now
		}
	}
	return 0
}

// reset is how long it takes until the next unit of a limit leaves.
func (d *definition) reset(l store.Limit) time.Duration {
	if l.Algorithm != store.SlidingLog {
		return d.counted.wait(&l, d.now, d.used(l, d.now)-1)
	}
	if entries := d.window(l.Window); len(entries) > 0 {
		return entries[0].at + l.Window - d.now
	}
	return 0
}

// window returns the entries younger than window.
func (d *definition) window(window time.Duration) (entries []recorded) {
	for _, e := range d.entries {
		if d.now-window < e.at {
			entries = append(entries, e)
		}
	}
	return entries
}

// trim forgets the oldest units beyond so many.
func (d *definition) trim(units int) {
	excess := -units
	for _, e := range d.entries {
		excess += e.cost
	}
	for excess > 0 {
		oldest := &d.entries[0]
		out := min(excess, oldest.cost)
		excess -= out
		oldest.cost -= out
		oldest.part = true
		if oldest.cost == 0 {
			d.entries = d.entries[1:]
		}
	}
}

func (d *definition) settle(id uint64, cost int) {
	n := slices.IndexFunc(d.entries, func(e recorded) bool { return e.id == id && !e.part })
	if n < 0 {
		return
	}
	e := &d.entries[n]
	if e.cost = cost; cost > 0 && e.at <= d.now {
		return
	}
	settled := *e
	d.entries = slices.Delete(d.entries, n, n+1)
	if settled.at = d.now; cost > 0 {
		d.add(settled)
	}
}

// empty forgets all but bookings.
func (d *definition) empty() {
	d.entries = slices.DeleteFunc(d.entries, func(e recorded) bool { return e.at <= d.now })
	d.counted = nil
}

// book books units: see [store.Leaser].
func (d *definition) book(b *store.Booking) (booked store.Booked) {
	if b.Settled != 0 {
		d.settle(b.Settled, b.Used)
	}
	for _, e := range d.entries {
		if e.at > d.now && e.id != b.ID {
			booked.Others++
		}
	}
	take, again := b.Take, d.holds(b.Take.ID)
	if again {
		take.Mode = store.ModePeek
	}
	booked.Answer = decide([]store.Take{take}, []*definition{d})[0]
	booked.Answer.Allowed = booked.Answer.Allowed || again
	n := slices.IndexFunc(d.entries, func(e recorded) bool { return e.id == b.ID })
	if n >= 0 && (booked.Answer.Allowed || b.Take.Mode == store.ModePeek) {
		booked.Units = d.entries[n].cost
		return booked
	}
	if !booked.Answer.Allowed {
		return booked
	}
	room := math.MaxInt
	for _, l := range b.Take.Plan.Deciding() {
		room = min(room, l.Quota-d.used(l, d.now))
	}
	if booked.Units = b.Grant(room, booked.Others); booked.Units > 0 {
		d.add(recorded{id: b.ID, at: d.now + b.Lease, cost: booked.Units})
	}
	return booked
}

func (d *definition) renew(ids []uint64) {
	for _, id := range ids {
		d.entries = slices.DeleteFunc(d.entries, func(e recorded) bool { return e.id == id })
		d.entries = append(d.entries, recorded{id: id, at: d.now, cost: 1})
	}
}

func (d *definition) merge(entries []store.Entry) {
	for _, m := range entries {
		if !d.holds(m.ID) {
			d.entries = append(d.entries, recorded{id: m.ID, at: d.now - m.Age, cost: m.Cost})
		}
	}
	slices.SortStableFunc(d.entries, func(a, b recorded) int { return cmp.Compare(a.at, b.at) })
}

func (d *definition) list(window time.Duration) (entries []core.Entry) {
	for _, e := range d.window(window) {
		entries = append(entries, core.Entry{At: time.Unix(0, 0).Add(e.at), Cost: e.cost, Booked: e.at > d.now})
	}
	return entries
}

// holds reports whether the log has an entry with that ID.
func (d *definition) holds(id uint64) bool {
	return slices.ContainsFunc(d.entries, func(e recorded) bool { return e.id == id })
}

// forget drops what no window of this length will see again.
func (d *definition) forget(window time.Duration) { d.entries = d.window(window) }
