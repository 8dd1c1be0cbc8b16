package guard

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// denyCache caches the latest denials of a store. It is a hash table whose buckets are linked lists. Lookups take no
// lock. A lookup may miss an entry of a list that is being changed; then the store is called.
type denyCache struct {
	maxAge     time.Duration // entries are answered for at most this long while the store answers
	start      time.Time
	outages    bool // FailLocal: entries are kept until their wait ends, and so are quotas that are used up
	maxEntries int

	weighted atomic.Bool // takes of more than one unit have been seen
	versions [denyCounters]atomic.Uint32
	buckets  atomic.Pointer[[]atomic.Pointer[denyEntry]] // their number is a power of two

	mu    sync.Mutex // is held while entries are added or removed
	count int        // entries
	hand  int        // the bucket that was swept last
}

const (
	denyCounters  = 4096 // of versions
	denyBuckets   = 1024 // initially
	denyEntries   = 8192 // at most, unless more are needed for outages
	entriesPerKey = 2    // with different costs
	bucketsPerAdd = 2    // buckets swept for each new entry

	// What is added to the version of a key's log.
	versionAdded   = 1       // when units were added to the log, so that waits are too short
	versionRemoved = 1 << 16 // when units were removed from it, so that denials may be wrong
)

// denyEntry is a cached denial. Its times are relative to the start of the cache.
type denyEntry struct {
	key        store.StoredKey
	hash       uint64
	next       atomic.Pointer[denyEntry]
	plan       *store.Plan // an entry is no answer for other limits
	cost       int
	received   time.Duration  // when the store's answer arrived
	freshUntil time.Duration  // until then lookups are answered; 0 if the entry is for outages only
	graceUntil time.Duration  // from freshUntil until then, one lookup misses and all others are answered
	expires    time.Duration  // the end of the wait
	retry      time.Duration  // the wait when the answer arrived
	first      [2]store.State // of the first limits
	more       []store.State  // of further limits
	denied     store.LimitSet // the limits that deny cost
	probing    atomic.Bool    // one lookup has missed since freshUntil, so that its caller calls the store
	stale      atomic.Bool    // still denied, but the wait has become longer
}

func (e *denyEntry) state(i int) *store.State {
	if i < len(e.first) {
		return &e.first[i]
	}
	return &e.more[i-len(e.first)]
}

func (e *denyEntry) matches(key *store.Key, hash uint64) bool {
	return e.hash == hash && e.key.Equal(key)
}

// denyVersion is the version of a key's log before a call to the store. An answer that arrives later is cached only if
// it is still valid for the version at that time.
type denyVersion struct {
	hash uint64
	n    uint32
	sent time.Duration // when the call began, since the start of the cache
}

func newDenyCache(maxAge time.Duration, start time.Time) *denyCache {
	if maxAge == 0 {
		return nil
	}
	d := &denyCache{maxAge: maxAge, start: start, maxEntries: denyEntries}
	buckets := make([]atomic.Pointer[denyEntry], denyBuckets)
	d.buckets.Store(&buckets)
	return d
}

// keepForOutages makes the cache keep the denials of that many keys until their wait ends.
func (d *denyCache) keepForOutages(keys int) {
	if d != nil {
		d.outages, d.maxEntries = true, max(keys, denyEntries)
	}
}

// counter returns the counter of versions for a key's hash. Keys share counters.
func (d *denyCache) counter(hash uint64) *atomic.Uint32 { return &d.versions[hash%denyCounters] }

// cacheable reports whether denials of t may be answered from the cache, if there are any. They may not if each denial
// is to be counted, or if shadow limits look at the log as well.
func (d *denyCache) cacheable(t *store.Take) bool {
	return t.Plan.Shadow == 0 &&
		(t.Mode == store.ModeCharge || t.Mode == store.ModePeek || t.Mode == store.ModeUpTo)
}

// find returns the entry of the log, limits and cost of t, or nil. A take of ModeUpTo is denied if and only if one of a
// unit is, and has its wait.
func (d *denyCache) find(t *store.Take) *denyEntry {
	hash, cost := t.Key.Hash(), fitting(t)
	for e := d.bucket(hash).Load(); e != nil; e = e.next.Load() {
		same := e.hash == hash && e.cost == cost && e.plan == t.Plan
		if same && !e.stale.Load() && e.key.Equal(&t.Key) {
			return e
		}
	}
	return nil
}

