package guard

import (
	"time"

	"github.com/sashlimit/sash/core/store"
)

// part is the part of a backlog that is replayed next.
type part struct {
	key     *store.Key
	keep    time.Duration
	varies  bool
	entries []journalEntry
}

// nextPart returns the oldest entries, maxPart at most. They are unconfirmed from now on.
func (j *journal) nextPart(key *store.Key, b *backlog) (p part) {
	sh, _ := j.lock(key)
	defer sh.mu.Unlock()
	j.expire(b)
	p.key, p.keep, p.varies = key, b.keep, b.varies
	j.removeFunc(b, (*journalEntry).void)
	for i := range min(len(b.entries), maxPart) {
		e := &b.entries[i]
		p.entries = append(p.entries, *e)
		if e.cost > 0 && e.delivery == unsent {
			e.delivery = unconfirmed
		}
	}
	return p
}

// markMerged records that the store has a part. Entries that were settled meanwhile remain, since the store has to be
// told their cost.
func (j *journal) markMerged(b *backlog, p part) {
	stored := make(map[uint64]bool, len(p.entries))
	for i := range p.entries {
		if p.entries[i].cost > 0 {
			stored[p.entries[i].id] = true
		}
	}
	sh, _ := j.lock(p.key)
	defer sh.mu.Unlock()
	j.removeFunc(b, func(e *journalEntry) bool {
		if stored[e.id] {
			e.delivery = delivered
		}
		return e.delivery == delivered && !e.settled
	})
}

// markSettled records that the store has been told the cost of an entry, unless it has changed again.
func (j *journal) markSettled(key *store.Key, b *backlog, told journalEntry) {
	sh, _ := j.lock(key)
	defer sh.mu.Unlock()
	j.removeFunc(b, func(e *journalEntry) bool { return e.id == told.id && e.cost == told.cost })
}
