package guard

import (
	"cmp"
	"context"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/lease"
	"github.com/sashlimit/sash/core/store"
)

// Use is one unit that was spent of a lease. The zero Use is none.
type Use struct{ of *held }

// IsLeased reports whether there is a use. If so, [Guard.SettleLeased] settles it in all its logs, and otherwise
// [Guard.Settle] in each.
func (u Use) IsLeased() bool { return u.of != nil }

// isLeasable reports whether a request may be served by a lease: an admission of one unit of logs of one key, which are
// on one server.
func isLeasable(takes []store.Take) bool {
	for i := range takes {
		t := &takes[i]
		if t.Mode != store.ModeCharge && t.Mode != store.ModeChargeDenied || t.Cost != 1 || !isMerged(t.Limit) ||
			i > 0 && !t.Key.Equal(&takes[0].Key) {
			return false
		}
	}
	return true
}

// TakeLeased is [Guard.Take] of a guard with leases, for takes of one unit. If units that were taken ahead have served
// the request, the source is event.Lease. Takes of several keys are never leased.
//
// Package lease describes what a lease is. Once there are many requests, the next one takes more units than its own,
// for others. Those that come meanwhile wait. When a lease has ended, a timer settles it.
func (g *Guard) TakeLeased(
	ctx context.Context, takes []store.Take, answers []store.Answer,
) (u Use, from event.Source, err error) {
	if !isLeasable(takes) {
		ctx, cancel := g.Within(ctx)
		defer cancel()
		for i := range takes { // units that nobody has used must not deny the request
			if h := g.leases.find(&takes[i].Key); h != nil {
				g.endLease(ctx, h)
			}
		}
		from, err = g.Take(ctx, takes, answers)
		return u, from, err
	}
	h := g.leases.find(&takes[0].Key)
	if u = h.spend(takes, answers); u.IsLeased() {
		return u, event.Lease, nil
	}
	if g.denials.Lookup(takes, answers) {
		return u, event.Cache, nil
	}
	if h == nil {
		h = g.wanted(takes)
	}
	ctx, cancel := g.Within(ctx)
	defer cancel()
	if h != nil && h.isOf(takes) && !g.breaker.isFailing() && !g.closing.Load() { //nolint:nestif // one way each
		own, wait, ended := h.begin()
		if ended != nil {
			go g.settleLease(context.Background(), ended) //nolint:gosec // it does not end with the request
		}
		if own != nil {
			return g.book(ctx, h, own, takes, answers)
		}
		if wait != nil {
			await(ctx, wait)
			if u = h.spend(takes, answers); u.IsLeased() {
				return u, event.Lease, nil
			}
			if ctx.Err() != nil { // they all waited for one call, which counts as one failure
				setID(takes, newID())
				from, err = g.withoutStore(takes, answers, false, errNoAnswer)
				return u, from, err
			}
		}
	}
	from, err = g.decide(ctx, takes, answers)
	return u, from, err
}

// await waits until done is closed, or for the end of ctx.
func await(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// spend takes the unit of a request from the lease in hand, and answers it. It returns no use if there is none.
func (h *holder) spend(takes []store.Take, answers []store.Answer) Use {
	if h == nil {
		return Use{}
	}
	var at lease.Instant
	h.mu.Lock()
	l := h.hand
	if l == nil || !h.isOf(takes) || !l.Spend(func() lease.Instant { at = h.instant(); return at }) {
		h.mu.Unlock()
		return Use{}
	}
	spent := l.Units - l.Left()
	h.mu.Unlock()
	setID(takes, newID())
	return l.answer(answers, spent, at.Mono)
}

// answer answers the request that has the unit of a lease with that number.
func (l *held) answer(answers []store.Answer, number int, now time.Duration) Use {
	for i, a := range l.answers {
		answers[i] = store.Answer{
			Known: true, Allowed: true, Used: a.Used + number - 1, Reset: max(a.Reset-(now-l.answered), 1),
		}
	}
	return Use{l}
}

// book decides a request by takes that ask for its own unit and for those of others.
func (g *Guard) book(
	ctx context.Context, h *holder, own, takes []store.Take, answers []store.Answer,
) (u Use, from event.Source, err error) {
	setID(own, newID())
	got := make([]store.Answer, len(own))
	begun, sent := time.Now(), g.leases.instant()
	asked, err := g.ask(ctx, own, got)
	l := g.booked(h, own, got, sent)
	setID(takes, newID())
	switch {
	case err != nil:
		if asked {
			g.fly(err, own)
			g.disown(own)
		}
		from, err = g.withoutStore(takes, answers, false, err)
		return u, from, err
	case l != nil:
		g.denials.Note(own, got, begun)
		return l.answer(answers, 1, l.answered), event.Store, nil
	case takes[0].Mode == store.ModeChargeDenied: // the denial is to be recorded
		from, err = g.decide(ctx, takes, answers)
		return u, from, err
	}
	g.denials.Note(own, got, begun)
	copy(answers, got)
	return u, event.Store, nil
}

// booked takes the answer to the takes of a lease, and returns that, of which the first unit is spent, or nil. If the
// answer is late, only that unit is used, as that of an ordinary take.
func (g *Guard) booked(h *holder, own []store.Take, got []store.Answer, sent lease.Instant) (l *held) {
	now := g.leases.instant()
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.booking)
	h.booking = nil
	h.timer.Reset(g.leases.length)
	if units := got[0].Granted; units > 0 { // none if the store has not answered
		l = &held{
			Lease: lease.New(units, sent.End(g.leases.length)), holder: h, id: own[0].ID, answers: got,
			turn: make(chan struct{}, 1), sent: sent.Mono, answered: now.Mono,
		}
		l.Spend(func() lease.Instant { return sent })
		h.see(&got[0])
		if units >= leastUsed && !l.Ends(now) {
			h.hand = l
			return l
		}
		l.Close()
		h.last = l
		if units > 1 {
			go g.settleLease(context.Background(), l)
		}
	}
	h.again = now.Mono + g.leases.length // so that requests do not wait for each other
	return l
}

