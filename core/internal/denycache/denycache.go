// Package denycache remembers the latest denials of a store outside the process, so that a client which keeps retrying
// does not reach the store, and for outages which clients the store has denied.
package denycache

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Cache caches the latest denials of a store. It is a hash table whose buckets are linked lists. Lookups take no
// lock. A lookup may miss an entry of a list that is being changed; then the store is called.
type Cache struct {
	maxAge     time.Duration // entries are answered for at most this long while the store answers; 0 if there are none
	start      time.Time
	outages    bool // FailLocal: entries are kept until their wait ends, and so are quotas that are used up
	maxEntries int

	weighted atomic.Bool // takes of more than one unit have been seen
	versions [counters]atomic.Uint32
	buckets  atomic.Pointer[[]atomic.Pointer[entry]] // their number is a power of two

	mu    sync.Mutex // is held while entries are added or removed
	count int        // entries
	hand  int        // the bucket that was swept last
}

const (
	counters      = 4096 // of versions
	firstBuckets  = 1024 // initially
	leastEntries  = 8192 // at most, unless more are needed for outages
	entriesPerKey = 2    // with different costs or limits
	bucketsPerAdd = 2    // buckets swept for each new entry

	// What is added to the version of a key's log.
	versionAdded   = 1       // when units were added to the log, so that waits are too short
	versionRemoved = 1 << 16 // when units were removed from it, so that denials may be wrong
)

// entry is a cached denial. Its times are relative to the start of the cache.
type entry struct {
	key        store.StoredKey
	hash       uint64
	next       atomic.Pointer[entry]
	plan       *store.Plan // an entry is no answer for other limits
	cost       int
	received   time.Duration  // when the store's answer arrived
	freshUntil time.Duration  // until then lookups are answered; 0 if the entry is for outages only
	graceUntil time.Duration  // from freshUntil until then, one lookup misses and all others are answered
	expires    time.Duration  // the end of the wait
	retry      time.Duration  // the wait when the answer arrived
	states     []store.State  // of the plan's limits
	space      [2]store.State // for states, if they are few
	denied     store.LimitSet // the limits that deny cost
	probing    atomic.Bool    // one lookup has missed since freshUntil, so that its caller calls the store
	stale      atomic.Bool    // still denied, but the wait has become longer
}

func (e *entry) matches(key *store.Key, hash uint64) bool {
	return e.hash == hash && e.key.Equal(key)
}

// isFor reports whether an entry is of the limits of p, which may be nil. Rules that are loaded again have other plans.
func (e *entry) isFor(p *store.Plan) bool {
	return e.plan == p || p != nil && HaveSameLimits(e.plan, p)
}

// HaveSameLimits reports whether two plans have the same limits, of which the same are in shadow.
func HaveSameLimits(p, other *store.Plan) bool {
	return p.Shadow == other.Shadow &&
		slices.EqualFunc(p.Limits, other.Limits, func(a, b store.Limit) bool {
			if a.Calendar != nil && b.Calendar != nil && *a.Calendar == *b.Calendar {
				a.Calendar = b.Calendar
			}
			return a == b
		})
}

// Version is the version of a key's log before a call to the store. An answer that arrives later is cached only if
// it is still valid for the version at that time.
type Version struct {
	hash uint64
	n    uint32
	sent time.Duration // when the call began, since the start of the cache
}

// New makes a cache. If it is for outages, it keeps the denials of that many keys until their wait ends.
func New(maxAge time.Duration, start time.Time, outages bool, keys int) *Cache {
	d := &Cache{maxAge: maxAge, start: start, outages: outages && maxAge > 0, maxEntries: leastEntries}
	if outages {
		d.maxEntries = max(keys, leastEntries)
	}
	buckets := make([]atomic.Pointer[entry], firstBuckets)
	d.buckets.Store(&buckets)
	return d
}

// Fitting returns how many units must fit for t to be allowed.
func Fitting(t *store.Take) int {
	if t.Mode == store.ModeUpTo {
		return 1
	}
	return t.Cost
}

// Units returns how many units a log holds of t if it was allowed and recorded.
func Units(t *store.Take, a *store.Answer) int {
	if t.Mode == store.ModeUpTo {
		return a.Granted
	}
	return t.Cost
}

