package memory

import (
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

const shardCount = 64

// table is a hash table of entries with open addressing and linear probing. With many keys each pointer that is
// followed is a cache miss: a map of strings needs four in a row, this table two. It also shrinks as keys leave, which
// a map does not, and the sweep needs no other list of entries.
//
// Lookups take no lock, and may miss an entry that is being moved. If a lookup finds none, or one that has been removed
// meanwhile, the caller looks again with the shard's lock.
type table struct {
	slots atomic.Pointer[slots]
	used  int
}

// slots is empty, or its length is a power of two. At most seven eighths of the slots are used.
type slots []slot

type slot struct {
	entry atomic.Pointer[entry]
	home  atomic.Uint32 // the part of the entry's hash that determines its home slot
	due   dueTime       // the entry cannot be empty earlier, so the sweep skips it; guarded by the shard's lock
}

const smallestTable = 8

// homeOf leaves out the lowest bits of the hash, which determine the shard.
func homeOf(hash uint64) uint32 { return uint32(hash / shardCount) }

// find returns the entry of key, or nil.
func (t *table) find(key *store.Key, hash uint64) *entry {
	ps := t.all()
	if len(ps) == 0 {
		return nil
	}
	home, mask := homeOf(hash), uint32(len(ps)-1)
	for i := home & mask; ; i = (i + 1) & mask {
		p := &ps[i]
		e := p.entry.Load()
		if e == nil || p.home.Load() == home && e.key.equal(key) {
			return e
		}
	}
}

func (t *table) all() slots {
	if ps := t.slots.Load(); ps != nil {
		return *ps
	}
	return nil
}

// add adds an entry that the table does not have.
func (t *table) add(hash uint64, e *entry, due dueTime) {
	ps := t.all()
	if 8*(t.used+1) > 7*len(ps) {
		ps = t.resize(max(smallestTable, 2*len(ps)))
	}
	t.used++
	ps.put(homeOf(hash), e, due)
}

func (ps slots) put(home uint32, e *entry, due dueTime) {
	mask := uint32(len(ps) - 1)
	i := home & mask
	for ps[i].entry.Load() != nil {
		i = (i + 1) & mask
	}
	ps[i].set(home, e, due)
}

// set stores the entry last, because lookups read the home only where there is an entry.
func (p *slot) set(home uint32, e *entry, due dueTime) {
	p.due = due
	p.home.Store(home)
	p.entry.Store(e)
}

// index returns the slot of an entry that is in the table.
func (t *table) index(hash uint64, e *entry) int {
	ps := t.all()
	i := int(homeOf(hash)) & (len(ps) - 1)
	for ps[i].entry.Load() != e {
		i = (i + 1) & (len(ps) - 1)
	}
	return i
}

// remove empties slot i. It moves later entries up, so that no empty slot comes between an entry and its home slot.
func (t *table) remove(i int) {
	ps := t.all()
	mask := len(ps) - 1
	for j := (i + 1) & mask; ps[j].entry.Load() != nil; j = (j + 1) & mask {
		p := &ps[j]
		home := p.home.Load()
		if (j-int(home))&mask >= (j-i)&mask {
			ps[i].set(home, p.entry.Load(), p.due)
			i = j
		}
	}
	ps[i].entry.Store(nil)
	if t.used--; len(ps) > smallestTable && 8*t.used < len(ps) {
		t.resize(len(ps) / 2)
	}
}

func (t *table) resize(size int) slots {
	ps, old := make(slots, size), t.all()
	for i := range old {
		if e := old[i].entry.Load(); e != nil {
			ps.put(old[i].home.Load(), e, old[i].due)
		}
	}
	t.slots.Store(&ps)
	return ps
}

// dueTime is an instant in steps of 17 ms. It wraps around after two years, so it is at most longestDue ahead.
type dueTime uint32

const (
	dueStep    = 1 << 24 // nanoseconds
	longestDue = 365 * 24 * time.Hour
)

func dueAt(at int64) dueTime { return dueTime(at / dueStep) }

// isAfter reports whether it is after an instant, by a whole step.
func (d dueTime) isAfter(now int64) bool { return int32(d-dueAt(now)) > 0 }
