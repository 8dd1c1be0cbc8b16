package memory

import (
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

const shardCount = 64

// table is a hash table of logs with open addressing and linear probing. With many keys each pointer that is followed
// is a cache miss: a map of strings needs four in a row, this table two. It also shrinks as keys leave, which a map
// does not, and the sweep needs no other list of logs.
//
// Lookups take no lock, and may miss a log that is being moved. If a lookup finds none, or one that has been removed
// meanwhile, the caller looks again with the shard's lock.
type table struct {
	slots atomic.Pointer[slots]
	used  int
}

// slots is empty, or its length is a power of two. At most seven eighths of the slots are used.
type slots []slot

type slot struct {
	log  atomic.Pointer[keyLog]
	home atomic.Uint32 // the part of the log's hash that determines its home slot
	due  dueTime       // the log cannot be empty earlier, so the sweep skips it; guarded by the shard's lock
}

const smallestTable = 8

// homeOf leaves out the lowest bits of the hash, which determine the shard.
func homeOf(hash uint64) uint32 { return uint32(hash / shardCount) }

// find returns the log of key, or nil.
func (t *table) find(key *store.Key, hash uint64) *keyLog {
	ps := t.all()
	if len(ps) == 0 {
		return nil
	}
	home, mask := homeOf(hash), uint32(len(ps)-1)
	for i := home & mask; ; i = (i + 1) & mask {
		p := &ps[i]
		log := p.log.Load()
		if log == nil || p.home.Load() == home && log.key.Equal(key) {
			return log
		}
	}
}

func (t *table) all() slots {
	if ps := t.slots.Load(); ps != nil {
		return *ps
	}
	return nil
}

// add adds a log that the table does not have.
func (t *table) add(hash uint64, log *keyLog, due dueTime) {
	ps := t.all()
	if 8*(t.used+1) > 7*len(ps) {
		ps = t.resize(max(smallestTable, 2*len(ps)))
	}
	t.used++
	ps.put(homeOf(hash), log, due)
}

func (ps slots) put(home uint32, log *keyLog, due dueTime) {
	mask := uint32(len(ps) - 1)
	i := home & mask
	for ps[i].log.Load() != nil {
		i = (i + 1) & mask
	}
	ps[i].set(home, log, due)
}

// set stores the log last, because lookups read the home only where there is a log.
func (p *slot) set(home uint32, log *keyLog, due dueTime) {
	p.due = due
	p.home.Store(home)
	p.log.Store(log)
}

// index returns the slot of a log that is in the table.
func (t *table) index(hash uint64, log *keyLog) int {
	ps := t.all()
	i := int(homeOf(hash)) & (len(ps) - 1)
	for ps[i].log.Load() != log {
		i = (i + 1) & (len(ps) - 1)
	}
	return i
}

// remove empties slot i. It moves later logs up, so that no empty slot comes between a log and its home slot.
func (t *table) remove(i int) {
	ps := t.all()
	mask := len(ps) - 1
	for j := (i + 1) & mask; ps[j].log.Load() != nil; j = (j + 1) & mask {
		p := &ps[j]
		home := p.home.Load()
		if (j-int(home))&mask >= (j-i)&mask {
			ps[i].set(home, p.log.Load(), p.due)
			i = j
		}
	}
	ps[i].log.Store(nil)
	if t.used--; len(ps) > smallestTable && 8*t.used < len(ps) {
		t.resize(len(ps) / 2)
	}
}

func (t *table) resize(size int) slots {
	ps, old := make(slots, size), t.all()
	for i := range old {
		if log := old[i].log.Load(); log != nil {
			ps.put(old[i].home.Load(), log, old[i].due)
		}
	}
	t.slots.Store(&ps)
	return ps
}

// dueTime is an instant in steps of 17 ms. It wraps mask after two years, and windows are at most one year.
type dueTime uint32

const dueStep = 1 << 24 // nanoseconds

func dueAt(now int64, in time.Duration) dueTime { return dueTime((now + int64(in)) / dueStep) }

func (d dueTime) reached(now int64) bool { return int32(dueTime(now/dueStep)-d) >= 0 }
