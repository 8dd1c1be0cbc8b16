package guard

import (
	"context"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/lease"
	"github.com/sashlimit/sash/core/store"
)

// TakeLeased is [Guard.Take] of a guard with leases. It sets of[i] to what takes[i] has spent of a lease; other takes
// leave it zero. Logs that spend of a lease are not asked.
func (g *Guard) TakeLeased(
	ctx context.Context, takes []store.Take, answers []store.Answer, of []Use,
) (from event.Source, err error) {
	one := len(takes) == 1
	if one && takes[0].Mode == store.ModeCharge && isLeasable(&takes[0]) {
		return g.charge(ctx, takes, answers, of)
	}
	var at [store.MaxLimits]int // where the takes are that the store is asked about
	asked := at[:0]
	for i := range takes {
		t := &takes[i]
		if h := g.leases.find(t, t.Key.Hash()); h != nil && isLeasable(t) && t.Mode != store.ModePeek {
			if spends(t) && (one || t.Mode != store.ModeUpTo) {
				of[i] = h.spend(t, &answers[i])
			}
			if !of[i].IsLeased() && (one || h.unspent() > 0) {
				ctx = g.inTime(ctx, time.Now()) //nolint:fatcontext // the next one returns this one
				g.endLease(ctx, h)
			}
		}
		if !of[i].IsLeased() {
			asked = append(asked, i)
		}
	}
	switch len(asked) {
	case 0:
		return event.Lease, nil
	case len(takes):
		from, err = g.Take(ctx, takes, answers)
	default:
		from, err = g.takeOthers(ctx, takes, answers, asked)
		if err != nil && from != event.Local ||
			slices.ContainsFunc(answers, func(a store.Answer) bool { return !a.Allowed }) {
			for i, u := range of {
				g.giveBackLeased(u.of, takes[i].Cost)
				of[i] = Use{}
			}
		}
	}
	for _, i := range asked {
		if isLeasable(&takes[i]) {
			g.leaseAfter(&takes[i], &answers[i], from, err)
		}
	}
	return from, err
}

// leaseAfter books for a log that was asked without, if there are many requests, or completes the answer to a peek.
func (g *Guard) leaseAfter(t *store.Take, a *store.Answer, from event.Source, err error) {
	switch {
	case t.Mode == store.ModePeek:
		if h := g.leases.find(t, t.Key.Hash()); h != nil {
			h.addUnspent(t, a)
		}
	case spends(t) && from == event.Store && err == nil && a.Allowed:
		g.bookAhead(t)
	}
}

// charge is TakeLeased for one log. If the lease in hand cannot serve the request, and there are many, it books units.
func (g *Guard) charge(
	ctx context.Context, takes []store.Take, answers []store.Answer, of []Use,
) (from event.Source, err error) {
	t, a := &takes[0], &answers[0]
	hash := t.Key.Hash()
	h := g.leases.find(t, hash)
	if h != nil {
		if of[0] = h.spend(t, a); of[0].IsLeased() {
			return event.Lease, nil
		}
	}
	if g.denials.Lookup(takes, answers) {
		return event.Cache, nil
	}
	now := time.Now()
	ctx = g.inTime(ctx, now)
	if h == nil {
		h = g.leases.wanted(t, hash, now.Sub(g.start), g)
	}
	for waits := 0; h != nil && g.isHealthy(); waits++ {
		b, wait := h.begin(time.Since(g.start), g.leases.length)
		if b != nil {
			return g.takeBooking(ctx, h, b, takes, answers)
		}
		if wait == nil || waits == mostWaits {
			break
		}
		await(ctx, wait) //nolint:errcheck // the lease may have come in any case
		if of[0] = h.spend(t, a); of[0].IsLeased() {
			return event.Lease, nil
		}
		if ctx.Err() != nil {
			break // its call, which fails at once, counts from when it has begun to wait: see breaker.failure
		}
		now = time.Now()
	}
	return g.decide(ctx, now, &request{takes: takes, answers: answers})
}

// isHealthy reports whether units may be booked.
func (g *Guard) isHealthy() bool {
	return g.breaker.isBypassed() && g.record.entries.Load() == 0 && !g.leases.closed.Load()
}

