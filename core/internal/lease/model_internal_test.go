package lease

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The model: two processes, a log on a server, the commands on their way, and what has truly been used when. Time has
// ticks. The processes have the leases of this package, so the model proves the code and not a copy of it.

const (
	tick      = 10 * time.Nanosecond
	lastTick  = 7
	longest   = 3 // the longest lease, in ticks
	processes = 2
)

// broken are rules that are not followed.
type broken struct {
	windowAtStamp  bool // a booking is checked in the window that ends at its stamp
	futureIgnored  bool // takes do not count entries after now
	endFromReply   bool // the end of a lease is counted from the reply
	tickLate       bool // a lease is spent a tick after its stamp
	repairAll      bool // each take moves entries after now to now
	resetLive      bool // a reset removes live bookings
	sumBeforeClose bool // a settlement is computed before the lease is closed
	relative       bool // a settlement tells what to give back
	outOfOrder     bool // a settlement is sent before the one before was answered
	moreAtEnd      bool // the store is told of units beyond a lease when that ends
	undoLost       bool // a use is not undone if its lease was settled
	unanswered     bool // a booking without an answer is kept
	rememberLong   bool // a denial is remembered for twice as long as a lease
}

// config is what the worlds of an exploration have in common.
type config struct {
	broken

	limits []limit
	d      [processes]int // length of the leases, in ticks
	ops    int            // operations of a world
	do     string         // a letter for each operation and event that there is: see world.next
	alone  bool           // only the first process does anything
}

type limit struct{ quota, window int }

type entry struct {
	id, stamp, units int
	zombie           bool // it was changed by a command that its process waits for no longer
}

// realUse is what was truly used.
type realUse struct {
	id, entry, at, units int
	raised               int // when it was added by a settlement to more, or -1
	forgotten            bool
}

type held struct {
	Lease

	id, sent int
}

type process struct {
	dead     bool
	leases   []held // the last one is in hand
	booking  bool   // the booking of a lease is on its way
	use      int    // the latest use, which can be undone, or 0
	first    int    // its units at first
	of       int    // the entry of its lease, or its own
	more     int    // units that the store will be told at the end of the lease: see moreAtEnd
	deniedAt int    // when the denial was asked that is remembered, or -1
}

// command is on its way: it books, after a settlement if there is one, or only settles.
type command struct {
	process, id, units int // of the booking; units is 0 if there is none
	settled, sum       int // the entry that is settled, or 0
	sent               int // when
	executed           int // how often
	admitted           bool
	answered, givenUp  bool
}

type world struct {
	*config

	now, back int // the server's clock is back by so much
	entries   []entry
	uses      []realUse
	processes [processes]process
	net       []command
	left, ids int // operations, and ids so far
	trace     string
}

func newWorld(c *config) *world {
	w := &world{config: c, left: c.ops}
	for p := range w.processes {
		w.processes[p].deniedAt = -1
	}
	return w
}

func (w *world) clone(format string, args ...any) *world {
	c := *w
	c.entries, c.uses, c.net = slices.Clone(w.entries), slices.Clone(w.uses), slices.Clone(w.net)
	for p := range c.processes {
		leases := slices.Clone(w.processes[p].leases)
		for i := range leases {
			leases[i].changed = maps.Clone(leases[i].changed)
		}
		c.processes[p].leases = leases
	}
	c.trace += fmt.Sprintf("; %d: "+format, append([]any{w.now}, args...)...)
	return &c
}

func (w *world) clock() Instant {
	return Instant{time.Duration(w.now) * tick, time.Duration(w.now) * tick}
}

func (w *world) server() int { return w.now - w.back }

func (w *world) id() int {
	w.ids++
	return w.ids
}

// The server.

func (w *world) repair() {
	for i := range w.entries {
		e := &w.entries[i]
		if most := w.server() + longest; e.stamp > most {
			e.stamp = most
		}
		if w.repairAll {
			e.stamp = min(e.stamp, w.server())
		}
	}
}

// fits reports whether units fit each window that ends now.
func (w *world) fits(units, at int) bool {
	for _, l := range w.limits {
		sum := units
		for _, e := range w.entries {
			if e.stamp > at-l.window && !(w.futureIgnored && e.stamp > at) {
				sum += e.units
			}
		}
		if sum > l.quota {
			return false
		}
	}
	return true
}

