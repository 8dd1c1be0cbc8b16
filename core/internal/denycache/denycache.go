// Package denycache remembers the latest denials of a store outside the process, so that a client which keeps retrying
// does not reach the store, and whom the store has denied is denied while it does not answer.
package denycache

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
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
	forgotten atomic.Uint64      // how often Forget was called
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
	return &Cache{maxAge: maxAge, outages: outages > 0, most: max(mostInAShard, outages/shardCount), start: time.Now()}
}

var seed = maphash.MakeSeed()

func (d *Cache) find(k *store.Key, l *store.Limit) (*shard, uint64) {
	h := k.Hash()
	return &d.shards[h%shardCount], h ^ maphash.String(seed, l.Log)
}

// isOf reports whether a denial is of that log and quota. The limits of a key may be made anew, as those of an override.
func (e *denial) isOf(k *store.Key, l *store.Limit) bool {
	same := e.limit == l || e.limit.Log == l.Log && e.limit.Quota == l.Quota && e.limit.Refill == l.Refill &&
		e.limit.Window == l.Window && !l.Unlimited
	return same && e.key.Equal(k)
}

// cost returns how many units must fit for t to be allowed, or 0 if its denial is not remembered: where each denial is
// recorded, and of permits, of which nobody knows when they are given back.
func cost(t *store.Take) int {
	switch {
	case t.Limit.Permits || t.Mode == store.ModeRecord || t.Mode == store.ModeChargeDenied:
		return 0
	case t.Mode == store.ModeAtMost:
		return 1
	}
	return t.Cost
}

// Lookup answers a request if one of its logs is known to deny it. The other answers are then not Known.
func (d *Cache) Lookup(takes []store.Take, answers []store.Answer) (found bool) {
	if d.maxAge == 0 || len(takes) > 1 && takes[0].Mode == store.ModePeek { // a peek is about each of its logs
		return false
	}
	for i := range takes {
		t := &takes[i]
		sh, hash := d.find(&t.Key, t.Limit)
		sh.mu.Lock()
		e := sh.denials[hash]
		sh.mu.Unlock()
		if e == nil || e.cost != cost(t) || !e.isOf(&t.Key, t.Limit) {
			continue
		}
		if now := time.Since(d.start); now < e.until {
			answers[i], found = e.at(now), true
		}
	}
	return found
}

// at returns the answer as it is at an instant. Waits count from the arrival of the answer. The store read its clock
// before, so none ends too early.
func (e *denial) at(now time.Duration) store.Answer {
	a := e.answer
	a.Retry -= now - e.received
	a.Reset = max(a.Reset-(now-e.received), 0)
	return a
}

