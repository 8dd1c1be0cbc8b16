package engine

import "github.com/sashlimit/sash/core/internal/guard"

// Stats is what an engine holds.
type Stats struct {
	InFlight  int // permits that requests of this process hold
	Overrides int // in force, as they were read last

	Guard guard.Stats // of a store outside the process
}

// Stats returns a snapshot. It asks no store outside the process.
func (e *Engine) Stats() Stats {
	s := Stats{InFlight: e.store.permits.Len()}
	if e.store.guard != nil {
		s.Guard = e.store.guard.Stats()
	}
	if e.overrides != nil {
		own, _ := e.overrides.own()
		s.Overrides = len(own)
	}
	return s
}