// takeOthers is Take for some of the takes.
func (g *Guard) takeOthers(
	ctx context.Context, takes []store.Take, answers []store.Answer, asked []int,
) (from event.Source, err error) {
	var own [store.MaxLimits]store.Take
	var ownAnswers [store.MaxLimits]store.Answer
	for n, i := range asked {
		own[n] = takes[i]
	}
	from, err = g.Take(ctx, own[:len(asked)], ownAnswers[:len(asked)])
	for n, i := range asked {
		takes[i].ID, answers[i] = own[n].ID, ownAnswers[n]
	}
	return from, err
}

// giveBackLeased gives units back to a lease, or nil, because another log has denied.
func (g *Guard) giveBackLeased(l *Lease, units int) {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.Return(units)
	late := !l.IsOpen()
	l.mu.Unlock()
	if late {
		go g.settleLease(context.Background(), l) //nolint:errcheck // the record has the settlement
	}
}

// takeBooking decides a request and books, in one call of the store.
func (g *Guard) takeBooking(
	ctx context.Context, h *holder, b *booking, takes []store.Take, answers []store.Answer,
) (from event.Source, err error) {
	if b.previous != nil {
		g.denials.Invalidate(&h.key) // as units come back
	}
	sent, r := instant(), request{takes: takes, answers: answers, booking: b}
	err = errPanicked // unless decide returns
	defer func() { g.answer(h, b, sent, r.booking != nil, err) }()
	from, err = g.decide(ctx, time.Now(), &r)
	return from, err
}

// bookAhead books for a log without a request, if there are many.
func (g *Guard) bookAhead(t *store.Take) {
	now, hash := time.Since(g.start), t.Key.Hash()
	h := g.leases.find(t, hash)
	if h == nil {
		h = g.leases.wanted(t, hash, now, g)
	}
	if h == nil || !g.isHealthy() {
		return
	}
	b, _ := h.begin(now, g.leases.length)
	if b == nil {
		return
	}
	b.Take = store.Take{Key: h.key, Plan: h.plan, Cost: 1, ID: newID(), Mode: store.ModePeek}
	go func() {
		sent := instant()
		err := g.call(g.background, &h.key, event.Book, func(ctx context.Context) (err error) {
			b.booked, err = g.store.leaser.Book(ctx, b.Booking)
			return err
		})
		g.answer(h, b, sent, true, err)
	}()
}

// answer takes the answer to a booking, which was called for if made is set.
func (g *Guard) answer(h *holder, b *booking, sent lease.Instant, made bool, err error) {
	h.mu.Lock()
	answered := err == nil && made
	if b.previous != nil {
		b.previous.endSettlement(answered)
	}
	now := instant()
	h.others = max(float64(b.booked.Others), 0.8*h.others)
	if h.again = time.Since(g.start) + g.leases.length; answered && b.booked.Units > 0 {
		h.lease = &Lease{
			Lease:  lease.New(b.booked.Units, sent.End(b.Lease)),
			holder: h, id: b.ID, answered: now.Mono,
		}
		h.late = h.lease.Ends(now) // so another one would be as well, and those who wait for it would not be in time
		units := b.booked.Units
		if b.Take.Mode != store.ModePeek {
			units += b.Take.Cost
		}
		for i, s := range b.booked.Answer.State[:len(h.plan.Limits)] {
			if s.Used += units; s.Reset == 0 {
				s.Reset = h.plan.Limits[i].Window
			}
			h.lease.states = append(h.lease.states, s)
		}
	} else {
		h.size = max(b.Most/2, leastDemand)
	}
	h.size, h.waiting = max(h.size, h.waiting), 0
	h.gone = h.gone || b.Most == 0 // there are few requests
	close(h.booking)
	h.booking = nil
	h.timer.Reset(g.leases.length)
	gone := h.gone
	h.mu.Unlock()
	if gone {
		g.leases.remove(h)
	}
	if answered {
		return
	}
	if made && b.Most > 0 { // the store may have it
		g.record.remove(&store.Take{Key: h.key, Plan: h.plan, ID: b.ID})
	}
	if b.previous != nil {
		go g.settleLease(context.Background(), b.previous) //nolint:errcheck // the record has the settlement
	}
}

