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
	processes = 2
)

// broken are rules that are not followed.
type broken struct {
	windowsAlone   bool // the windows of the log are not longer than those that are promised
	ownWindows     bool // they are longer by the length of the asker's own leases
	endFromReply   bool // the end of a lease is counted from the reply
	tickLate       bool // a lease is spent after its end
	resetLive      bool // a reset removes entries of leases that are in hand
	sumBeforeClose bool // a settlement is computed before the lease is closed
	relative       bool // a settlement tells what to give back
	outOfOrder     bool // a settlement is sent before the one before was answered
	moreAtEnd      bool // the store is told of more units of a use when the lease ends
	undoLost       bool // a use is not undone if its lease was settled
	unanswered     bool // an entry without an answer is kept
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
	still  bool           // no time passes
}

type limit struct{ quota, window int }

type entry struct {
	id, at, units int
	late          bool // it was changed by a command that its process waits for no longer
}

// realUse is what was truly used.
type realUse struct {
	id, entry, at, units int
	raised               int // what a settlement has added, since when it is in the log; else -1
	forgotten            bool
}

type held struct {
	Lease

	id      int
	sent    int
	sending bool // a settlement is on its way
	due     bool // it was not answered
}

type process struct {
	dead     bool
	leases   []held // the last one is in hand
	booking  bool   // the takes of a lease are on their way
	use      int    // the latest use, which can be changed, or 0
	of       int    // the entry of its lease, or its own
	deniedAt int    // when the denial was asked that is remembered, or -1
}

