package guard

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// denyCache keeps the latest denials of a store, in a hash table whose buckets are lists. Reading takes no
// lock, so a list may be changed while somebody follows it, and an entry overlooked: then the store is asked.
type denyCache struct {
	longest time.Duration
	start   time.Time
	holds   bool // FailLocal: denials are kept for their whole wait, and so are quotas that are used up
	most    int

	costs    atomic.Bool // takes of more than one unit have been seen
	versions [denialVersions]atomic.Uint32
	buckets  atomic.Pointer[[]atomic.Pointer[denial]] // a power of two

	mu   sync.Mutex // for changes
	used int
	hand int // of the sweep, in buckets
}

const (
	denialVersions = 4096
	denialBuckets  = 1024 // at first
	denialsKept    = 8192 // where they need not be known while the store is away
	denialsPerKey  = 2    // of different costs
	denialsSwept   = 2    // buckets looked at for each new denial

	versionAdded     = 1       // waits are too short
	versionGivenBack = 1 << 16 // denials may be wrong
)

type denial struct {
	key      store.StoredKey
	hash     uint64
	next     atomic.Pointer[denial]
	plan     *store.Plan // other limits, another question
	cost     int
	received time.Duration // when the store's answer had come, since start
	until    time.Duration // it is answered from memory until then; 0 where that is not for the store to be spared
	spare    time.Duration // until when the others are denied meanwhile, though never beyond the wait
	ends     time.Duration // it is true until then
	retry    time.Duration
	first    [2]store.State // of the first limits
	more     []store.State  // ... and of the others
	asked    atomic.Bool    // one has asked again, so that not all do at once
	stale    atomic.Bool    // it is true, but the wait has become longer
}

func (d *denial) state(i int) *store.State {
	if i < len(d.first) {
		return &d.first[i]
	}
	return &d.more[i-len(d.first)]
}

// ticket is what was known of a key before the store was asked.
type ticket struct {
	hash    uint64
	version uint32
	sent    time.Duration
}

func newDenyCache(longest time.Duration, start time.Time) *denyCache {
	if longest == 0 {
		return nil
	}
	d := &denyCache{longest: longest, start: start, most: denialsKept}
	buckets := make([]atomic.Pointer[denial], denialBuckets)
	d.buckets.Store(&buckets)
	return d
}

// holdFor has so many denials known for their whole wait.
func (d *denyCache) holdFor(keys int) {
	if d != nil {
		d.holds, d.most = true, max(keys, denialsKept)
	}
}

func (d *denyCache) bucket(hash uint64) *atomic.Pointer[denial] {
	buckets := *d.buckets.Load()
	return &buckets[hash&uint64(len(buckets)-1)]
}

func (d *denyCache) version(hash uint64) *atomic.Uint32 { return &d.versions[hash%denialVersions] }

// remembers reports whether denials of t are answered: not if each is to be counted, or others look at the log as well.
func (d *denyCache) remembers(t *store.Take) bool {
	return t.Plan.Shadow == 0 && (t.Mode == store.ModeCharge || t.Mode == store.ModePeek)
}

// answer is what the store would say, if that is known.
func (d *denyCache) answer(t *store.Take, a *store.Answer) (known bool) {
	if d == nil || !d.remembers(t) {
		return false
	}
	hash := t.Key.Hash()
	for last := d.bucket(hash).Load(); last != nil; last = last.next.Load() {
		same := last.hash == hash && last.cost == t.Cost && last.plan == t.Plan
		if same && !last.stale.Load() && last.key.Equal(&t.Key) {
			now := time.Since(d.start)
			if now >= last.until && (now >= last.spare || last.asked.CompareAndSwap(false, true)) {
				return false
			}
			last.tell(now, t, a)
			return true
		}
	}
	return false
}

// tell answers t with the denial, as it is now. Waits count from when the answer arrived: the store's clock was read
// before that, so nobody is told to come too early.
func (d *denial) tell(now time.Duration, t *store.Take, a *store.Answer) {
	passed := now - d.received
	*a = store.Answer{Retry: max(d.retry-passed, 0)}
	for i := range t.Plan.Limits {
		a.State[i] = *d.state(i)
	}
	t.Plan.Judge(a, t.Cost, t.Mode)
	for i := range t.Plan.Limits {
		s := &a.State[i]
		if s.Reset -= passed; s.Reset <= 0 {
			s.Reset = 0
			if a.Denied.Has(i) { // younger units have to leave as well
				s.Reset = a.Retry
			}
		}
	}
}

