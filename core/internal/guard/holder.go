package guard

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/denycache"
	"github.com/sashlimit/sash/core/internal/lease"
	"github.com/sashlimit/sash/core/store"
)

// Package lease describes what a lease is. This file decides when units are booked, and how many.
//
// A log with few requests has no lease. With leastDemand requests in the time of a lease, on average of late, it gets a
// holder, and the next request takes its units and books more in the same call. Requests that come meanwhile wait.
// It keeps the holder while leastUsed units of its leases are used on average. When the lease has ended, or cannot
// serve a request, the next call settles it, takes, and books again; without a request, a timer settles it. In a
// request over several logs, those with a lease are spent of before the others are asked.

const (
	leastDemand  = 6      // requests in the time of a lease: logs with weights cost the store more, also without one
	sureDemand   = 48     // requests in that time after which the time before does not matter
	leastUsed    = 2      // units of a lease: for fewer, booking and settling cost the store more
	leastUnits   = 4      // to book, since more are seldom missing to others
	mostHolders  = 65_536 // logs with leases
	mostWaits    = 3      // for bookings on their way, of one request
	holderShards = 4096
	counters     = 65_536 // half a megabyte
	idleLeases   = 4      // for so many times the length of a lease a holder without one is kept
)

// leases are what this process has booked ahead.
type leases struct {
	length  time.Duration
	demand  [counters]atomic.Uint64 // see counted
	holders [holderShards]atomic.Pointer[holder]
	closed  atomic.Bool

	mu    sync.Mutex // is held while holders are added or removed
	count atomic.Int64
}

// holder is what this process knows of one log with one set of limits.
type holder struct {
	next atomic.Pointer[holder]
	key  store.Key
	hash uint64
	plan *store.Plan

	mu      sync.Mutex
	lease   *Lease        // in hand, or nil
	last    *Lease        // the latest that was ended, or nil
	booking chan struct{} // closed when the booking on its way was answered; nil if there is none
	waiting int           // requests that wait for it
	size    int           // units to book next
	used    float64       // units of a lease that were used of late
	others  float64       // leases of other processes that were seen of late
	again   time.Duration // when to book again, since the start of the guard
	late    bool          // the lease had ended when the booking was answered
	timer   *time.Timer
	gone    bool // it is not in the table any more
}

// Lease is one booking. The lock of its holder guards it.
type Lease struct {
	lease.Lease
	*holder

	id       uint64
	states   []store.State // of the limits, after the booking
	answered time.Duration // the booking, by the monotonic clock
	settling chan struct{} // closed when the settlement on its way was answered; nil if there is none
}

// Use is units that were spent of a lease. The zero Use is none.
type Use struct {
	of *Lease
	at time.Duration // by the monotonic clock
}

// IsLeased reports whether there is a use.
func (u Use) IsLeased() bool { return u.of != nil }

var processStart = time.Now()

// instant reads the clocks.
func instant() lease.Instant {
	now := time.Now()
	return lease.Instant{Mono: now.Sub(processStart), Wall: time.Duration(now.UnixNano())}
}

// find returns the holder of a take's log and limits, or nil. hash is that of the key.
func (ls *leases) find(t *store.Take, hash uint64) *holder {
	if ls.count.Load() == 0 {
		return nil // without a look at the table, which is seldom in the processor's cache
	}
	for h := ls.holders[hash%holderShards].Load(); h != nil; h = h.next.Load() {
		if h.hash == hash && isSame(h.plan, t.Plan) && logKeyOf(&h.key) == logKeyOf(&t.Key) {
			return h
		}
	}
	return nil
}

// isSame reports whether two plans have the same limits. Where requests choose limits, each may have a plan of its own.
func isSame(p, other *store.Plan) bool {
	return p == other || p.Keep == other.Keep && denycache.HaveSameLimits(p, other)
}

// ender ends the leases of holders that have had no request for some time.
type ender interface{ idle(h *holder) }

// wanted counts a request for a log without a holder, and returns one if there are many, or nil.
func (ls *leases) wanted(t *store.Take, hash uint64, now time.Duration, e ender) *holder {
	n, before := ls.counted(hash, uint64(now/ls.length))
	if before < leastDemand && n < sureDemand {
		return nil
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if h := ls.find(t, hash); h != nil || ls.count.Load() >= mostHolders {
		return h
	}
	h := &holder{key: cloneKey(&t.Key), hash: hash, plan: t.Plan, size: max(n, before), used: leastDemand}
	h.mu.Lock() // as its timer may end at once
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(ls.length, func() { e.idle(h) }) // also if nothing is booked, as when the store is away
	at := &ls.holders[hash%holderShards]
	h.next.Store(at.Load())
	at.Store(h)
	ls.count.Add(1)
	return h
}

// counted counts a request in a period, and returns how many there were in it, and in the periods before on average, of
// which each counts three quarters of the one after it. Logs share counters: 32 bits have the period, 16 each the
// sixteenths of that average and the requests in the period.
func (ls *leases) counted(hash, period uint64) (in, before int) {
	at := &ls.demand[hash%counters]
	for {
		old := at.Load()
		average, n := old>>16&0xffff, old&0xffff
		for passed := uint32(period) - uint32(old>>32); passed > 0 && average+n > 0; passed-- {
			average, n = (3*average+min(16*n, 0xffff))/4, 0
		}
		n = min(n+1, 0xffff)
		if at.CompareAndSwap(old, period<<32|average<<16|n) {
			return int(n), int(average / 16)
		}
	}
}

func (ls *leases) remove(h *holder) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for at := &ls.holders[h.hash%holderShards]; at.Load() != nil; at = &at.Load().next {
		if at.Load() == h {
			at.Store(h.next.Load())
			ls.count.Add(-1)
			return
		}
	}
}