// lookup answers a request if one of its takes is known to be denied. It answers all takes that are, so that the caller
// learns the longest of these waits. The other takes get an answer that allows them and says nothing else.
func (d *denyCache) lookup(r *request) (found bool) {
	if d == nil {
		return false
	}
	var now time.Duration
	var entries [store.MaxLimits]*denyEntry
	some := false
	for i := range r.takes {
		t := &r.takes[i]
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
		if now < e.freshUntil && len(r.takes) == 1 { // without a second look, which repeated denials would notice
			e.answer(now, t, &r.answers[i])
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
	if !found { // by other entries, so it is the turn of this request to ask the store about these
		for _, e := range entries {
			found = e != nil && !e.probing.CompareAndSwap(false, true) || found
		}
	}
	if !found {
		return false
	}
	for i, e := range entries[:len(r.takes)] {
		if e != nil {
			e.answer(now, &r.takes[i], &r.answers[i])
		} else {
			r.answers[i] = store.Answer{Allowed: true}
		}
	}
	return true
}

// answer sets a to the denial as it is now. Waits count from the arrival of the store's answer. The store read its
// clock before that, so no wait ends too early.
func (e *denyEntry) answer(now time.Duration, t *store.Take, a *store.Answer) {
	passed := now - e.received
	*a = store.Answer{Retry: max(e.retry-passed, 0), Denied: e.denied}
	for i := range t.Plan.Limits {
		a.State[i] = *e.state(i)
	}
	if fitting(t) != e.cost { // it is larger, so more limits may deny
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

// lookupInOutage is lookup while the store does not answer. It answers only takes that are known to be denied, and sets
// found of these.
func (d *denyCache) lookupInOutage(r *request, found *[store.MaxLimits]bool) (some bool) {
	for i := range r.takes {
		found[i] = d.findInOutage(&r.takes[i], &r.answers[i])
		some = some || found[i]
	}
	return some
}

// findInOutage answers t if it is known to be denied. An entry is used until its wait ends, and for larger costs as
// well, whose waits are at least as long.
func (d *denyCache) findInOutage(t *store.Take, a *store.Answer) (found bool) {
	cost := fitting(t)
	if d == nil || !d.outages || t.Mode == store.ModeRecord || t.Plan.NeverFits(cost) {
		return false
	}
	hash, now := t.Key.Hash(), time.Since(d.start)
	d.mu.Lock()
	defer d.mu.Unlock()
	var longest *denyEntry
	for e := d.bucket(hash).Load(); e != nil; e = e.next.Load() {
		denies := e.matches(&t.Key, hash) && e.plan == t.Plan && e.cost <= cost && now < e.expires
		if denies && (longest == nil || e.expires > longest.expires) {
			longest = e
		}
	}
	if longest != nil {
		longest.answer(now, t, a)
	}
	return longest != nil
}

// readVersions sets the versions of a request's logs before the store is called. The store reads its clock after now,
// so a wait counted from now ends no later than the store's.
func (d *denyCache) readVersions(r *request, now time.Duration, versions []denyVersion) {
	if d == nil {
		return
	}
	if r.takes[0].Cost > 1 && !d.weighted.Load() {
		d.weighted.Store(true)
	}
	for i := range versions {
		hash := r.takes[i].Key.Hash()
		versions[i] = denyVersion{hash: hash, n: d.counter(hash).Load(), sent: now}
	}
}

// update brings the cache up to date with the store's answers to a request, which was sent at these versions. Only a
// log that denied is remembered: in a request that another log has denied, a take with room was no more than a peek.
func (d *denyCache) update(r *request, versions []denyVersion) {
	if d == nil {
		return
	}
	admitted := len(r.takes) == 1 || r.admitted()
	for i := range versions {
		t, a := &r.takes[i], &r.answers[i]
		if a.Allowed && !admitted {
			peek := *t
			peek.Mode = store.ModePeek
			t = &peek
		}
		d.updateLog(t, a, versions[i])
	}
}

// updateLog is update for one log.
func (d *denyCache) updateLog(t *store.Take, a *store.Answer, v denyVersion) {
	if t.Plan.Slots { // slots have no time at which they will be free
		return
	}
	if a.Allowed || t.Mode == store.ModeChargeDenied {
		d.unitsAdded(t, a, v.hash)
	}
	if a.Allowed {
		if d.outages && t.Mode != store.ModePeek && t.Mode != store.ModeRecord {
			d.addUsedUp(t, a, v)
		}
		return
	}
	if a.Retry <= 0 || !d.outages && !d.cacheable(t) {
		return
	}
	e := d.newEntry(t, a, v, 0, fitting(t), a.Retry)
	if d.cacheable(t) {
		lasts := a.Retry
		for i := range t.Plan.Limits {
			if a.Denied.Has(i) { // the client sees its numbers, which are right until a unit leaves the window
				lasts = min(lasts, a.State[i].Reset)
			}
		}
		e.freshUntil, e.graceUntil = v.sent+min(lasts, d.maxAge), v.sent+min(lasts, d.maxAge+d.maxAge/16)
	}
	d.add(&t.Key, e, v)
}

// newEntry makes an entry that denies cost, with the states of the limits in a and that many units added to each.
func (d *denyCache) newEntry(
	t *store.Take, a *store.Answer, v denyVersion, units, cost int, retry time.Duration,
) *denyEntry {
	e := &denyEntry{
		key: t.Key.Stored(false), hash: v.hash, plan: t.Plan, cost: cost,
		received: time.Since(d.start), expires: v.sent + retry, retry: retry,
	}
	if more := len(t.Plan.Limits) - len(e.first); more > 0 {
		e.more = make([]store.State, more)
	}
	var judged store.Answer
	for i := range t.Plan.Limits {
		s := &judged.State[i]
		*s = a.State[i]
		s.Used += units
		*e.state(i) = *s
	}
	t.Plan.Judge(&judged, cost, store.ModePeek)
	e.denied = judged.Denied
	return e
}

// addUsedUp adds an entry if t, which the store has admitted, took the rest of a quota: the next unit is denied until
// the oldest one leaves the window. The entry is used in outages only.
func (d *denyCache) addUsedUp(t *store.Take, a *store.Answer, v denyVersion) {
	units := unitsOf(t, a)
	var wait time.Duration
	for i, limit := range t.Plan.Deciding() {
		if a.State[i].Used+units >= limit.Quota {
			wait = max(wait, a.State[i].Reset)
		}
	}
	if wait > 0 {
		d.add(&t.Key, d.newEntry(t, a, v, units, 1, wait), v)
	}
}

// unitsAdded is called when a take may have added units to a log. If takes have different costs, the waits of entries
// with larger costs are too short from now on, and so are the waits of answers that are still on their way.
func (d *denyCache) unitsAdded(t *store.Take, a *store.Answer, hash uint64) {
	above := unitsOf(t, a) // entries with larger costs become stale
	switch {
	case t.Mode == store.ModePeek:
		above = math.MaxInt
	case t.Mode != store.ModeCharge && t.Mode != store.ModeUpTo:
		above = 0 // the take was recorded whether there was room or not
	}
	if above == 0 || above < math.MaxInt && d.weighted.Load() {
		d.counter(hash).Add(versionAdded)
	}
	for e := d.bucket(hash).Load(); e != nil; e = e.next.Load() {
		switch {
		case !e.matches(&t.Key, hash):
		case e.cost > above:
			e.stale.Store(true)
		case e.probing.Load() && e.plan == t.Plan: // another process has undone a take or reset the log
			d.remove(&t.Key, hash, e)
		}
	}
}

// markStale is called when entries of another log were added to a key's log, so that the waits in the cache are too
// short.
func (d *denyCache) markStale(key *store.Key) {
	if d == nil {
		return
	}
	hash := key.Hash()
	d.counter(hash).Add(versionAdded)
	for e := d.bucket(hash).Load(); e != nil; e = e.next.Load() {
		if e.matches(key, hash) {
			e.stale.Store(true)
		}
	}
}

// invalidate removes a key's entries, because units were removed from its log.
func (d *denyCache) invalidate(key *store.Key) {
	if d == nil {
		return
	}
	hash := key.Hash()
	d.counter(hash).Add(versionRemoved)
	if d.bucket(hash).Load() != nil {
		d.remove(key, hash, nil)
	}
}

// len returns the number of entries, some of which may have expired.
func (d *denyCache) len() int {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}