// idle settles a lease that has ended without a further request, and removes a holder that has had none for long.
func (g *Guard) idle(h *holder) {
	h.mu.Lock()
	if h.booking != nil { // answer sets the timer
		h.mu.Unlock()
		return
	}
	l := h.end()
	if h.gone = l == nil || h.size == 0; !h.gone {
		h.timer.Reset(idleLeases * g.leases.length)
	}
	gone := h.gone
	h.mu.Unlock()
	g.settleLease(context.Background(), l) //nolint:errcheck // the record has the settlement
	if gone {                              // not before, since EndLeases waits for settlements of holders only
		g.leases.remove(h)
	}
}

// endLease ends the lease in hand and settles it.
func (g *Guard) endLease(ctx context.Context, h *holder) {
	h.mu.Lock()
	l := h.end()
	h.mu.Unlock()
	g.settleLease(ctx, l) //nolint:errcheck // the record has the settlement
}

// EndLeases ends the leases of a key and settles them, those of bookings and settlements on their way as well; or for
// good those of all keys, if it is nil.
func (g *Guard) EndLeases(ctx context.Context, key *store.Key) {
	if g.leases == nil {
		return
	}
	if key == nil {
		g.leases.closed.Store(true)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, closeTimeout)
		defer cancel()
	}
	g.leases.of(key, func(h *holder) {
		h.mu.Lock()
		booking, last := h.booking, h.last
		h.mu.Unlock()
		if booking != nil {
			await(ctx, booking) //nolint:errcheck // what is in hand is settled in any case
		}
		g.endLease(ctx, h)
		g.settleLease(ctx, last) //nolint:errcheck // as above
	})
}

// settleLease closes a lease, unless it is nil, and tells the store what was used of it until the store knows that. If
// the store does not answer, the record has the settlement.
func (g *Guard) settleLease(ctx context.Context, l *Lease) error {
	for l != nil {
		l.mu.Lock()
		wait := l.settling
		units, due := l.beginSettlement()
		l.mu.Unlock()
		switch {
		case wait != nil:
			if err := await(ctx, wait); err != nil {
				return err
			}
			continue
		case !due:
			return nil
		}
		err := g.settleTo(ctx, l, units)
		l.mu.Lock()
		l.endSettlement(true)
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// settleTo settles the booking of a lease in the store, or else in the record.
func (g *Guard) settleTo(ctx context.Context, l *Lease, units int) error {
	defer g.denials.Invalidate(&l.key)
	g.denials.Invalidate(&l.key)
	s := store.Settlement{Key: l.key, ID: l.id, Cost: units}
	if g.record.settle(&s) {
		return nil
	}
	err := g.call(ctx, &l.key, event.Settle, g.store.settling(s))
	if err != nil {
		t := &store.Take{Key: l.key, Plan: l.plan}
		g.record.add(t, entry{id: l.id, cost: int32(units), sent: delivered, settled: true})
	}
	return err
}

// SettleLeased changes the cost of a use of a lease, which was t.Cost at first.
func (g *Guard) SettleLeased(ctx context.Context, u Use, t *store.Take, cost int) error {
	l := u.of
	l.mu.Lock()
	beyond, tell := l.Change(t.ID, t.Cost, cost)
	open := l.IsOpen()
	l.mu.Unlock()
	for tell {
		var err error
		own := *t
		if own.Cost, own.Mode = beyond, store.ModeRecord; beyond > 0 {
			err = g.SettleLate(ctx, &own, instant().Mono-u.at)
		} else { // a replay may not have added the entry yet
			err = g.Settle(ctx, store.Settlement{Key: t.Key, ID: t.ID}, true)
		}
		if err != nil {
			return err
		}
		l.mu.Lock()
		beyond, tell = l.Told(t.ID, beyond)
		l.mu.Unlock()
	}
	if open {
		return nil
	}
	return g.settleLease(ctx, l)
}
