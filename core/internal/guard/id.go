package guard

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
)

// ids makes the ids of takes for stores outside this process. It counts from a random number of 64 bits, so that
// processes which share a log do not use the same ids. An id is not a timestamp, because two requests may have the same
// instant, and not chosen by the client, because a repeated id is not charged again. Ids increase, because Redis orders
// the entries of one instant by id and trims the first.
type ids struct{ last atomic.Uint64 }

var processIDs = newIDs()

func newIDs() *ids {
	var b [8]byte
	rand.Read(b[:]) // never fails: its documentation
	s := new(ids)
	s.last.Store(binary.LittleEndian.Uint64(b[:]))
	return s
}

// next returns an id. It is never 0, which means no id.
func (s *ids) next() uint64 {
	for {
		if id := s.last.Add(1); id != 0 {
			return id
		}
	}
}

func newID() uint64 { return processIDs.next() }
