// Package denycache remembers the latest denials of a store outside the process, so that a client which keeps retrying
// does not reach the store, and whom the store has denied is denied while it does not answer.
package denycache

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/store"
)

const (
	shardCount   = 256
	mostInAShard = 64 // denials, or more if they are for outages
)

// Cache has the latest denials of a store: of a log, the least cost that was denied. A denial is right until its wait
// has ended, since entries leave a log only as time passes. Units that are given back end it earlier: those that this
// process gives back make the cache forget it, and those of other processes are the reason for its greatest age.
//
// The cost must be the same. A larger one has a longer wait, and a smaller one may have room.
//
// For outages a denial is right until its wait has ended, whatever its age, and so is that of a log which was used up.
type Cache struct {
	maxAge  time.Duration // 0: nothing is remembered
	outages bool
	most    int // denials in a shard
	start   time.Time
	shards  [shardCount]shard
}

type shard struct {
	mu        sync.Mutex
	denials   map[uint64]*denial // by hash; of two logs with one hash the later one is remembered
	room      int                // how many denials there may be until those that have ended are removed
	forgotten time.Duration      // when Forget was called last, since the start of the cache
}

// denial does not change. Its times are relative to the start of the cache.
type denial struct {
	key      store.Key
	limit    *store.Limit
	cost     int
	received time.Duration // when the answer arrived
	until    time.Duration // while the store answers
	ends     time.Duration // in an outage
	answer   store.Answer
}

// New makes a cache whose denials are right for maxAge at most. If outages is not 0, it is for outages as well, and has
// room for about as many denials.
func New(maxAge time.Duration, outages int) *Cache {
	return &Cache{
		maxAge: maxAge, outages: outages > 0, most: max(mostInAShard, outages/shardCount),
		start: time.Now().Add(-1), // so that no instant is 0, as if something was forgotten then
	}
}

var seed = maphash.MakeSeed()

func (d *Cache) find(k *store.Key, l *store.Limit) (*shard, uint64) {
	h := k.Hash()
	return &d.shards[h%shardCount], h ^ maphash.String(seed, l.Log)
}

// isOf reports whether a denial is of that log and quota. The limits of a key may be made anew, as those of an
// override.
func (e *denial) isOf(k *store.Key, l *store.Limit) bool {
	same := e.limit == l || e.limit.Log == l.Log && e.limit.Quota == l.Quota && e.limit.Refill == l.Refill &&
		e.limit.Window == l.Window && !l.Unlimited
	return same && e.key.Equal(k)
}

// units returns how many units must fit for t to be allowed.
func units(t *store.Take) int {
	if t.Mode == store.ModeAtMost {
		return 1
	}
	return t.Cost
}

// isKept reports whether a denial of t is remembered while the store answers: not where each denial is recorded, and
// not of permits, of which nobody knows when they are given back.
func isKept(t *store.Take) bool {
	return !t.Limit.Permits && t.Mode != store.ModeRecord && t.Mode != store.ModeChargeDenied
}

// known returns the denial of a take's log, or nil.
func (d *Cache) known(t *store.Take) *denial {
	sh, hash := d.find(&t.Key, t.Limit)
	sh.mu.Lock()
	e := sh.denials[hash]
	sh.mu.Unlock()
	if e == nil || !e.isOf(&t.Key, t.Limit) {
		return nil
	}
	return e
}

// Lookup answers a request if one of its logs is known to deny it. The other answers are then not Known.
func (d *Cache) Lookup(takes []store.Take, answers []store.Answer) (found bool) {
	if d.maxAge == 0 || len(takes) > 1 && takes[0].Mode == store.ModePeek { // a peek is about each of its logs
		return false
	}
	for i := range takes {
		t := &takes[i]
		if e := d.known(t); e != nil && e.cost == units(t) && isKept(t) {
			if now := time.Since(d.start); now < e.until {
				answers[i], found = e.at(now, e.answer.Retry), true
			}
		}
	}
	return found
}

// at returns the answer as it is at an instant, with a wait since the answer has arrived. The store read its clock
// before, so no wait ends too early.
func (e *denial) at(now, wait time.Duration) store.Answer {
	a, passed := e.answer, now-e.received
	a.Retry, a.Reset = wait-passed, max(a.Reset-passed, 0)
	return a
}