// counter returns the counter of versions for a key's hash. Keys share counters.
func (d *Cache) counter(hash uint64) *atomic.Uint32 { return &d.versions[hash%counters] }

// cacheable reports whether denials of t may be answered from the cache, if there are any. They may not if each denial
// is to be counted, or if shadow limits look at the log as well.
func (d *Cache) cacheable(t *store.Take) bool {
	return t.Plan.Shadow == 0 &&
		(t.Mode == store.ModeCharge || t.Mode == store.ModePeek || t.Mode == store.ModeUpTo)
}

// find returns the entry of the log, limits and cost of t, or nil. A take of ModeUpTo is denied if and only if one of a
// unit is, and has its wait.
func (d *Cache) find(t *store.Take) *entry {
	hash, cost := t.Key.Hash(), Fitting(t)
	for e := d.bucket(hash).Load(); e != nil; e = e.next.Load() {
		same := e.hash == hash && e.cost == cost && e.isFor(t.Plan)
		if same && !e.stale.Load() && e.key.Equal(&t.Key) {
			return e
		}
	}
	return nil
}

// Lookup answers a request if one of its takes is known to be denied. It answers all takes that are, so that the caller
// learns the longest of these waits. The other takes get an answer that allows them and says nothing else.
func (d *Cache) Lookup(takes []store.Take, answers []store.Answer) (found bool) {
	var now time.Duration
	var entries [store.MaxLimits]*entry
	some := false
	for i := range takes {
		t := &takes[i]
		if t.Plan.Slots && t.Plan.Shadow == 0 { // a denied request needs none
			continue
		}
		if !d.cacheable(t) {
			return false // the shadow limits of one take look at its log in each request
		}
		e := d.find(t)
		if e == nil {
			continue
		}
		now = time.Since(d.start)
		if now < e.freshUntil && len(takes) == 1 { // without a second look, which repeated denials would notice
			e.answer(now, t, &answers[i])
			return true
		}
		if now < e.graceUntil {
			entries[i], some = e, true
			found = found || now < e.freshUntil || e.probing.Load()
		}
	}
	if !some {
		return false
	}
	known := entries[:len(takes)]
	if !found { // by other entries, so it is the turn of this request to ask the store about these
		for _, e := range known {
			found = e != nil && !e.probing.CompareAndSwap(false, true) || found
		}
	}
	if !found {
		return false
	}
	for i, e := range known {
		if e != nil {
			e.answer(now, &takes[i], &answers[i])
		} else {
			answers[i] = store.Answer{Allowed: true}
		}
	}
	return true
}

// answer sets a to the denial as it is now. Waits count from the arrival of the store's answer. The store read its
// clock before that, so no wait ends too early.
func (e *entry) answer(now time.Duration, t *store.Take, a *store.Answer) {
	passed := now - e.received
	*a = store.Answer{Retry: max(e.retry-passed, 0), Denied: e.denied}
	//lint:ignore S1001 a call of copy takes longer than so few states
	for i := range e.states { //nolint:staticcheck // as above
		a.State[i] = e.states[i]
	}
	if Fitting(t) != e.cost { // so other limits may deny
		t.Plan.Judge(a, t.Cost, t.Mode)
	}
	for i := range t.Plan.Limits {
		s := &a.State[i]
		if s.Reset -= passed; s.Reset <= 0 {
			s.Reset = 0
			if a.Denied.Has(i) { // the limit waits for younger units as well
				s.Reset = a.Retry
			}
		}
	}
}

// until returns until when an entry denies a cost: a larger one than its own for at least as long, and a smaller one at
// least until the oldest unit leaves the window of a limit that had no room for it.
func (e *entry) until(cost int) (end time.Duration) {
	if e.cost <= cost {
		return e.expires
	}
	for i, limit := range e.plan.Deciding() {
		if s := &e.states[i]; s.Used+cost > limit.Quota {
			end = max(end, e.expires-e.retry+s.Reset)
		}
	}
	return end
}