// held is answer while the store is away: a denial holds for its whole wait, and for larger costs as well, whose waits are
// at least as long.
func (d *denyCache) held(t *store.Take, a *store.Answer) bool {
	if d == nil || !d.holds || t.Mode == store.ModeRecord || t.Plan.NeverFits(t.Cost) {
		return false
	}
	hash, now := t.Key.Hash(), time.Since(d.start)
	d.mu.Lock()
	defer d.mu.Unlock()
	var longest *denial
	for x := d.bucket(hash).Load(); x != nil; x = x.next.Load() {
		holds := x.names(&t.Key, hash) && x.plan == t.Plan && x.cost <= t.Cost && now < x.ends
		if holds && (longest == nil || x.ends > longest.ends) {
			longest = x
		}
	}
	if longest != nil {
		longest.tell(now, t, a)
	}
	return longest != nil
}

func (d *denial) names(key *store.Key, hash uint64) bool { return d.hash == hash && d.key.Equal(key) }

// expect is called before the store is asked: its clock is read later than ours, so a wait counted from here ends
// no later than the store's.
func (d *denyCache) expect(t *store.Take, now time.Duration) (w ticket) {
	if d != nil {
		if t.Cost > 1 && !d.costs.Load() {
			d.costs.Store(true)
		}
		w.hash, w.sent = t.Key.Hash(), now
		w.version = d.version(w.hash).Load()
	}
	return w
}

// note is called with what the store has answered.
func (d *denyCache) note(t *store.Take, a *store.Answer, w ticket) {
	if d == nil {
		return
	}
	if a.Allowed || t.Mode == store.ModeChargeDenied {
		d.admitted(t, w.hash)
	}
	if a.Allowed {
		if d.holds && t.Mode != store.ModePeek && t.Mode != store.ModeRecord {
			d.usedUp(t, a, w)
		}
		return
	}
	if a.Retry <= 0 || !d.holds && !d.remembers(t) {
		return
	}
	latest := d.entry(t, w, t.Cost, a.Retry)
	if d.remembers(t) {
		lasts := a.Retry
		for i := range t.Plan.Limits {
			if a.Denied.Has(i) { // its numbers are shown, and are right until a unit leaves
				lasts = min(lasts, a.State[i].Reset)
			}
		}
		latest.until, latest.spare = w.sent+min(lasts, d.longest), w.sent+min(lasts, d.longest+d.longest/16)
	}
	latest.fill(t, a, 0)
	d.add(&t.Key, latest, w)
}

func (d *denyCache) entry(t *store.Take, w ticket, cost int, retry time.Duration) *denial {
	return &denial{
		key: t.Key.Stored(false), hash: w.hash, plan: t.Plan, cost: cost,
		received: time.Since(d.start), ends: w.sent + retry, retry: retry,
	}
}

// fill notes the limits' numbers, with so many units more.
func (d *denial) fill(t *store.Take, a *store.Answer, units int) {
	if more := len(t.Plan.Limits) - len(d.first); more > 0 {
		d.more = make([]store.State, more)
	}
	for i := range t.Plan.Limits {
		s := a.State[i]
		s.Used += units
		*d.state(i) = s
	}
}

// usedUp notes that an admission has left nothing of a quota: the next unit is denied until the oldest leaves. While the
// store is there it is asked all the same.
func (d *denyCache) usedUp(t *store.Take, a *store.Answer, w ticket) {
	var wait time.Duration
	for i, limit := range t.Plan.Deciding() {
		if a.State[i].Used+t.Cost >= limit.Quota {
			wait = max(wait, a.State[i].Reset)
		}
	}
	if wait > 0 {
		latest := d.entry(t, w, 1, wait)
		latest.fill(t, a, t.Cost)
		d.add(&t.Key, latest, w)
	}
}

// admitted is called when a take may have added to a log. Where takes have different costs, waits that are remembered for
// larger ones are too short from now on, and so are those that are on their way here.
func (d *denyCache) admitted(t *store.Take, hash uint64) {
	above := t.Cost // larger costs may have been denied before
	switch {
	case t.Mode == store.ModePeek:
		above = math.MaxInt
	case t.Mode != store.ModeCharge:
		above = 0 // it was not asked whether there is room
	}
	if above == 0 || above < math.MaxInt && d.costs.Load() {
		d.version(hash).Add(versionAdded)
	}
	for x := d.bucket(hash).Load(); x != nil; x = x.next.Load() {
		switch {
		case !x.names(&t.Key, hash):
		case x.cost > above:
			x.stale.Store(true)
		case x.asked.Load() && x.plan == t.Plan: // it has been undone or reset elsewhere
			d.remove(&t.Key, hash, x)
		}
	}
}

