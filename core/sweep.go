package core

// Logs are forgotten by those who come, a few at a time, so that it needs no goroutine.
const (
	sweepPerKey   = 2  // logs looked at for each new key, so that keys leave faster than they come
	sweepWhenFull = 32 // ... where a new key finds no place
	takesPerSweep = 8  // takes of a log for which others are looked at
	sweepPerTakes = 2  // ... which are so many
)

// makeRoom looks for idle keys in one shard after the other, whoever asks, until it has looked at enough of them: in any
// other order it would come to some again before it had seen them all. It passes over shards that others have locked.
func (s *MemoryStore) makeRoom(sh *shard) (freed bool) {
	for i, left := 0, sweepWhenFull; i < shardCount && left > 0 && !freed; i++ {
		next := &s.shards[s.turn.Add(1)%shardCount]
		if next != sh && !next.mu.TryLock() {
			continue
		}
		n := min(left, next.logs.used)
		next.now = max(next.now, sh.now)
		freed = next.sweep(s, n)
		left -= n
		if next != sh {
			next.mu.Unlock()
		}
	}
	return freed
}

// claim takes one of the places for keys.
func (s *MemoryStore) claim() bool {
	if s.keys.Add(1) <= s.maxKeys {
		return true
	}
	s.keys.Add(-1)
	return false
}

// sweepNow sweeps unless somebody else is at it.
func (sh *shard) sweepNow(s *MemoryStore, now int64) {
	if sh.mu.TryLock() {
		sh.now = max(sh.now, now)
		sh.sweep(s, sweepPerTakes)
		sh.mu.Unlock()
	}
}

// sweep looks at the next n logs, forgets those that are empty and returns
// unused memory of the others. It reports whether a place became free.
func (sh *shard) sweep(s *MemoryStore, n int) (freed bool) {
	for n = min(n, sh.logs.used); n > 0; {
		places := sh.logs.all()
		if sh.hand >= len(places) {
			sh.hand = 0
		}
		p := &places[sh.hand]
		if p.log.Load() == nil {
			sh.hand++
			continue
		}
		n--
		if p.due.reached(sh.now) && sh.tidy(s, sh.hand) {
			freed = true
			continue // another log may have taken its place
		}
		sh.hand++
	}
	return freed
}

// tidy reports whether the log in place i was empty and has been removed.
func (sh *shard) tidy(s *MemoryStore, i int) (removed bool) {
	p := &sh.logs.all()[i]
	log := p.log.Load()
	log.lock(sh.now)
	defer log.mu.Unlock()
	log.drop(log.now - int64(log.keep))
	if log.count == 0 {
		sh.remove(s, i)
		return true
	}
	log.fit()
	p.due = dueAt(log.at(log.count-1), log.keep)
	return false
}

// remove forgets the log in place i. It and the shard are locked.
func (sh *shard) remove(s *MemoryStore, i int) {
	log := sh.logs.all()[i].log.Load()
	log.gone = true
	sh.lastID, sh.now = max(sh.lastID, log.next), max(sh.now, log.now)
	sh.logs.remove(i)
	s.keys.Add(-1)
}