// idle settles a lease that has ended without a further request, and removes a holder that has had none for long.
func (g *Guard) idle(h *holder) {
	h.mu.Lock()
	if h.booking != nil { // booked sets the timer
		h.mu.Unlock()
		return
	}
	l := h.end()
	gone := l == nil || h.size == 0
	if gone {
		h.size = 0
	} else {
		h.timer.Reset(idleLeases * g.leases.length)
	}
	h.mu.Unlock()
	g.settleLease(context.Background(), l)
	if gone { // not before, since endLeases finds holders only
		g.leases.remove(h)
	}
}

// endLeases ends the leases of a holder and settles them, one included whose call is under way.
func (g *Guard) endLeases(ctx context.Context, h *holder) {
	h.mu.Lock()
	booking := h.booking
	h.mu.Unlock()
	if booking != nil {
		await(ctx, booking)
	}
	h.mu.Lock()
	last := h.last
	h.mu.Unlock()
	g.settleLease(ctx, last)
	g.endLease(ctx, h)
}

// endLease ends the lease in hand and settles it.
func (g *Guard) endLease(ctx context.Context, h *holder) {
	h.mu.Lock()
	l := h.end()
	h.mu.Unlock()
	g.settleLease(ctx, l)
}

// settleLease closes a lease, unless it is nil, and tells the store what was used of it. If the store does not answer,
// a replay tells it.
func (g *Guard) settleLease(ctx context.Context, l *held) {
	if l != nil {
		l.turn <- struct{}{}
		g.settleSum(ctx, l) //nolint:errcheck // a replay tells the store
		<-l.turn
	}
}

// settleSum is settleLease for a caller whose turn it is. It returns the errors of a store that does not answer, unless
// this process counts meanwhile.
func (g *Guard) settleSum(ctx context.Context, l *held) (failed error) {
	l.mu.Lock()
	was, sum, due := l.Settlement()
	l.mu.Unlock()
	for i := 0; due && i < len(l.takes); i++ {
		s := &store.Settlement{
			Key: l.takes[i].Key, Limit: l.takes[i].Limit, ID: l.id, Was: was, Cost: sum, Age: l.instant().Mono - l.sent,
		}
		later, err := g.settle(ctx, s, false)
		if g.config.Failure != Local {
			failed = cmp.Or(err, failed)
		} else if later || err != nil {
			g.keepLease(s)
		}
		g.denials.Forget(&s.Key, s.Limit)
	}
	return failed
}

// keepLease has what was used of a lease count in this process, too.
func (g *Guard) keepLease(s *store.Settlement) {
	if s.Cost > 0 {
		at := g.record.now() - s.Age // before the log reads its clock
		g.record.Merge(&store.MergeRequest{
			Key: s.Key, Limit: s.Limit, Entries: []store.Entry{{ID: s.ID, Cost: s.Cost, Age: s.Age}},
		})
		g.record.decided(&s.Key, s.Limit, 0, at)
	}
}

// SettleLeased changes the cost of a use of a lease in all its logs. The ID is that of its takes. If the store does not
// answer, a replay tells it.
func (g *Guard) SettleLeased(ctx context.Context, u Use, id uint64, cost int) error {
	l := u.of
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.mu.Lock()
	due := l.Change(id, cost)
	l.mu.Unlock()
	if !due {
		return nil
	}
	return g.settleSum(ctx, l)
}
