package core

import (
	"context"
	"errors"
	"iter"
	"time"
)

// broughtAtOnce is how many units a request brings to the store before its own question.
const broughtAtOnce = 500

var errBeingBrought = &StoreError{Err: errors.New("what an outage has recorded of this key is still being brought to the store"), OneKey: true}

// bring adds to the store what was recorded here of the key that t asks about, and drops it here once the store has
// answered: until then it may be needed.
func (r *remote) bring(ctx context.Context, t *Take, a *Answer) error {
	m, more := r.outage.recorded(&t.Key)
	if more {
		return errBeingBrought
	}
	err := r.merge(ctx, &m)
	if err == nil {
		*a, err = r.store.Take(ctx, *t)
	}
	if err == nil && len(m.Entries) > 0 {
		r.outage.merged(&m)
	}
	return err
}

func (r *remote) merge(ctx context.Context, m *Merge) error {
	if len(m.Entries) == 0 {
		return nil
	}
	if err := r.store.Merge(ctx, *m); err != nil {
		return err
	}
	// What was settled meanwhile has not been there yet, or has been overlooked.
	for _, e := range m.Entries {
		if cost, ok := r.settled.Load(e.ID); ok {
			if err := r.store.Settle(ctx, Settle{Key: m.Key, ID: e.ID, Cost: cost.(int)}); err != nil { //nolint:forcetypeassert // stored as such
				return err
			}
		}
	}
	return nil
}

// bringAll does so for all keys, and tries until it has or they have left.
func (r *remote) bringAll() {
	for {
		select {
		case <-r.closed:
			return
		case <-time.After(jitter(retryStore)):
		}
		for key := range r.outage.mergeableKeys() {
			if !r.bringWhole(key) {
				break
			}
		}
		if r.outage.Keys() == 0 {
			r.settled.Clear()
			r.bringing.Store(false)
			// Whoever has recorded something in between has seen that somebody is at it.
			if r.outage.Keys() == 0 || !r.bringing.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

// bringWhole brings a log in parts, each with a deadline of its own, and reports whether the store answers.
func (r *remote) bringWhole(key *StorageKey) bool {
	for more := true; more; {
		var m Merge
		if m, more = r.outage.recorded(key); len(m.Entries) == 0 {
			return true
		}
		ctx := r.within(context.Background(), time.Now())
		if err := r.ask(key, func() error { return r.merge(ctx, &m) }); err != nil {
			return !isOutage(err)
		}
		r.outage.merged(&m)
	}
	return true
}

// recorded is what to merge next into another store's log of a key, and whether there is more.
func (s *MemoryStore) recorded(k *StorageKey) (m Merge, more bool) {
	sh, log, own, _ := s.locked(k)
	defer sh.unlock(log)
	if !own {
		return m, false
	}
	log.drop(log.now - int64(log.keep))
	m = Merge{Key: log.key.key(), Keep: log.keep, Varies: log.varies}
	next := uint32(0)
	if log.count > 0 && log.ledger.merged != 0 { // there is a ledger, as all takes here bring ids
		next = log.find(log.ledger.merged)
	}
	for units := 0; next < log.count; next++ {
		if e := log.entry(next); e.id == 0 { // trimmed to a part
			if log.ledger.merged != 0 { // the other store has it whole: the oldest are brought first
				continue
			}
			e.id = newID(time.Now())
		}
		cost := log.cost(next)
		if units += cost; units > broughtAtOnce && len(m.Entries) > 0 {
			return m, true
		}
		m.Entries = append(m.Entries, Recorded{ID: log.id(next), Age: time.Duration(log.now - log.at(next)), Cost: cost})
	}
	return m, false
}

// merged notes that m is in the other store. The log is dropped if there is no more to it.
func (s *MemoryStore) merged(m *Merge) {
	sh, log, own, hash := s.locked(&m.Key)
	defer sh.unlock(log)
	if !own {
		return
	}
	if len(m.Entries) > 0 && log.count > 0 {
		log.ledger.merged = m.Entries[len(m.Entries)-1].ID
	}
	if log.count == 0 || log.id(log.count-1) == log.ledger.merged {
		sh.remove(s, sh.logs.index(hash, log))
	}
}

// mergeableKeys are the keys that have entries. It forgets the others.
func (s *MemoryStore) mergeableKeys() iter.Seq[*StorageKey] {
	return func(yield func(*StorageKey) bool) {
		for i := range s.shards {
			sh := &s.shards[i]
			sh.mu.Lock()
			sh.now = max(sh.now, s.clock())
			keys := make([]*StorageKey, 0, sh.logs.used)
			for i := 0; i < len(sh.logs.all()); {
				log := sh.logs.all()[i].log.Load()
				if log != nil && sh.tidy(s, i) {
					continue // another log may have taken its place
				}
				if log != nil {
					k := log.key.key()
					keys = append(keys, &k)
				}
				i++
			}
			sh.mu.Unlock()
			for _, k := range keys {
				if !yield(k) {
					return
				}
			}
		}
	}
}