// command is on its way: it takes units, or settles an entry.
type command struct {
	process, id, units int // units is 0 if it settles
	sum                int // of a settlement
	sent, executedAt   int
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

func clock(now int) Instant { return Instant{time.Duration(now) * tick, time.Duration(now) * tick} }

func (w *world) server() int { return w.now - w.back }

func (w *world) id() int {
	w.ids++
	return w.ids
}

// longer returns by how much the windows of the log are longer than those that are promised.
func (w *world) longer(p int) int {
	switch {
	case w.windowsAlone:
		return 0
	case w.ownWindows:
		return w.d[p]
	}
	return max(w.d[0], w.d[1])
}

// fits reports whether units fit each window that ends now.
func (w *world) fits(p, units int) bool {
	for _, l := range w.limits {
		sum := units
		for _, e := range w.entries {
			if e.at > w.server()-l.window-w.longer(p) {
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

// execute executes a command.
func (w *world) execute(c *command) {
	c.executed++
	e := w.entry(c.id)
	late := c.givenUp || c.answered || c.executed > 1
	switch {
	case c.units > 0 && c.executed == 1:
		if c.admitted = w.fits(c.process, c.units); c.admitted {
			c.executedAt = w.now
			w.entries = append(w.entries, entry{c.id, w.server(), c.units, late})
		}
	case c.units == 0 && e != nil:
		e.late = e.late || late
		if w.relative {
			e.units -= c.sum
		} else {
			e.units = c.sum
		}
		w.entries = slices.DeleteFunc(w.entries, func(e entry) bool { return e.units <= 0 })
	}
}

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
	closed := &l.Lease
	if w.sumBeforeClose && l.open {
		early := l.Lease
		closed = &early
	}
	was, sum, due := closed.Settlement()
	if l.stored = sum; !due && !l.due {
		return c, false
	}
	if w.relative {
		sum = was - sum
	}
	l.sending, l.due = !w.outOfOrder, false
	return command{process: p, id: l.id, sum: sum, sent: w.now}, true
}

// answer gives a process the reply to a command.
func (w *world) answer(c *command) error {
	c.answered = true
	p := &w.processes[c.process]
	if p.dead {
		return nil
	}
	if c.units == 0 {
		if l := p.leaseOf(c.id); l != nil {
			if w.sumBeforeClose && l.open {
				l.open = false
			}
			l.sending = false
		}
		return nil
	}
	if p.booking = false; !c.admitted {
		return nil
	}
	begun := clock(c.sent)
	if w.endFromReply {
		begun = clock(w.now)
	}
	end := begun.End(time.Duration(w.d[c.process]) * tick)
	if w.tickLate {
		end = begun.End(time.Duration(w.d[c.process]+2) * tick)
	}
	l := held{Lease: New(c.units, end), id: c.id, sent: c.sent}
	l.Spend(func() Instant { return begun })
	p.leases = append(p.leases, l)
	return w.used(c.process, c.id, c.executedAt, c.executedAt)
}

// giveUp ends the wait for an answer. What it was about is then settled again, or to 0.
func (w *world) giveUp(c *command) {
	c.givenUp = true
	p := &w.processes[c.process]
	if p.dead {
		return
	}
	if l := p.leaseOf(c.id); l != nil {
		l.sending, l.due = false, true
	}
	if c.units > 0 {
		if p.booking = false; !w.unanswered {
			w.net = append(w.net, command{process: c.process, id: c.id, sent: w.now})
		}
	}
}

// used notes a use of one unit, and reports whether all windows are within their quotas. What settlements have added
// since the unit was taken does not count.
func (w *world) used(p, entry, at, taken int) error {
	id := w.id()
	w.uses = append(w.uses, realUse{id: id, entry: entry, at: at, units: 1, raised: -1})
	w.processes[p].use, w.processes[p].of = id, entry
	for _, l := range w.limits {
		for _, last := range w.uses {
			if last.forgotten || last.units == 0 || last.at < at || last.at-l.window >= at {
				continue
			}
			sum := 0
			for _, u := range w.uses {
				switch {
				case u.at <= last.at-l.window || u.at > last.at || u.forgotten:
				case u.raised >= taken:
					sum += min(u.units, 1)
				default:
					sum += u.units
				}
			}
			if sum > l.quota {
				return fmt.Errorf("%d used in (%d, %d], of %d", sum, last.at-l.window, last.at, l.quota)
			}
		}
	}
	return nil
}

// excused reports whether all units of an entry may deny: those of a lease in hand or on its way, of a settlement on
// its way, of a process that has died, and of a command that was executed too late.
func (w *world) excused(e *entry) bool {
	if e.late {
		return true
	}
	for i := range w.net {
		c := &w.net[i]
		if c.id == e.id && (c.executed == 0 || !c.answered && !c.givenUp || w.processes[c.process].dead) {
			return true
		}
	}
	for p := range w.processes {
		if l := w.processes[p].leaseOf(e.id); l != nil {
			return w.processes[p].dead || l.open || l.sending || l.due || l.stored != l.Units-l.left+l.more
		}
	}
	return false
}

// denied checks a denial of one unit: there must be no room for it because of what was truly used, in the window or
// late by as much as a lease, and of entries that are excused.
func (w *world) denied() error {
	if w.back > 0 {
		return nil
	}
	longest := max(w.d[0], w.d[1])
	for _, l := range w.limits {
		sum := 1
		for i := range w.entries {
			e := &w.entries[i]
			if e.at <= w.server()-l.window-longest {
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
	if !w.fits(p, 1) {
		own.deniedAt = w.now
		return w.denied()
	}
	own.deniedAt = -1
	id := w.id()
	w.entries = append(w.entries, entry{id: id, at: w.server(), units: 1})
	return w.used(p, id, w.now, w.now+1)
}

// spend takes a unit of the lease in hand.
func (w *world) spend(p int) error {
	l := w.processes[p].lease()
	if !l.Spend(func() Instant { return clock(w.now) }) {
		return nil
	}
	return w.used(p, l.id, w.now, l.sent)
}

// change settles the latest use of a process.
func (w *world) change(p, units int) {
	own := &w.processes[p]
	use := &w.uses[slices.IndexFunc(w.uses, func(u realUse) bool { return u.id == own.use })]
	l := own.leaseOf(own.of)
	own.use = 0
	if l == nil { // a plain take
		w.execute(&command{id: own.of, sum: units, executed: 1})
		use.units = units
		return
	}
	if w.undoLost && !l.open && units == 0 {
		use.units = 0
		return
	}
	l.Change(uint64(use.id), units)
	if use.units = units; units == 0 || w.moreAtEnd {
		return
	}
	use.raised = w.now
	if c, due := w.settlement(p, l); due {
		w.execute(&c)
		w.answer(&c) // it uses nothing
	}
}

func (w *world) reset(p int) {
	own := w.processes[p].lease()
	if c, due := w.settlement(p, own); due {
		w.execute(&c)
		w.answer(&c) // it uses nothing
	}
	young := max(w.d[0], w.d[1])
	w.entries = slices.DeleteFunc(w.entries, func(e entry) bool { return w.resetLive || e.at <= w.server()-young })
	for i := range w.uses {
		w.uses[i].forgotten = w.uses[i].forgotten || w.entry(w.uses[i].entry) == nil
	}
	for p := range w.processes {
		w.processes[p].use = 0
	}
}

// next calls found with all worlds that follow. The operations are, by letter: t take, b take a lease, B send its
// takes, s spend, e end a lease, E send its settlement, u undo, m settle to more, d die, r reset, c step the clock of
// the server. A command that was sent may be executed twice if there is a 2, and its process may give up waiting if
// there is a g.
func (w *world) next(found func(*world, error)) {
	if w.now < lastTick && !w.still {
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
			found(v, v.answer(&v.net[i]))
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
	now := func(v *world, c command, due bool) error {
		if !due {
			return nil
		}
		v.execute(&c)
		return v.answer(&c)
	}
	l := own.lease()
	switch op {
	case 't':
		do(func(v *world) error { return v.take(p) })
	case 'b', 'B':
		if own.booking || l.open || len(own.leases) > 2 {
			return
		}
		for n := 2; n <= 3; n++ {
			do(func(v *world) error {
				v.trace += fmt.Sprint(n)
				c := command{process: p, id: v.id(), units: n, sent: v.now}
				if op == 'b' {
					return now(v, c, true)
				}
				v.processes[p].booking = true
				v.net = append(v.net, c)
				return nil
			})
		}
	case 's':
		if l.open && l.Left() > 0 {
			do(func(v *world) error { return v.spend(p) })
		}
	case 'e', 'E':
		if l.Units == 0 || l.sending || own.booking {
			return
		}
		do(func(v *world) error {
			c, due := v.settlement(p, v.processes[p].lease())
			if op == 'e' || !due {
				return now(v, c, due)
			}
			v.net = append(v.net, c)
			return nil
		})
	case 'u', 'm':
		if own.use == 0 || op == 'm' && (own.leaseOf(own.of) == nil || own.leaseOf(own.of).sending || len(w.uses) > 3) {
			return
		}
		do(func(v *world) error {
			v.change(p, map[rune]int{'u': 0, 'm': 2}[op])
			return nil
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