// longer is called when entries of another log were added to a key's: waits that are remembered are too short.
func (d *denyCache) longer(key *store.Key) {
	if d == nil {
		return
	}
	hash := key.Hash()
	d.version(hash).Add(versionAdded)
	for x := d.bucket(hash).Load(); x != nil; x = x.next.Load() {
		if x.names(key, hash) {
			x.stale.Store(true)
		}
	}
}

// drop forgets a key's denials: something of its log has been given back.
func (d *denyCache) drop(key *store.Key) {
	if d == nil {
		return
	}
	hash := key.Hash()
	d.version(hash).Add(versionGivenBack)
	if d.bucket(hash).Load() != nil {
		d.remove(key, hash, nil)
	}
}

// remove takes one of a key's denials out, or all of them.
func (d *denyCache) remove(key *store.Key, hash uint64, one *denial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.filter(d.bucket(hash), func(x *denial) bool { return x == one || one == nil && x.names(key, hash) })
}

// filter takes those out of a bucket for which out says so. The caller has the lock.
func (d *denyCache) filter(at *atomic.Pointer[denial], out func(*denial) bool) {
	for x := at.Load(); x != nil; x = at.Load() {
		if out(x) {
			at.Store(x.next.Load())
			d.used--
		} else {
			at = &x.next
		}
	}
}

// add puts a denial in, unless something of its log has been given back since the store was asked. It takes the place
// of one of the same key and cost, or of the key's older ones.
func (d *denyCache) add(key *store.Key, latest *denial, w ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.good(latest, w) {
		return
	}
	for range denialsSwept {
		d.sweep(latest.received)
	}
	if d.used >= d.most {
		d.evict()
	}
	if buckets := *d.buckets.Load(); d.used >= len(buckets) && len(buckets) < d.most {
		d.grow(2 * len(buckets))
	}
	at := d.bucket(w.hash)
	latest.next.Store(at.Load())
	at.Store(latest)
	d.used++
	own := 0
	d.filter(at, func(x *denial) bool { // only now: between the two, others would ask the store
		if x == latest || !x.names(key, w.hash) {
			return false
		}
		own++
		return x.cost == latest.cost || own >= denialsPerKey
	})
	if !d.good(latest, w) { // nobody waits for the lock before a version changes
		d.filter(at, func(x *denial) bool { return x == latest })
	}
}

// good reports whether a denial is true still. It notes if the wait is too short.
func (d *denyCache) good(latest *denial, w ticket) bool {
	now := d.version(w.hash).Load()
	if now != w.version {
		latest.stale.Store(true)
	}
	return now == w.version || d.holds && now/versionGivenBack == w.version/versionGivenBack
}

// sweep takes what is over out of the next bucket.
func (d *denyCache) sweep(now time.Duration) {
	buckets := *d.buckets.Load()
	d.hand = (d.hand + 1) & (len(buckets) - 1)
	d.filter(&buckets[d.hand], func(x *denial) bool { return x.ends <= now })
}

// evict makes room where all places are taken: of those in the next bucket that has any, the one goes that ends first.
func (d *denyCache) evict() {
	buckets := *d.buckets.Load()
	for range buckets {
		d.hand = (d.hand + 1) & (len(buckets) - 1)
		at := &buckets[d.hand]
		var first *denial
		for x := at.Load(); x != nil; x = x.next.Load() {
			if first == nil || x.ends < first.ends {
				first = x
			}
		}
		if first != nil {
			d.filter(at, func(x *denial) bool { return x == first })
			return
		}
	}
}

func (d *denyCache) grow(size int) {
	old := *d.buckets.Load()
	buckets := make([]atomic.Pointer[denial], size)
	for i := range old {
		for x := old[i].Load(); x != nil; {
			next, at := x.next.Load(), &buckets[x.hash&uint64(size-1)]
			x.next.Store(at.Load())
			at.Store(x)
			x = next
		}
	}
	d.buckets.Store(&buckets)
}
