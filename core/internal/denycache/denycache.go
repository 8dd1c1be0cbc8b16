// Package denycache remembers the latest denials of a store outside the process, so that a client which keeps retrying
// does not reach the store.
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
	mostInAShard = 64 // denials
)

// Cache has the latest denials of a store: of a log, the least cost that was denied. A denial is right until its wait
// has ended, since entries leave a log only as time passes. Units that are given back end it earlier: those that this
// process gives back make the cache forget it, and those of other processes are the reason for its greatest age.
//
// The cost must be the same. A larger one has a longer wait, and a smaller one may have room.
type Cache struct {
	maxAge time.Duration // 0: nothing is remembered
	start  time.Time
	shards [shardCount]shard
}

type shard struct {
	mu        sync.Mutex
	denials   map[uint64]*denial // by hash; of two logs with one hash the later one is remembered
	forgotten atomic.Uint64      // how often Forget was called
}

// denial does not change. Its times are relative to the start of the cache.
type denial struct {
	key      store.Key
	limit    *store.Limit
	cost     int
	received time.Duration // when the answer arrived
	until    time.Duration
	answer   store.Answer
}

// New makes a cache whose denials are right for maxAge at most.
func New(maxAge time.Duration) *Cache { return &Cache{maxAge: maxAge, start: time.Now()} }

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
			// Waits count from the arrival of the answer. The store read its clock before, so none ends too early.
			answers[i] = e.answer
			answers[i].Retry -= now - e.received
			answers[i].Reset -= now - e.received
			found = true
		}
	}
	return found
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
		case a.Allowed || cost(t) == 0: // it may have recorded units
			d.delete(&t.Key, t.Limit)
		default:
			d.add(takes, t, a, asked)
		}
	}
}

// add adds a denial. It is remembered until the oldest unit leaves the window, because then its numbers change.
func (d *Cache) add(takes []store.Take, t *store.Take, a *store.Answer, asked Asked) {
	lasts := min(d.maxAge, a.Retry, a.Reset)
	if lasts <= 0 {
		return
	}
	now := time.Since(d.start)
	e := &denial{
		key: store.Key{Namespace: t.Key.Namespace, Identity: t.Key.Clone()}, limit: t.Limit, cost: cost(t),
		received: now, until: asked.at + lasts, answer: *a,
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
	if sh.denials == nil || old == nil && len(sh.denials) >= mostInAShard { // most have ended
		sh.denials = make(map[uint64]*denial)
	}
	sh.denials[hash] = e
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
