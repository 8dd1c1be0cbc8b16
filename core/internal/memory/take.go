package memory

import (
	"math/bits"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// instant is when takes were asked.
type instant struct {
	clock int64 // of the store
	wall  int64 // how far the wall clock is ahead of it in nanoseconds, if a limit counts; otherwise 0
}

// now reads the clocks, before any lock is waited for. The wall clock takes as long as the rest of a take, so it is
// read only for a counting algorithm.
func (s *Store) now(counts bool) instant {
	if !counts {
		return instant{clock: s.clock()}
	}
	now := time.Now()
	clock := int64(now.Sub(s.start))
	return instant{clock, now.UnixNano() - clock}
}

// Take decides about the takes of one request, of which those of one key follow each other: all are recorded, or none.
// It sets the answers. Takes without an ID get one that their log assigns, which saves the log memory. Nothing is kept
// of the slices.
func (s *Store) Take(takes []store.Take, answers []store.Answer) {
	counts, keys := takes[0].Limit.Algorithm != store.SlidingLog, 1
	for i := 1; i < len(takes); i++ {
		counts = counts || takes[i].Limit.Algorithm != store.SlidingLog
		if !takes[i].Key.Equal(&takes[i-1].Key) {
			keys++
		}
	}
	now := s.now(counts)
	if keys == 1 && takes[0].Mode != store.ModeAtMost {
		hash := takes[0].Key.Hash()
		if e := s.shards[hash%shardCount].entries.find(&takes[0].Key, hash); e != nil {
			e.lock(now.clock)
			done := len(takes) == 1 && e.takeOne(&takes[0], &answers[0], now) || e.take(takes, answers, now)
			if e.mu.Unlock(); done {
				return
			}
		}
	}
	s.takeLocked(takes, answers, now)
}

// part is one of the takes of a request. It does not refer to the take and its answer, since they would be on the heap
// if something pointed to them that points to logs as well.
type part struct {
	shard *shard
	entry *entry // locked, or nil for a peek at a key without one
	log   *log   // or nil for a peek at a log that is not there
	hash  uint64
	at    int64 // the instant of the take, by the store's clock
	units int   // that must fit
	more  int   // that earlier parts take from the same log, which their keys share
	own   bool  // the entry is the key's own
	held  bool  // an earlier part has locked the entry
	room  bool  // the log has room
	mode  store.Mode
}

const fewTakes = 8 // that a request has without an allocation

// takeLocked is Take under the locks of the shards of all keys, which it locks in their order. So there is no deadlock:
// to wait for another entry while it holds one, a goroutine must have locked both shards before.
func (s *Store) takeLocked(takes []store.Take, answers []store.Answer, now instant) {
	var space [fewTakes]part
	parts := append(space[:0], make([]part, len(takes))...)
	shards := uint64(0) // a bit for each
	for i := range parts {
		p := &parts[i]
		p.hash, p.at = takes[i].Key.Hash(), now.clock
		p.shard = &s.shards[p.hash%shardCount]
		shards |= 1 << (p.hash % shardCount)
	}
	for left := shards; left != 0; left &= left - 1 {
		s.shards[bits.TrailingZeros64(left)].mu.Lock()
	}
	if takes[0].Mode != store.ModePeek {
		for i := range parts { // before entries are locked, because it locks entries as well
			s.makeRoom(&parts[i], &takes[i].Key)
		}
	}
	for i := range parts {
		s.find(&parts[i], parts[:i], &takes[i].Key, takes[i].Limit, takes[i].Mode != store.ModePeek)
	}
	decideAll(takes, answers, parts, now)
	for i := range parts {
		if p := &parts[i]; p.entry != nil && !p.held {
			p.entry.mu.Unlock()
		}
	}
	for left := shards; left != 0; left &= left - 1 {
		s.shards[bits.TrailingZeros64(left)].mu.Unlock()
	}
}

// find finds the log of a part, and locks its entry unless an earlier part has. With add, it adds what is not there.
// The caller holds the shard's lock, without which no shared entry is locked.
func (s *Store) find(p *part, earlier []part, k *store.Key, limit *store.Limit, add bool) {
	sh := p.shard
	sh.now = max(sh.now, p.at)
	p.entry = sh.entries.find(k, p.hash)
	if p.own = p.entry != nil; !p.own {
		p.entry = sh.findShared(s, k, p.hash)
	}
	for i := range earlier {
		p.held = p.held || p.entry != nil && p.entry == earlier[i].entry
	}
	switch {
	case p.held:
	case p.own:
		p.entry.lock(p.at)
	default:
		s.share(p, k, limit, add)
	}
	if p.entry == nil {
		return
	}
	p.at = p.entry.now
	if p.log = p.entry.find(limit); p.log == nil && add {
		p.log = p.entry.add(limit, p.shard.lastID)
		s.dueNow(p, k)
	}
}
