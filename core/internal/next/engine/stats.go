package engine

// Stats is what an engine holds. Those of the memory store and of the guard are added when these packages are there.
type Stats struct {
	InFlight  int // permits that requests of this process hold
	Overrides int // in force, as they were read last
}

// Stats returns a snapshot. It asks no store outside the process.
func (e *Engine) Stats() Stats { return Stats{} }
