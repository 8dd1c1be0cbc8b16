package core

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

	Breaker  string // "closed" while the store is asked, "open" while it is not
	Outages  uint64 // how often the breaker has opened
	Failures uint64 // calls that the store has not answered
	Denials  int    // that are cached, so that the store is not asked
	Leases   int    // in hand; see [WithLease]
	Booked   int    // units that these leases have left
	Backlog  int64  // takes that were decided without the store, or are to be settled, and of which it does not know
	Replayed uint64 // entries that were decided without the store and replayed to it
	Lost     uint64 // units that were admitted without the store and cannot be replayed to it
}

// Stats returns a snapshot. It asks no store outside the process. For a [MemoryStore] it looks at each key, which takes
// some milliseconds for 100,000 keys, so call it at intervals and not for each request.
func (l *Limiter) Stats() Stats {
	e := l.engine.Stats()
	s := Stats{
		Policy: l.policy(), Store: l.store, InFlight: e.InFlight, Closed: l.closed.Load(), Overrides: e.Overrides,
		Breaker: e.Guard.Breaker, Outages: e.Guard.Outages, Failures: e.Guard.Failures, Denials: e.Guard.Denials,
		Leases: e.Guard.Leases, Booked: e.Guard.Booked, Backlog: e.Guard.Backlog, Replayed: e.Guard.Replayed,
		Lost: e.Guard.Lost,
	}
	if own, ok := l.store.(*MemoryStore); ok {
		s.Keys, s.MaxKeys, s.Bytes, s.Shared = own.logs.Keys(), own.logs.MaxKeys(), own.logs.Bytes(), own.logs.Shared()
	}
	return s
}
