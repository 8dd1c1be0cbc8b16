package guard

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/lease"
	"github.com/sashlimit/sash/core/store"
)

// A key with few requests has no lease. With leastDemand requests in the time of a lease, on average of late,
// its list of takes gets a holder, which it keeps while leastUsed units of its leases are used on average. Requests of
// the key that have another list are not leased.
const (
	leastDemand   = 6  // requests in the time of a lease, which costs the store more than a take
	leastUsed     = 2  // units of a lease
	leastUnits    = 4  // to ask for, since more are seldom missing to others
	part          = 4  // of what is left, which the processes share
	mostProcesses = 16 // that count
	idleLeases    = 4  // for so many times the length of a lease a holder without one is kept
)

// leases are what this process has taken ahead.
type leases struct {
	start  time.Time
	length time.Duration
	count  atomic.Int64 // of holders
	slots  [65_536]slot // by the hash of the key; they take a megabyte
}

// slot is of some keys, of which one may have a holder: the first that needs one.
type slot struct {
	demand atomic.Uint64 // 32 bits each have the number of a period, and how many requests there were: see counted
	holder atomic.Pointer[holder]
}

// holder is what this process knows of one list of takes, which are of one key.
type holder struct {
	*leases

	takes []store.Take

	mu      sync.Mutex
	hand    *held         // the lease in hand, or nil
	last    *held         // the latest that was ended, or nil
	booking chan struct{} // closed when the call that takes a lease has ended; nil if there is none
	size    int           // units to ask for next; 0 if there are few requests, so that the holder ends
	used    float64       // units of a lease that were used of late
	seen    int           // processes that use the logs as much as this one, this one included
	again   time.Duration // no lease before
	timer   *time.Timer
}

// held is one lease. The lock of its holder guards it.
type held struct {
	lease.Lease
	*holder

	turn     chan struct{} // a semaphore of settlements
	id       uint64
	answers  []store.Answer
	sent     time.Duration // by the monotonic clock
	answered time.Duration
}

// instant reads the clocks.
func (ls *leases) instant() lease.Instant {
	now := time.Now()
	return lease.Instant{Mono: now.Sub(ls.start), Wall: time.Duration(now.UnixNano())}
}

// isOf reports whether a holder is of a list. The limits of a request may be made anew, as those of an override.
func (h *holder) isOf(takes []store.Take) bool {
	return h.takes[0].Key.Equal(&takes[0].Key) && slices.EqualFunc(h.takes, takes, func(a, b store.Take) bool {
		return a.Limit == b.Limit || *a.Limit == *b.Limit
	})
}

func (ls *leases) slot(k *store.Key) *slot { return &ls.slots[k.Hash()%uint64(len(ls.slots))] }

// find returns the holder of a key, or nil. It may be of another key or list.
func (ls *leases) find(key *store.Key) *holder {
	if ls == nil || ls.count.Load() == 0 {
		return nil
	}
	return ls.slot(key).holder.Load()
}

// all returns all holders.
func (ls *leases) all() (all []*holder) {
	if ls == nil || ls.count.Load() == 0 {
		return nil
	}
	for i := range ls.slots {
		if h := ls.slots[i].holder.Load(); h != nil {
			all = append(all, h)
		}
	}
	return all
}

// wanted counts a request of a key without a holder, and returns one if there are many, or nil.
func (g *Guard) wanted(takes []store.Take) *holder {
	ls := g.leases
	s := ls.slot(&takes[0].Key)
	n := s.counted(uint64(ls.instant().Mono / ls.length))
	if n < leastDemand {
		return nil
	}
	h := &holder{leases: ls, takes: slices.Clone(takes), size: n, used: leastDemand, seen: mostProcesses}
	for key, i := takes[0].Key.Clone(), 0; i < len(takes); i++ {
		h.takes[i].Key = key
	}
	h.mu.Lock() // as its timer may end at once
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(ls.length, func() { g.idle(h) })
	if !s.holder.CompareAndSwap(nil, h) {
		h.timer.Stop()
		return s.holder.Load()
	}
	ls.count.Add(1)
	return h
}

func (ls *leases) remove(h *holder) {
	if ls.slot(&h.takes[0].Key).holder.CompareAndSwap(h, nil) {
		ls.count.Add(-1)
	}
}

// counted counts a request in a period, and returns how many there are in a period on average. Each period counts three
// quarters of the one after it.
func (s *slot) counted(period uint64) int {
	const one = 64 // so that little is lost by rounding
	for {
		old := s.demand.Load()
		sum := old & math.MaxUint32
		for passed := uint32(period) - uint32(old>>32); passed > 0 && sum > 0; passed-- {
			sum = sum * 3 / 4
		}
		sum += one
		if s.demand.CompareAndSwap(old, period<<32|sum) {
			return int(sum / (4 * one))
		}
	}
}

// inHand returns how many leases are in hand, and how many units these have left.
func (ls *leases) inHand() (n, units int) {
	for _, h := range ls.all() {
		h.mu.Lock()
		if h.hand != nil && h.hand.Left() > 0 && !h.hand.Ends(ls.instant()) {
			n, units = n+1, units+h.hand.Left()
		}
		h.mu.Unlock()
	}
	return n, units
}

// begin returns the takes of the next lease, which the caller makes; or a channel that is closed when the one on its
// way was answered; or neither if nothing is taken ahead now. Ended is a lease to settle, or nil.
func (h *holder) begin() (own []store.Take, wait chan struct{}, ended *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.booking != nil:
		return nil, h.booking, nil
	case h.size == 0 || h.instant().Mono < h.again:
		return nil, nil, nil
	}
	if ended = h.end(); h.size == 0 {
		h.timer.Reset(0)
		return nil, nil, ended
	}
	h.booking = make(chan struct{})
	own = slices.Clone(h.takes)
	for i := range own {
		own[i].Mode, own[i].Cost, own[i].Share = store.ModeAtMost, h.size, part*h.seen
	}
	return own, nil, ended
}

// end ends the lease in hand, which it returns, or nil, and finds out how many units to ask for next. The caller holds
// the lock.
func (h *holder) end() *held {
	l := h.hand
	if h.hand = nil; l == nil {
		return nil
	}
	h.last = l
	used := l.Units - l.Left()
	switch h.used = (h.used + float64(used)) / 2; {
	case h.used < leastUsed:
		h.size = 0
	case l.Left() == 0:
		h.size = 2 * l.Units
	default:
		h.size = max(used+used/4, leastUnits)
	}
	return l
}

// see finds out how many processes use the log as much as this one, by the units that are used in a window, and those
// that this one would use at the pace of its leases.
func (h *holder) see(a *store.Answer) {
	own := h.used * float64(h.takes[0].Limit.Window) / float64(h.length)
	h.seen = min(max(int(math.Ceil(float64(a.Used)/own)), 1), mostProcesses)
}