func (w *world) entry(id int) *entry {
	for i := range w.entries {
		if w.entries[i].id == id {
			return &w.entries[i]
		}
	}
	return nil
}

func (w *world) settle(id, units int, again bool) {
	e := w.entry(id)
	if e == nil {
		return
	}
	if w.relative && !again {
		units = e.units - units
	}
	e.units, e.stamp = units, min(e.stamp, w.server())
	w.entries = slices.DeleteFunc(w.entries, func(e entry) bool { return e.units <= 0 })
}

// execute executes a command.
func (w *world) execute(c *command) {
	if c.settled > 0 {
		if e := w.entry(c.settled); e != nil && c.executed > 0 && !w.relative {
			e.zombie = true
		}
		w.settle(c.settled, c.sum, false)
	}
	if c.executed++; c.units == 0 {
		return
	}
	at := w.server()
	if w.windowAtStamp {
		at += w.d[c.process]
	}
	w.repair()
	there := w.entry(c.id) != nil
	if c.admitted = there || w.fits(c.units, at); c.admitted && !there {
		w.entries = append(w.entries, entry{
			id: c.id, stamp: w.server() + w.d[c.process], units: c.units,
			zombie: c.givenUp || c.answered || c.executed > 1,
		})
	}
}

// The processes.

// lease returns the lease in hand, or the zero Lease.
func (p *process) lease() *held {
	if len(p.leases) == 0 {
		return new(held)
	}
	return &p.leases[len(p.leases)-1]
}

func (p *process) leaseOf(entry int) *held {
	for i := range p.leases {
		if p.leases[i].id == entry {
			return &p.leases[i]
		}
	}
	return nil
}

// settlement closes a lease and makes the command that settles it, if one is due.
func (w *world) settlement(p int, l *held) (c command, due bool) {
	closed := l
	if w.sumBeforeClose && l.open {
		early := *l
		early.changed = maps.Clone(l.changed)
		closed = &early
	}
	sum, due := closed.Settlement()
	if !due {
		return c, false
	}
	if l == w.processes[p].lease() {
		sum += w.processes[p].more
		w.processes[p].more = 0
	}
	if w.relative {
		before := l.Units
		if l.stored >= 0 {
			before = l.stored
		}
		sum = before - sum
	}
	if w.outOfOrder {
		l.Settled(true)
	}
	return command{process: p, settled: l.id, sum: sum, sent: w.now}, true
}

// answer gives a process the reply to a command.
func (w *world) answer(c *command) {
	c.answered = true
	p := &w.processes[c.process]
	if p.dead {
		return
	}
	if c.settled > 0 {
		if l := p.leaseOf(c.settled); l != nil {
			if w.sumBeforeClose && l.open {
				l.Settlement()
			}
			l.Settled(true)
		}
	}
	if c.units == 0 {
		return
	}
	if p.booking = false; !c.admitted {
		return
	}
	sent := Instant{time.Duration(c.sent) * tick, time.Duration(c.sent) * tick}
	if w.endFromReply {
		sent = w.clock()
	}
	end := sent.End(time.Duration(w.d[c.process]) * tick)
	if w.tickLate {
		end = sent.End(time.Duration(w.d[c.process]+2) * tick)
	}
	p.leases = append(p.leases, held{New(c.units, end), c.id, c.sent})
}

// giveUp ends the wait for the answer to a booking, or to a settlement, which is then due again.
func (w *world) giveUp(c *command) {
	c.givenUp = true
	p := &w.processes[c.process]
	if p.dead {
		return
	}
	if l := p.leaseOf(c.settled); l != nil {
		l.Settled(false)
	}
	if c.units > 0 {
		if p.booking = false; !w.unanswered {
			w.net = append(w.net, command{process: c.process, settled: c.id, sent: w.now})
		}
	}
}

// The checks.