// LookupInOutage answers the takes of a request that are known to be denied while the store does not answer, and sets
// known of these.
func (d *Cache) LookupInOutage(takes []store.Take, answers []store.Answer, known *[store.MaxLimits]bool) {
	for i := range takes {
		t, cost := &takes[i], Fitting(&takes[i])
		if !d.outages || t.Mode == store.ModeRecord || t.Plan.NeverFits(cost) {
			continue
		}
		hash, now := t.Key.Hash(), time.Since(d.start)
		var longest *entry
		d.mu.Lock()
		for e := d.bucket(hash).Load(); e != nil; e = e.next.Load() {
			denies := e.matches(&t.Key, hash) && e.isFor(t.Plan) && now < e.until(cost)
			if denies && (longest == nil || e.until(cost) > longest.until(cost)) {
				longest = e
			}
		}
		d.mu.Unlock()
		if longest != nil {
			longest.answer(now, t, &answers[i])
			if known[i] = true; longest.cost > cost {
				answers[i].Retry = longest.until(cost) - now
			}
		}
	}
}

// ReadVersions sets the versions of a request's logs before the store is called. The store reads its clock after now,
// so a wait counted from now ends no later than the store's.
func (d *Cache) ReadVersions(takes []store.Take, now time.Duration, versions []Version) {
	for i := range versions {
		if takes[i].Cost > 1 && !d.weighted.Load() {
			d.weighted.Store(true)
		}
		hash := takes[i].Key.Hash()
		versions[i] = Version{hash: hash, n: d.counter(hash).Load(), sent: now}
	}
}

// Update brings the cache up to date with the store's answers to a request, which was sent at these versions. In a
// request that another log has denied, a take with room was no more than a peek.
func (d *Cache) Update(takes []store.Take, answers []store.Answer, admitted bool, versions []Version) {
	if d.maxAge == 0 {
		return
	}
	for i, v := range versions {
		t, a, mode := &takes[i], &answers[i], takes[0].Mode
		if t.Plan.Slots { // slots have no time at which they will be free
			continue
		}
		if a.Allowed && !admitted {
			mode = store.ModePeek
		}
		switch {
		case !a.Allowed && mode != store.ModeChargeDenied: // nothing was recorded
		case mode == store.ModePeek:
			d.added(&t.Key, v, math.MaxInt, t.Plan)
		case mode == store.ModeCharge || mode == store.ModeUpTo:
			d.added(&t.Key, v, Units(t, a), t.Plan)
		default: // it was recorded whether there was room or not
			d.added(&t.Key, v, 0, t.Plan)
		}
		if !a.Allowed || d.outages && mode != store.ModePeek && mode != store.ModeRecord {
			d.remember(t, a, v)
		}
	}
}

// remember adds an entry if t was denied; or for outages, if it was admitted and took the rest of a quota: then the
// next unit is denied until the oldest one leaves the window.
func (d *Cache) remember(t *store.Take, a *store.Answer, v Version) {
	fresh, units, cost, wait := !a.Allowed && d.cacheable(t), 0, Fitting(t), a.Retry
	if a.Allowed {
		units, cost = Units(t, a), 1
		for i, limit := range t.Plan.Deciding() {
			if a.State[i].Used+units >= limit.Quota {
				wait = max(wait, a.State[i].Reset)
			}
		}
	}
	if wait <= 0 || !fresh && !d.outages {
		return
	}
	e := &entry{
		key: t.Key.Stored(false), hash: v.hash, plan: t.Plan, cost: cost,
		received: time.Since(d.start), expires: v.sent + wait, retry: wait,
	}
	e.states = e.space[:0]
	judged, lasts := *a, wait
	for i := range t.Plan.Limits {
		s := &judged.State[i]
		s.Used += units
		e.states = append(e.states, *s)
		if a.Denied.Has(i) { // the client sees its numbers, which are right until a unit leaves the window
			lasts = min(lasts, s.Reset)
		}
	}
	t.Plan.Judge(&judged, cost, store.ModePeek)
	if e.denied = judged.Denied; fresh {
		e.freshUntil, e.graceUntil = v.sent+min(lasts, d.maxAge), v.sent+min(lasts, d.maxAge+d.maxAge/16)
	}
	d.add(&t.Key, e, v)
}

// UnitsAdded is called when units may have been added to a log without a take.
func (d *Cache) UnitsAdded(key *store.Key) { d.added(key, Version{hash: key.Hash()}, 0, nil) }

