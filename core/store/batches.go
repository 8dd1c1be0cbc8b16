package store

// Batcher is a [Store] that sends takes to a server in batches.
type Batcher interface {
	// Batches returns what was sent since the store was made.
	Batches() Batches
}

// Batches counts batches of takes by their size.
type Batches struct {
	// Sizes[i] is the number of batches of more than 1<<(i-1) and at most 1<<i takes: of 1, 2, 3 to 4, 5 to 8 takes and
	// so on. Larger batches are in the last.
	Sizes [8]uint64
	Takes uint64 // in all batches
}
