package core

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
)

// lastID begins at a random number of 64 bits, so that processes which share a
// log never meet. It is not a timestamp, because two requests share an instant,
// and not the client's, because a client that repeats its id would go free.
var lastID = func() *atomic.Uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: its documentation
	id := new(atomic.Uint64)
	id.Store(binary.LittleEndian.Uint64(b[:]))
	return id
}()

// newID is never 0, which stands for nobody.
func newID() uint64 {
	for {
		if id := lastID.Add(1); id != 0 {
			return id
		}
	}
}
