package guard

import "time"

// Stats is a snapshot of a guard. The counters are of the time since it was made.
type Stats struct {
	Breaker  string        // "closed", "open" or "half open"
	Outages  uint64        // how often the breaker has opened
	Failures uint64        // calls that the store has not answered
	Stalled  time.Duration // in which requests waited and this process could not run
	Denials  int           // in the deny cache
	Backlog  int64         // entries that are to be replayed
	Replayed uint64        // entries
	Lost     uint64        // units that cannot be replayed
}

// Stats returns a snapshot.
func (g *Guard) Stats() Stats {
	names := [...]string{closed: "closed", open: "open", halfOpen: "half open"}
	return Stats{
		Breaker:  names[g.breaker.state()],
		Outages:  g.log.outages.Load(),
		Failures: g.breaker.failures.Load(),
		Stalled:  g.Stalled(),
		Denials:  g.denials.len(),
		Backlog:  g.journal.entries.Load(),
		Replayed: g.journal.replayed.Load(),
		Lost:     g.journal.lost.Load(),
	}
}
