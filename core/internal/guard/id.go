package guard

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
	"time"
)

// idSource makes the ids of takes for stores outside this process. An id is the value of a counter that starts at a
// random number of 64 bits, so that processes which share a log do not use the same ids. It is not a timestamp, because
// two requests may have the same instant, and not chosen by the client, because a repeated id is not charged again. Ids
// increase, because Redis orders the entries of one instant by id and trims the first.
//
// Clones of a virtual machine or of a process image continue from the same counter, and a store takes equal ids for one
// take that was sent twice. Hence the counter jumps by a random number after jumpTime, after jumpIDs, and when the wall
// clock has been set. Clones jump to different numbers if the kernel's random numbers differ, which Linux ensures if
// the hypervisor reports the cloning, or otherwise if they jump at different nanoseconds.
type idSource struct {
	start time.Time
	last  atomic.Uint64
	jump  atomic.Pointer[idJump]
}

const (
	jumpTime = 100 * time.Millisecond
	jumpIDs  = 1024
	jumpBits = 28
	jumpUnit = 20                    // low bits that a jump keeps: shared logs use the lower half of an id
	clockSet = 20 * time.Millisecond // a larger deviation from the monotonic clock means that it was set
)

// idJump is the latest jump.
type idJump struct {
	to         uint64
	mono, wall int64 // when, in nanoseconds
}

var ids = newIDSource()

func newIDSource() *idSource {
	s := &idSource{start: time.Now()}
	s.last.Store(random64())
	s.leap(0, s.start.UnixNano())
	return s
}

func random64() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: its documentation
	return binary.LittleEndian.Uint64(b[:])
}

// newID returns an id. It is never 0, which means no id.
func newID(now time.Time) uint64 { return ids.next(int64(now.Sub(ids.start)), now.UnixNano()) }

// next returns an id. Its arguments are the readings of the monotonic clock and of the wall clock, in nanoseconds.
func (s *idSource) next(mono, wall int64) uint64 {
	for {
		id := s.last.Add(1)
		if !s.jump.Load().covers(id, mono, wall) {
			id = s.leap(mono, wall)
		}
		if id != 0 {
			return id
		}
	}
}

// covers reports whether an id follows the jump soon enough. An id before the jump may also be used by a clone.
// Readings of other goroutines may be slightly older than the jump's.
func (j *idJump) covers(id uint64, mono, wall int64) bool {
	passed, set := mono-j.mono, (wall-j.wall)-(mono-j.mono)
	return id-j.to < jumpIDs && -int64(jumpTime) < passed && passed < int64(jumpTime) &&
		-int64(clockSet) < set && set < int64(clockSet)
}

// leap makes a jump and returns the first id after it.
func (s *idSource) leap(mono, wall int64) uint64 {
	mixed := random64() + uint64(wall)*0x9e3779b97f4a7c15 // an odd number: other nanoseconds, other upper bits
	to := s.last.Add((mixed>>(64-jumpBits) + 1) << jumpUnit)
	s.jump.Store(&idJump{to, mono, wall})
	return to
}