// of calls f with the holders of a key, or all if it is nil.
func (ls *leases) of(key *store.Key, f func(*holder)) {
	for i := range ls.holders {
		if key != nil && uint64(i) != key.Hash()%holderShards {
			continue
		}
		for h := ls.holders[i].Load(); h != nil; h = h.next.Load() {
			if key == nil || logKeyOf(&h.key) == logKeyOf(key) {
				f(h)
			}
		}
	}
}

// inHand returns how many leases are in hand, and how many units these have left.
func (ls *leases) inHand() (n, units int) {
	if ls == nil {
		return 0, 0
	}
	ls.of(nil, func(h *holder) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.lease != nil && !h.lease.Ends(instant()) {
			n, units = n+1, units+h.lease.Left()
		}
	})
	return n, units
}

// spend takes the units of a request from the lease in hand, and answers it. It returns no use if that cannot serve it.
func (h *holder) spend(t *store.Take, a *store.Answer) Use {
	var at lease.Instant
	h.mu.Lock()
	l := h.lease
	if l == nil || !l.Spend(t.Cost, func() lease.Instant { at = instant(); return at }) {
		h.mu.Unlock()
		return Use{}
	}
	left := l.Left()
	h.mu.Unlock()
	t.ID = newID()
	*a = store.Answer{Allowed: true}
	if t.Mode == store.ModeUpTo {
		a.Granted = t.Cost
	}
	for i, s := range l.states {
		a.State[i] = store.State{Used: s.Used - left - t.Cost, Reset: max(s.Reset-(at.Mono-l.answered), 1)}
	}
	return Use{l, at.Mono}
}

// unspent returns how many units of the lease in hand are not spent, and are counted by the store.
func (h *holder) unspent() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease == nil {
		return 0
	}
	return h.lease.Left()
}

// isLeasable reports whether units can be booked in the log of a take. The limits of a shadow are asked about each
// request.
func isLeasable(t *store.Take) bool {
	return keepsEntries(t) && !t.Plan.Slots && t.Plan.Shadow == 0 &&
		(t.Mode == store.ModeUpTo || !t.Plan.NeverFits(t.Cost))
}

// spends reports whether a take may be served by a lease.
func spends(t *store.Take) bool {
	return t.Mode == store.ModeCharge || t.Mode == store.ModeChargeDenied || t.Mode == store.ModeUpTo
}

// addUnspent makes the units of the lease in hand that are not spent count as free in the answer to a peek.
func (h *holder) addUnspent(t *store.Take, a *store.Answer) {
	left := h.unspent()
	if left == 0 {
		return
	}
	for i := range t.Plan.Limits {
		a.State[i].Used = max(a.State[i].Used-left, 0)
	}
	if t.Plan.Judge(a, t.Cost, t.Mode); a.Allowed {
		a.Retry = 0
	}
}

// booking is a call that books.
type booking struct {
	store.Booking

	booked   store.Booked
	previous *Lease // that it settles, or nil
}

// begin returns the next booking, of a lease of that length, which the caller makes; or a channel that is closed when
// the one on its way was answered; or neither if nothing is booked now.
func (h *holder) begin(now, length time.Duration) (b *booking, wait chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.booking != nil:
		h.waiting++
		return nil, h.booking
	case h.gone, now < h.again && (h.lease == nil || h.late):
		return nil, nil
	}
	h.booking = make(chan struct{})
	b = new(booking)
	if l := h.end(); l != nil {
		if units, due := l.beginSettlement(); due {
			b.previous, b.Settled, b.Used = l, l.id, units
		}
	}
	b.ID, b.Most, b.Share, b.Lease = newID(), h.size, int(4*(1+h.others)), length
	return b, nil
}

// beginSettlement is Settlement of a lease whose lock the caller holds.
func (l *Lease) beginSettlement() (units int, due bool) {
	if units, due = l.Settlement(); due {
		l.settling = make(chan struct{})
	}
	return units, due
}

// endSettlement is Settled of a lease whose lock the caller holds.
func (l *Lease) endSettlement(answered bool) {
	l.Settled(answered)
	close(l.settling)
	l.settling = nil
}

// end ends the lease in hand, which it returns, or nil, and finds out how many units to book next. The caller holds the
// lock.
func (h *holder) end() *Lease {
	l := h.lease
	if h.lease = nil; l == nil {
		return nil
	}
	h.last = l
	used := l.Units - l.Left()
	switch h.used = (h.used + float64(used)) / 2; {
	case h.used < leastUsed:
		h.size = 0
	case l.Ends(instant()):
		h.size = max(used+used/4, leastUnits)
	default: // it was drained, or could not serve a request
		h.size = 2 * l.Units
	}
	return l
}
