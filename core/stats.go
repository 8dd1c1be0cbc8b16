package core

import (
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Stats is what a limiter holds now, and what it has counted since it was made: it is not in an [Event], because it is
// not about one request. Packages prommetrics and otelmetrics export it.
type Stats struct {
	Policy   string // name of the policy
	Store    Store  `json:"-"` // tells which limiters share one
	InFlight int    // permits of [InFlight] that requests of this process hold
	Closed   bool   // [Limiter.Close] has ended

	Overrides int // in force, as they were read last; see [WithOverrides]

	// All limiters of a [MemoryStore] have these of it in common. They are 0 for another store.

	Keys    int    // that have a log of their own
	MaxKeys int    // see [WithMaxKeys]
	Bytes   int    // of memory that the logs use
	Shared  uint64 // requests whose key shared a log with other keys

	// These are of any other store, and zero for a MemoryStore.

	Breaker  string         // "closed" while the store is asked, "open" while it is not, "half open" for a probe
	Outages  uint64         // how often the breaker has opened
	Failures uint64         // calls that the store has not answered
	Stalled  time.Duration  // in which requests waited, but this process could not run
	Denials  int            // that are cached, so that the store is not asked
	Leases   int            // in hand; see [WithLease]
	Booked   int            // units that these leases have left
	Backlog  int64          // takes that were decided without the store and are not yet replayed to it
	Replayed uint64         // takes that were decided without the store and replayed to it
	Lost     uint64         // units that were admitted without the store and cannot be replayed to it
	Batches  *store.Batches // of all limiters of the store; nil unless it is a [store.Batcher]
}

// Stats returns a snapshot. It asks no store outside the process. For a [MemoryStore] it looks at each key, which takes
// some milliseconds for 100,000 keys, so call it at intervals and not for each request.
func (l *Limiter) Stats() Stats {
	s := Stats{Policy: l.namespace.Policy(), Store: l.store, Closed: l.life.Closed()}
	if s.InFlight = l.permits.Len(); l.overrides != nil {
		s.Overrides = l.overrides.Len()
	}
	if l.memory != nil {
		s.Keys, s.MaxKeys, s.Bytes, s.Shared = l.memory.Keys(), l.memory.MaxKeys(), l.memory.Bytes(), l.memory.Shared()
		return s
	}
	parts := []*Limiter{l}
	if l.byFailure != nil {
		parts = l.byFailure[:]
	}
	for _, part := range parts {
		g := part.guard.Stats()
		if s.Breaker == "" || s.Breaker == "closed" || g.Breaker == "open" {
			s.Breaker = g.Breaker
		}
		s.Outages, s.Failures, s.Replayed = s.Outages+g.Outages, s.Failures+g.Failures, s.Replayed+g.Replayed
		s.Denials, s.Backlog, s.Lost = g.Denials, s.Backlog+g.Backlog, s.Lost+g.Lost // denials are those of all
		s.Stalled, s.Leases, s.Booked = s.Stalled+g.Stalled, s.Leases+g.Leases, s.Booked+g.Booked
	}
	if batcher, ok := l.store.(store.Batcher); ok {
		b := batcher.Batches()
		s.Batches = &b
	}
	return s
}