// InOutage answers the takes of a request that are known to be denied while the store does not answer. Those of a
// larger cost are told the wait of the least one that was denied.
func (d *Cache) InOutage(takes []store.Take, answers []store.Answer) (found bool) {
	if !d.outages || d.maxAge == 0 {
		return false
	}
	now := time.Since(d.start)
	for i := range takes {
		t := &takes[i]
		units := t.Cost
		if t.Mode == store.ModeAtMost {
			units = 1
		}
		if t.Mode == store.ModeRecord || t.Limit.NeverFits(units) {
			continue
		}
		sh, hash := d.find(&t.Key, t.Limit)
		sh.mu.Lock()
		e := sh.denials[hash]
		sh.mu.Unlock()
		if e == nil || !e.isOf(&t.Key, t.Limit) || now >= e.endsFor(units) {
			continue
		}
		answers[i] = e.at(now)
		answers[i].Retry, found = e.endsFor(units)-now, true
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

// Asked is what Note needs to know of the time before the store was asked.
type Asked struct {
	at        time.Duration
	forgotten uint64 // of the shards of all takes together
}

// Ask is called before the store is asked.
func (d *Cache) Ask(takes []store.Take) Asked {
	if d.maxAge == 0 {
		return Asked{}
	}
	return Asked{at: time.Since(d.start), forgotten: d.forgotten(takes)}
}

// forgotten is a sum, which changes if one of the counters does, because none is ever less.
func (d *Cache) forgotten(takes []store.Take) (n uint64) {
	for i := range takes {
		n += d.shards[takes[i].Key.Hash()%shardCount].forgotten.Load()
	}
	return n
}

// Note remembers the denials of the store's answer, and forgets those of logs that have room.
func (d *Cache) Note(takes []store.Take, answers []store.Answer, asked Asked) {
	if d.maxAge == 0 {
		return
	}
	for i := range takes {
		t, a := &takes[i], &answers[i]
		switch {
		case !a.Known:
		case a.Allowed: // it may have recorded units
			d.delete(&t.Key, t.Limit)
			d.noteUsedUp(takes, i, a, asked)
		case cost(t) > 0:
			// It is remembered until the oldest unit leaves the window, because then its numbers change.
			d.add(takes, i, a, cost(t), min(d.maxAge, a.Retry, a.Reset), a.Retry, asked)
		default:
			d.delete(&t.Key, t.Limit)
			if d.outages && t.Mode == store.ModeChargeDenied && !t.Limit.Permits {
				d.add(takes, i, a, t.Cost, 0, a.Retry, asked)
			}
		}
	}
}

// noteUsedUp remembers a log that has no room for one more unit, for outages.
func (d *Cache) noteUsedUp(takes []store.Take, i int, a *store.Answer, asked Asked) {
	t := &takes[i]
	units := t.Cost
	switch {
	case !d.outages || t.Limit.Permits || t.Limit.Unlimited || t.Mode == store.ModePeek:
		return
	case t.Mode == store.ModeAtMost:
		units = a.Granted
	}
	if used := a.Used + units; used >= t.Limit.Quota {
		full := store.Answer{Known: true, Used: used, Reset: a.Reset, Retry: a.Reset}
		d.add(takes, i, &full, 1, 0, a.Reset, asked)
	}
}

// add adds a denial of a cost, which is right for some time while the store answers, and until it ends in an outage.
func (d *Cache) add(
	takes []store.Take, i int, a *store.Answer, cost int, lasts, ends time.Duration, asked Asked,
) {
	if lasts <= 0 && (ends <= 0 || !d.outages) {
		return
	}
	t, now := &takes[i], time.Since(d.start)
	e := &denial{
		key: store.Key{Namespace: t.Key.Namespace, Identity: t.Key.Clone()}, limit: t.Limit, cost: cost,
		received: now, until: asked.at + lasts, ends: asked.at + ends, answer: *a,
	}
	sh, hash := d.find(&t.Key, t.Limit)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if d.forgotten(takes) != asked.forgotten {
		return
	}
	old := sh.denials[hash]
	if old != nil && old.cost < e.cost && now < old.until && old.isOf(&t.Key, t.Limit) {
		return
	}
	if old == nil && len(sh.denials) >= sh.room {
		sh.makeRoom(d, now)
	}
	sh.denials[hash] = e
}

// makeRoom removes the denials that have ended, or all if too many have not.
func (sh *shard) makeRoom(d *Cache, now time.Duration) {
	for hash, e := range sh.denials {
		if now >= e.until && (!d.outages || now >= e.ends) {
			delete(sh.denials, hash)
		}
	}
	if sh.denials == nil || len(sh.denials) >= d.most {
		sh.denials = make(map[uint64]*denial)
	}
	sh.room = min(max(2*len(sh.denials), mostInAShard), d.most)
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
	if d.maxAge == 0 {
		return
	}
	sh, _ := d.find(k, l)
	sh.forgotten.Add(1)
	d.delete(k, l)
}

// ForgetForNow is Forget, but the denial stays for outages: it was right without what was then added and removed.
func (d *Cache) ForgetForNow(k *store.Key, l *store.Limit) {
	if d.maxAge == 0 {
		return
	}
	sh, hash := d.find(k, l)
	sh.forgotten.Add(1)
	sh.mu.Lock()
	defer sh.mu.Unlock()
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
