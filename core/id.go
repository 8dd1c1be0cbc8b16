package core

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
	"time"
)

// idSource makes the ids that name takes in stores outside this process. An id is a counter that begins at a random
// number, with a salt added to its upper half. It is not a timestamp, because two requests share an instant, and not the
// client's, because a client that repeats its id would go free.
//
// Clones of a virtual machine or of a process image go on from the same counter, and a store takes equal ids for one
// take that was sent twice. Hence the salt: it is chosen anew every saltTime, every saltIDs, and where the wall clock has
// been set. Clones choose different ones as soon as the kernel's random numbers differ, which it sees to itself where the
// hypervisor tells it of the cloning, or else by the nanosecond at which they choose. A salt is the last one and a random
// number of 24 bits more, so that ids ascend but where they wrap around: Redis orders entries of one microsecond by id,
// and the oldest should be the first to be trimmed. The lower half is the
// counter's alone: no two of 2^32 ids in a row have the same, which logs that keys share depend on.
type idSource struct {
	start time.Time
	last  atomic.Uint64
	salt  atomic.Pointer[idSalt]
}

const (
	saltTime = 100 * time.Millisecond
	saltIDs  = 1024
	clockSet = 20 * time.Millisecond // by so much the wall clock differs from the monotonic one when it has been set
)

type idSalt struct {
	upper      uint64 // the lower half is 0
	from       uint64 // the counter then
	mono, wall int64  // when it was chosen, in nanoseconds
}

var ids = newIDSource()

func newIDSource() *idSource {
	s := &idSource{start: time.Now()}
	s.last.Store(random64())
	s.choose(s.last.Load(), 0, s.start.UnixNano())
	return s
}

func random64() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: its documentation
	return binary.LittleEndian.Uint64(b[:])
}

// newID is never 0, which stands for nobody.
func newID(now time.Time) uint64 { return ids.next(int64(now.Sub(ids.start)), now.UnixNano()) }

// next is given what the monotonic clock and the wall clock show.
func (s *idSource) next(mono, wall int64) uint64 {
	for {
		n := s.last.Add(1)
		salt := s.salt.Load()
		if !salt.serves(n, mono, wall) {
			salt = s.choose(n, mono, wall)
		}
		if id := n + salt.upper; id != 0 {
			return id
		}
	}
}

// serves reports whether the salt may still be used. Other goroutines' ids and clocks may be a little older than it.
func (t *idSalt) serves(n uint64, mono, wall int64) bool {
	passed, set := mono-t.mono, (wall-t.wall)-(mono-t.mono)
	return int64(n-t.from) < saltIDs && -int64(saltTime) < passed && passed < int64(saltTime) &&
		-int64(clockSet) < set && set < int64(clockSet)
}

func (s *idSource) choose(n uint64, mono, wall int64) *idSalt {
	mixed := random64() + uint64(wall)*0x9e3779b97f4a7c15 // an odd number: other nanoseconds, other upper halves
	salt := &idSalt{upper: (1 + mixed>>40) << 32, from: n, mono: mono, wall: wall}
	if last := s.salt.Load(); last != nil {
		salt.upper += last.upper
	}
	s.salt.Store(salt)
	return salt
}