// used notes a use, and reports whether all windows that end now are within their quotas. What settlements have added
// since an instant does not count.
func (w *world) used(p, entry, units, since int) error {
	id := w.id()
	w.uses = append(w.uses, realUse{id: id, entry: entry, at: w.now, units: units, raised: -1})
	w.processes[p].use, w.processes[p].first, w.processes[p].of = id, units, entry
	for _, l := range w.limits {
		sum := 0
		for _, u := range w.uses {
			if u.at > w.now-l.window && !u.forgotten && u.raised < since {
				sum += u.units
			}
		}
		if sum > l.quota {
			return fmt.Errorf("%d used in (%d, %d], of %d", sum, w.now-l.window, w.now, l.quota)
		}
	}
	return nil
}

// excused reports whether all units of an entry may deny: those of a lease in hand or on its way, of a settlement on
// its way, of a process that has died, and of a command that was executed too late.
func (w *world) excused(e *entry) bool {
	if e.zombie {
		return true
	}
	for i := range w.net {
		if c := &w.net[i]; c.executed == 0 && c.settled == e.id || c.id == e.id && !c.answered && !c.givenUp {
			return true
		}
	}
	for p := range w.processes {
		if l := w.processes[p].leaseOf(e.id); l != nil {
			return w.processes[p].dead || l.open || l.sending || l.stored != l.Units-l.left
		}
	}
	return slices.ContainsFunc(w.net, func(c command) bool { return c.id == e.id && w.processes[c.process].dead })
}

// denied checks a denial of one unit: there must be no room for it because of what was truly used, in the window or
// late by as much as a lease, and of entries that are excused.
func (w *world) denied() error {
	if w.back > 0 {
		return nil
	}
	for _, l := range w.limits {
		sum := 1
		for i := range w.entries {
			e := &w.entries[i]
			if e.stamp <= w.server()-l.window {
				continue
			}
			if w.excused(e) {
				sum += e.units
				continue
			}
			for _, u := range w.uses {
				if u.entry == e.id && !u.forgotten && u.at > w.now-l.window-longest {
					sum += u.units
				}
			}
		}
		if sum > l.quota {
			return nil
		}
	}
	return fmt.Errorf("denied, but there is room: %+v", w.entries)
}

// The operations.

func (w *world) take(p int) error {
	own := &w.processes[p]
	remembers := w.d[p]
	if w.rememberLong {
		remembers *= 2
	}
	if own.deniedAt >= 0 && w.now < own.deniedAt+remembers {
		if w.now < own.deniedAt+w.d[p] {
			return nil
		}
		return w.denied()
	}
	w.repair()
	if !w.fits(1, w.server()) {
		own.deniedAt = w.now
		return w.denied()
	}
	own.deniedAt = -1
	id := w.id()
	w.entries = append(w.entries, entry{id: id, stamp: w.server(), units: 1})
	return w.used(p, id, 1, w.now+1)
}

// spend takes a unit of the lease in hand. It is given back if another log denies.
func (w *world) spend(p int, undo bool) error {
	l := w.processes[p].lease()
	if !l.Spend(1, w.clock) {
		return nil
	}
	err := w.used(p, l.id, 1, l.sent)
	if undo {
		l.Return(1)
		w.uses[len(w.uses)-1].units, w.processes[p].use = 0, 0
	}
	return err
}

// change settles the latest use of a process.
func (w *world) change(p, units int) error {
	own := &w.processes[p]
	var use *realUse
	for i := range w.uses {
		if w.uses[i].id == own.use {
			use = &w.uses[i]
		}
	}
	l := own.leaseOf(own.of)
	first, id := own.first, own.use
	if units == 0 {
		own.use = 0
	}
	if l == nil { // a plain take
		if units == 0 {
			use.units = 0
			w.settle(own.of, 0, true)
		}
		return nil
	}
	if w.undoLost && l.stored >= 0 {
		use.units = 0
		return nil
	}
	beyond, tell := l.Change(uint64(id), first, units)
	use.units = units - beyond
	if tell {
		l.Told(uint64(id), beyond)
	}
	if tell && use.at >= 0 {
		entryOf := -id // of the units beyond the lease
		w.uses = append(w.uses, realUse{id: entryOf, entry: entryOf, at: use.at, units: beyond, raised: w.now})
		if w.moreAtEnd {
			own.more += beyond
		} else {
			w.entries = append(w.entries, entry{id: entryOf, stamp: w.server() - (w.now - use.at), units: beyond})
		}
	}
	return nil
}

