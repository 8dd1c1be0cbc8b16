package memory

import (
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// table finds logs by key: open addressing, linear probing. Where keys are many each pointer followed is a miss of the
// cache: a map of texts has four of them in a row here, this has two. The sweep walks the same places, and they are
// given back as keys leave, which a map's are not.
//
// Anybody may look for a log at any time, and may miss one that is being moved at that moment: who finds none looks
// again under the shard's lock, as does who finds one that has been forgotten meanwhile.
type table struct {
	places atomic.Pointer[places]
	used   int
}

// places are none or a power of two, at most seven eighths of them taken.
type places []place

type place struct {
	log  atomic.Pointer[keyLog]
	spot atomic.Uint32 // the part of the log's hash that says where it belongs
	due  dueTime       // no earlier can the log be idle, so the sweep need not touch it; the shard's lock guards this
}

const smallestTable = 8

// spotOf leaves out the lowest bits, which have chosen the shard.
func spotOf(hash uint64) uint32 { return uint32(hash / shardCount) }

// find is key's log, or nil.
func (t *table) find(key *store.Key, hash uint64) *keyLog {
	ps := t.all()
	if len(ps) == 0 {
		return nil
	}
	spot, around := spotOf(hash), uint32(len(ps)-1)
	for i := spot & around; ; i = (i + 1) & around {
		p := &ps[i]
		log := p.log.Load()
		if log == nil || p.spot.Load() == spot && log.key.Equal(key) {
			return log
		}
	}
}

func (t *table) all() places {
	if ps := t.places.Load(); ps != nil {
		return *ps
	}
	return nil
}

// add puts in a log that is not there.
func (t *table) add(hash uint64, log *keyLog, due dueTime) {
	ps := t.all()
	if 8*(t.used+1) > 7*len(ps) {
		ps = t.resize(max(smallestTable, 2*len(ps)))
	}
	t.used++
	ps.put(spotOf(hash), log, due)
}

func (ps places) put(spot uint32, log *keyLog, due dueTime) {
	around := uint32(len(ps) - 1)
	i := spot & around
	for ps[i].log.Load() != nil {
		i = (i + 1) & around
	}
	ps[i].set(spot, log, due)
}

// set writes the log last: who looks meanwhile reads the rest when there is one.
func (p *place) set(spot uint32, log *keyLog, due dueTime) {
	p.due = due
	p.spot.Store(spot)
	p.log.Store(log)
}

// index is where a log is that is there.
func (t *table) index(hash uint64, log *keyLog) int {
	ps := t.all()
	i := int(spotOf(hash)) & (len(ps) - 1)
	for ps[i].log.Load() != log {
		i = (i + 1) & (len(ps) - 1)
	}
	return i
}

// remove empties a place. Others move up, so that each is found before the first empty one.
func (t *table) remove(i int) {
	ps := t.all()
	around := len(ps) - 1
	for j := (i + 1) & around; ps[j].log.Load() != nil; j = (j + 1) & around {
		p := &ps[j]
		spot := p.spot.Load()
		if (j-int(spot))&around >= (j-i)&around {
			ps[i].set(spot, p.log.Load(), p.due)
			i = j
		}
	}
	ps[i].log.Store(nil)
	if t.used--; len(ps) > smallestTable && 8*t.used < len(ps) {
		t.resize(len(ps) / 2)
	}
}

func (t *table) resize(size int) places {
	ps, old := make(places, size), t.all()
	for i := range old {
		if log := old[i].log.Load(); log != nil {
			ps.put(old[i].spot.Load(), log, old[i].due)
		}
	}
	t.places.Store(&ps)
	return ps
}

// dueTime is an instant in steps of 17 ms. It comes around in two years, and windows are at most one.
type dueTime uint32

const dueStep = 1 << 24 // nanoseconds

func dueAt(now int64, in time.Duration) dueTime { return dueTime((now + int64(in)) / dueStep) }

func (d dueTime) reached(now int64) bool { return int32(dueTime(now/dueStep)-d) >= 0 }
