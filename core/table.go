package core

// table finds logs by key: open addressing, linear probing. Where keys are many each pointer followed is a miss of the
// cache: a map of texts has four of them in a row here, this has two. The sweep walks the same places, and they are
// given back as keys leave, which a map's are not.
type table struct {
	places []place // none or a power of two, at most three quarters of them taken
	used   int
}

type place struct {
	hash uint64
	log  *memoryLog
}

const smallestTable = 8

// home is where a hash belongs. Its lowest bits have chosen the shard.
func (t *table) home(hash uint64) int { return int(hash/shardCount) & (len(t.places) - 1) }

func (t *table) next(i int) int { return (i + 1) & (len(t.places) - 1) }

// find is where key's log is, or -1.
func (t *table) find(key *StorageKey, hash uint64) int {
	if t.used == 0 {
		return -1
	}
	for i := t.home(hash); ; i = t.next(i) {
		switch p := &t.places[i]; {
		case p.log == nil:
			return -1
		case p.hash == hash && p.log.key.names(key):
			return i
		}
	}
}

// at is the log in a place, or nil where find has found none.
func (t *table) at(i int) *memoryLog {
	if i < 0 {
		return nil
	}
	return t.places[i].log
}

// add puts in a log that is not there.
func (t *table) add(hash uint64, log *memoryLog) {
	if 4*(t.used+1) > 3*len(t.places) {
		t.resize(max(smallestTable, 2*len(t.places)))
	}
	t.used++
	t.put(place{hash, log})
}

func (t *table) put(p place) {
	i := t.home(p.hash)
	for t.places[i].log != nil {
		i = t.next(i)
	}
	t.places[i] = p
}

// remove empties a place. Others move up, so that each is found before the first empty one.
func (t *table) remove(i int) {
	for j := t.next(i); t.places[j].log != nil; j = t.next(j) {
		around := len(t.places) - 1
		if (j-t.home(t.places[j].hash))&around >= (j-i)&around {
			t.places[i] = t.places[j]
			i = j
		}
	}
	t.places[i] = place{}
	if t.used--; len(t.places) > smallestTable && 8*t.used < len(t.places) {
		t.resize(len(t.places) / 2)
	}
}

func (t *table) resize(size int) {
	old := t.places
	t.places = make([]place, size)
	for _, p := range old {
		if p.log != nil {
			t.put(p)
		}
	}
}
