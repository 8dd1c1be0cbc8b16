package guard

import (
	"errors"
	"time"

	"github.com/sashlimit/sash/core/store"
)

const mostOwed = 10_000 // takes of one log that are to be removed from it

// owed is a take in the book of a backlog: a call about it is under way, or it is to be settled, or both. While a call
// is under way no settlement is sent, because it could overtake the call.
type owed struct {
	calls     int  // under way: settlements, and those that their callers have left; if there are none, it is due
	isOwed    bool // the store is to be told, or is being told, what the take costs
	was, cost int
	at        time.Duration // of the take
	changes   int           // how often the cost was changed
}

// call notes that a call about a take is under way. The caller holds the lock.
func (b *backlog) call(id uint64) *owed {
	if b.book == nil {
		b.book = make(map[uint64]*owed)
	}
	o := b.book[id]
	if o == nil {
		o = new(owed)
		b.book[id] = o
	} else if o.calls == 0 {
		b.due--
	}
	o.calls++
	return o
}

// land notes that a call about a take has ended. The caller holds the lock.
func (rec *record) land(b *backlog, id uint64) {
	o := b.book[id]
	switch o.calls--; {
	case o.calls > 0:
	case o.isOwed && rec.hasPlace(b) && (o.cost > 0 || b.due < mostOwed):
		b.due++
	default:
		delete(b.book, id)
	}
}

// owe notes what a take is to cost. What was undone stays undone.
func (o *owed) owe(s *store.Settlement, now time.Duration) {
	if !o.isOwed {
		o.was, o.cost, o.at, o.isOwed = s.Was, s.Cost, now-s.Age, true
	} else if o.cost > 0 {
		o.cost = s.Cost
	}
	o.changes++
}

// forgive removes what is owed. The caller holds the lock.
func (b *backlog) forgive() {
	for id, o := range b.book {
		if o.isOwed = false; o.calls == 0 {
			delete(b.book, id)
		}
	}
	b.due = 0
}

// owe notes that a take is to be settled, after the calls about it that are under way.
func (g *Guard) owe(s *store.Settlement) {
	if g.store.settler != nil {
		g.record.change(&s.Key, s.Limit, func(b *backlog) {
			b.call(s.ID).owe(s, g.record.now())
			g.record.land(b, s.ID)
		})
	}
}

// begin books a settlement, and changes the log of this process, which may have the take whoever has decided it, since
// Add records there. It returns nil if the store is told later: when other calls about the take have ended, or after
// what its log lacks, unless the take was never sent. Otherwise the caller tells the store, and then that it has ended.
func (g *Guard) begin(s *store.Settlement, degraded bool) (b *backlog, changes int) {
	rec := g.record
	rec.change(&s.Key, s.Limit, func(found *backlog) {
		isKnown := found.book[s.ID] != nil
		o := found.call(s.ID)
		o.owe(s, rec.now())
		if g.config.Failure == Local && s.Limit.Algorithm == store.SlidingLog { // no replay merges it meanwhile
			rec.Settle(s)
		}
		if !isKnown && found.takes == 0 {
			b, changes = found, o.changes
			return
		}
		o.isOwed = isKnown || !degraded || found.run != nil || rec.mayHave(s.Age)
		rec.land(found, s.ID)
	})
	return b, changes
}

// ended notes that a call about a take has ended. If it was a settlement that was done, and the take's cost was not
// changed meanwhile, nothing is owed any more. It reports whether something of the log is due.
func (g *Guard) ended(b *backlog, id uint64, changes int, done bool) (isDue bool) {
	g.record.changed(b, func() {
		if o := b.book[id]; done && o.changes == changes {
			o.isOwed = false
		}
		g.record.land(b, id)
		isDue = b.due > 0
	})
	return isDue
}

// whenEnded calls f when a call with that error has ended: now, unless its caller has left it. A store of several
// servers may have joined the errors of several calls.
func whenEnded(err error, f func()) {
	left := (*store.LeftError)(nil)
	if all, ok := err.(interface{ Unwrap() []error }); ok && len(all.Unwrap()) > 1 {
		first, others := all.Unwrap()[0], all.Unwrap()[1:]
		whenEnded(first, func() { whenEnded(errors.Join(others...), f) })
	} else if errors.As(err, &left) {
		left.Then(f)
	} else {
		f()
	}
}

// fly notes that a call about takes is under way, if err is that of a caller that has left it.
func (g *Guard) fly(err error, takes []store.Take) {
	if !errors.As(err, new(*store.LeftError)) {
		return
	}
	logs, ids := make([]*backlog, len(takes)), make([]uint64, len(takes))
	for i := range takes {
		t := &takes[i]
		ids[i] = t.ID
		g.record.change(&t.Key, t.Limit, func(b *backlog) { logs[i] = b; b.call(t.ID) })
	}
	whenEnded(err, func() {
		for i, b := range logs {
			if g.ended(b, ids[i], 0, false) {
				g.startReplay(b) //nolint:errcheck // it is done later
			}
		}
	})
}

// disown has takes removed from the store, which may have recorded them in vain. Algorithms that count cannot tell.
func (g *Guard) disown(takes []store.Take) {
	for i := range takes {
		if t := &takes[i]; t.Limit.Algorithm == store.SlidingLog && t.Mode != store.ModePeek {
			g.owe(&store.Settlement{Key: t.Key, Limit: t.Limit, ID: t.ID, Was: t.Cost})
		}
	}
}