// added is called when units may have been added to a log. Then the waits of entries for other plans, and of those with
// costs above a number, are too short from now on, and so are the waits of answers that are still on their way. An
// entry for the plan that asks for no more than what the store has admitted is wrong if it is not fresh, or was there
// when the store was asked: another process has given units back.
func (d *Cache) added(key *store.Key, v Version, above int, plan *store.Plan) {
	if above == 0 || above < math.MaxInt && (plan.Varies || d.weighted.Load()) {
		d.counter(v.hash).Add(versionAdded)
	}
	for e := d.bucket(v.hash).Load(); e != nil; e = e.next.Load() {
		switch {
		case !e.matches(key, v.hash):
		case e.cost > above || above < math.MaxInt && !e.isFor(plan):
			e.stale.Store(true)
		case e.isFor(plan) && (e.probing.Load() || above < math.MaxInt && e.received < v.sent):
			d.remove(key, v.hash, e)
		}
	}
}

// Invalidate removes a key's entries, because units were removed from its log.
func (d *Cache) Invalidate(key *store.Key) {
	hash := key.Hash()
	d.counter(hash).Add(versionRemoved)
	if d.bucket(hash).Load() != nil {
		d.remove(key, hash, nil)
	}
}

// Len returns the number of entries, some of which may have expired.
func (d *Cache) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// remove removes one of a key's entries, or all of them if one is nil.
func (d *Cache) remove(key *store.Key, hash uint64, one *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removeFunc(d.bucket(hash), func(e *entry) bool { return e == one || one == nil && e.matches(key, hash) })
}

// removeFunc removes the entries of a bucket for which remove returns true. The caller holds the lock.
func (d *Cache) removeFunc(at *atomic.Pointer[entry], remove func(*entry) bool) {
	for e := at.Load(); e != nil; e = at.Load() {
		if remove(e) {
			at.Store(e.next.Load())
			d.count--
		} else {
			at = &e.next
		}
	}
}

// add adds an entry, unless units have been removed from the log since version v. It replaces an entry of the same key,
// cost and limits, and the oldest ones if the key has more than entriesPerKey. If the cache is full, others make room.
func (d *Cache) add(key *store.Key, latest *entry, v Version) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.valid(latest, v) {
		return
	}
	for range bucketsPerAdd {
		d.removeFunc(d.nextBucket(), func(e *entry) bool { return e.expires <= latest.received })
	}
	for full := d.count; d.count >= d.maxEntries && d.count == full; {
		d.removeFunc(d.nextBucket(), func(*entry) bool { return true })
	}
	if buckets := *d.buckets.Load(); d.count >= len(buckets) && len(buckets) < d.maxEntries {
		d.grow(2 * len(buckets))
	}
	at := d.bucket(v.hash)
	latest.next.Store(at.Load())
	at.Store(latest)
	d.count++
	own := 0
	// The entry is added before others are removed: in between, lookups would miss and their callers call the store.
	d.removeFunc(at, func(e *entry) bool {
		if e == latest || !e.matches(key, v.hash) {
			return false
		}
		own++
		return e.cost == latest.cost && e.isFor(latest.plan) || own >= entriesPerKey
	})
	if !d.valid(latest, v) { // versions change without the lock
		d.removeFunc(at, func(e *entry) bool { return e == latest })
	}
}

// valid reports whether an entry is still right. It marks the entry if its wait is too short.
func (d *Cache) valid(e *entry, v Version) bool {
	n := d.counter(v.hash).Load()
	if n != v.n {
		e.stale.Store(true)
	}
	return n == v.n || d.outages && n/versionRemoved == v.n/versionRemoved
}

// nextBucket returns the buckets one after the other, to be swept.
func (d *Cache) nextBucket() *atomic.Pointer[entry] {
	d.hand++
	return d.bucket(uint64(d.hand))
}

func (d *Cache) grow(size int) {
	old := *d.buckets.Load()
	buckets := make([]atomic.Pointer[entry], size)
	for i := range old {
		for e := old[i].Load(); e != nil; {
			next, at := e.next.Load(), &buckets[e.hash&uint64(size-1)]
			e.next.Store(at.Load())
			at.Store(e)
			e = next
		}
	}
	d.buckets.Store(&buckets)
}

func (d *Cache) bucket(hash uint64) *atomic.Pointer[entry] {
	buckets := *d.buckets.Load()
	return &buckets[hash&uint64(len(buckets)-1)]
}
