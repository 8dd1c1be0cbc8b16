package guard

import (
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// remove removes one of a key's entries, or all of them if one is nil.
func (d *denyCache) remove(key *store.Key, hash uint64, one *denyEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removeFunc(d.bucket(hash), func(e *denyEntry) bool { return e == one || one == nil && e.matches(key, hash) })
}

// removeFunc removes the entries of a bucket for which remove returns true. The caller holds the lock.
func (d *denyCache) removeFunc(at *atomic.Pointer[denyEntry], remove func(*denyEntry) bool) {
	for e := at.Load(); e != nil; e = at.Load() {
		if remove(e) {
			at.Store(e.next.Load())
			d.count--
		} else {
			at = &e.next
		}
	}
}

// add adds an entry, unless units have been removed from the log since version v. It replaces an entry of the same key
// and cost, and the oldest ones if the key has more than entriesPerKey.
func (d *denyCache) add(key *store.Key, latest *denyEntry, v denyVersion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.valid(latest, v) {
		return
	}
	for range bucketsPerAdd {
		d.sweep(latest.received)
	}
	if d.count >= d.maxEntries {
		d.evict()
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
	d.removeFunc(at, func(e *denyEntry) bool {
		if e == latest || !e.matches(key, v.hash) {
			return false
		}
		own++
		return e.cost == latest.cost || own >= entriesPerKey
	})
	if !d.valid(latest, v) { // versions change without the lock
		d.removeFunc(at, func(e *denyEntry) bool { return e == latest })
	}
}

// valid reports whether an entry is still right. It marks the entry if its wait is too short.
func (d *denyCache) valid(e *denyEntry, v denyVersion) bool {
	n := d.counter(v.hash).Load()
	if n != v.n {
		e.stale.Store(true)
	}
	return n == v.n || d.outages && n/versionRemoved == v.n/versionRemoved
}

// sweep removes expired entries from the next bucket.
func (d *denyCache) sweep(now time.Duration) {
	d.removeFunc(d.nextBucket(), func(e *denyEntry) bool { return e.expires <= now })
}

func (d *denyCache) nextBucket() *atomic.Pointer[denyEntry] {
	d.hand++
	return d.bucket(uint64(d.hand))
}

// evict removes the entry that expires first from the next bucket that is not empty.
func (d *denyCache) evict() {
	for range *d.buckets.Load() {
		at := d.nextBucket()
		var first *denyEntry
		for e := at.Load(); e != nil; e = e.next.Load() {
			if first == nil || e.expires < first.expires {
				first = e
			}
		}
		if first != nil {
			d.removeFunc(at, func(e *denyEntry) bool { return e == first })
			return
		}
	}
}

func (d *denyCache) grow(size int) {
	old := *d.buckets.Load()
	buckets := make([]atomic.Pointer[denyEntry], size)
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

func (d *denyCache) bucket(hash uint64) *atomic.Pointer[denyEntry] {
	buckets := *d.buckets.Load()
	return &buckets[hash&uint64(len(buckets)-1)]
}