func (w *world) reset(p int) {
	own := w.processes[p].lease()
	if c, due := w.settlement(p, own); due {
		w.execute(&c)
		w.answer(&c)
	}
	w.entries = slices.DeleteFunc(w.entries, func(e entry) bool { return w.resetLive || e.stamp <= w.server() })
	for i := range w.uses {
		w.uses[i].forgotten = w.uses[i].forgotten || w.entry(w.uses[i].entry) == nil
	}
	for p := range w.processes {
		w.processes[p].use = 0
	}
}

// next calls found with all worlds that follow. The operations are, by letter: t take, b book, B send a booking, s
// spend, j a joint request that another log denies, e end a lease, E send its settlement, u undo, m settle to more, d
// die, r reset, c step the clock of the server. A command that was sent may be executed twice if there is a 2, and its
// process may give up waiting if there is a g.
func (w *world) next(found func(*world, error)) {
	if w.now < lastTick {
		v := w.clone("tick")
		v.now++
		found(v, nil)
	}
	for i := range w.net {
		c := &w.net[i]
		if c.executed == 0 || c.executed == 1 && w.has('2') {
			v := w.clone("execute %d", i)
			v.execute(&v.net[i])
			found(v, nil)
		}
		if c.executed > 0 && !c.answered && !c.givenUp {
			v := w.clone("answer %d", i)
			v.answer(&v.net[i])
			found(v, nil)
		}
		if !c.answered && !c.givenUp && w.has('g') {
			v := w.clone("give up %d", i)
			v.giveUp(&v.net[i])
			found(v, nil)
		}
	}
	if w.left == 0 {
		return
	}
	for p := range w.processes {
		if !w.processes[p].dead && !(w.alone && p > 0) {
			for _, op := range w.do {
				w.operate(p, op, found)
			}
		}
	}
	if w.back == 0 && w.has('c') {
		for back := 1; back <= 3; back++ {
			v := w.clone("clock back by %d", back)
			v.left--
			v.back = back
			found(v, nil)
		}
	}
}

func (w *world) has(letter rune) bool { return strings.ContainsRune(w.do, letter) }

func (w *world) operate(p int, op rune, found func(*world, error)) {
	own := &w.processes[p]
	do := func(f func(v *world) error) {
		v := w.clone("P%d %c", p, op)
		v.left--
		found(v, f(v))
	}
	l := own.lease()
	switch op {
	case 't':
		do(func(v *world) error { return v.take(p) })
	case 'b', 'B':
		if own.booking || len(own.leases) > 2 {
			return
		}
		for n := 1; n <= 2; n++ {
			do(func(v *world) error {
				v.trace += fmt.Sprint(n)
				c, _ := v.settlement(p, v.processes[p].lease())
				c.process, c.id, c.units, c.sent = p, v.id(), n, v.now
				if op == 'b' {
					v.execute(&c)
					v.answer(&c)
					return nil
				}
				v.processes[p].booking = true
				v.net = append(v.net, c)
				return nil
			})
		}
	case 's', 'j':
		if l.open && l.Left() > 0 {
			do(func(v *world) error { return v.spend(p, op == 'j') })
		}
	case 'e', 'E':
		if l.Units == 0 || l.sending || own.booking {
			return
		}
		do(func(v *world) error {
			c, due := v.settlement(p, v.processes[p].lease())
			switch {
			case !due:
			case op == 'e':
				v.execute(&c)
				v.answer(&c)
			default:
				v.net = append(v.net, c)
			}
			return nil
		})
	case 'u', 'm':
		if own.use == 0 || op == 'm' && (own.leaseOf(own.of) == nil || len(w.uses) > 3) {
			return
		}
		do(func(v *world) error {
			if op == 'u' {
				return v.change(p, 0)
			}
			defer func() { v.processes[p].use = 0 }()
			return v.change(p, own.first+1)
		})
	case 'd':
		if l.open && l.Left() > 0 || own.booking {
			do(func(v *world) error {
				v.processes[p].dead = true
				return nil
			})
		}
	case 'r':
		if len(w.entries) > 0 {
			do(func(v *world) error {
				v.reset(p)
				return nil
			})
		}
	}
}