// InOutage answers the takes of a request that are known to be denied while the store does not answer. Those of a
// larger cost are told the wait of the least one that was denied.
func (d *Cache) InOutage(takes []store.Take, answers []store.Answer) (found bool) {
	for i := range takes {
		t := &takes[i]
		if !d.outages || t.Mode == store.ModeRecord || t.Limit.NeverFits(units(t)) {
			continue
		}
		if e, now := d.known(t), time.Since(d.start); e != nil && now < e.endsFor(units(t)) {
			answers[i], found = e.at(now, e.endsFor(units(t))-e.received), true
		}
	}
	return found
}

// endsFor returns until when a cost is denied: a smaller one that had no room either at least until a unit leaves.
func (e *denial) endsFor(units int) time.Duration {
	switch {
	case units >= e.cost:
		return e.ends
	case e.answer.Used+units > e.limit.Quota:
		return min(e.ends, e.received+e.answer.Reset)
	}
	return 0
}

// Note remembers the denials of the store's answer, for outages also that a log was used up, and forgets the denials of
// logs that have room. The store was asked after an instant: where that is a while ago, denials end that much earlier.
func (d *Cache) Note(takes []store.Take, answers []store.Answer, begun time.Time) {
	asked := begun.Sub(d.start)
	for i := range takes {
		t, a := &takes[i], answers[i]
		if d.maxAge == 0 || !a.Known {
			continue
		}
		cost, lasts := units(t), time.Duration(0)
		switch {
		case a.Allowed: // it may have recorded units
			cost, a = 1, usedUp(t, &a)
		case isKept(t): // until the oldest unit leaves the window, because then the numbers change
			lasts = min(d.maxAge, a.Retry, a.Reset)
		}
		ends := a.Retry
		if !d.outages || t.Limit.Permits {
			ends = 0
		}
		if lasts <= 0 {
			d.delete(&t.Key, t.Limit)
		}
		if lasts <= 0 && ends <= 0 {
			continue
		}
		d.add(&denial{
			key: t.Key.Clone(), limit: t.Limit, cost: cost, received: time.Since(d.start),
			until: asked + lasts, ends: asked + ends, answer: a,
		}, asked)
	}
}

// usedUp returns how a log would answer a take of one unit after it has admitted t, or no answer if it has room.
func usedUp(t *store.Take, a *store.Answer) store.Answer {
	used := a.Used + t.Cost
	if t.Mode == store.ModeAtMost {
		used = a.Used + a.Granted
	}
	if t.Mode == store.ModePeek || t.Limit.HasRoom(used, 1) {
		return store.Answer{}
	}
	return store.Answer{Known: true, Used: used, Reset: a.Reset, Retry: a.Reset}
}

// add adds a denial, unless its log may have changed since the store was asked.
func (d *Cache) add(e *denial, asked time.Duration) {
	sh, hash := d.find(&e.key, e.limit)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	old := sh.denials[hash]
	if sh.forgotten >= asked || old != nil && old.cost < e.cost && e.received < old.until && old.isOf(&e.key, e.limit) {
		return
	}
	if old == nil && len(sh.denials) >= sh.room {
		sh.makeRoom(d.most, e.received)
	}
	sh.denials[hash] = e
}

// makeRoom removes the denials that have ended, or all if too many have not.
func (sh *shard) makeRoom(most int, now time.Duration) {
	maps.DeleteFunc(sh.denials, func(_ uint64, e *denial) bool { return now >= e.until && now >= e.ends })
	if sh.denials == nil || len(sh.denials) >= most {
		sh.denials = make(map[uint64]*denial)
	}
	sh.room = min(max(2*len(sh.denials), mostInAShard), most)
}

func (d *Cache) delete(k *store.Key, l *store.Limit) {
	sh, hash := d.find(k, l)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.denials, hash)
}

// Forget removes the denial of a log, because units may have been removed from the log. Answers that are on their way
// are not remembered.
func (d *Cache) Forget(k *store.Key, l *store.Limit) {
	d.ForgetForNow(k, l)
	d.delete(k, l)
}

// ForgetForNow is Forget, but the denial stays for outages: it was right without what was then added and removed.
func (d *Cache) ForgetForNow(k *store.Key, l *store.Limit) {
	sh, hash := d.find(k, l)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.forgotten = time.Since(d.start)
	if e := sh.denials[hash]; e != nil {
		old := *e
		old.until = 0
		sh.denials[hash] = &old
	}
}

// Len returns the number of denials that are known.
func (d *Cache) Len() (n int) {
	for i := range d.shards {
		sh := &d.shards[i]
		sh.mu.Lock()
		for _, e := range sh.denials {
			if time.Since(d.start) < e.until {
				n++
			}
		}
		sh.mu.Unlock()
	}
	return n
}
