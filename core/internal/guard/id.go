package guard

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
	"time"
)

// idSource makes the ids that name takes in stores outside this process. An id is a counter that begins at a random
// number of 64 bits, so that processes which share a log never meet. It is not a timestamp, because two requests share
// an instant, and not the client's, because a client that repeats its id would go free. It goes up, because Redis
// orders entries of one instant by their ids, and trims away the first.
//
// Clones of a virtual machine or of a process image go on from the same counter, and a store takes equal ids for one
// take that was sent twice. Hence the counter jumps by a random number after jumpTime, after jumpIDs, and where the
// wall clock has been set. Clones jump to different numbers if the kernel's random numbers differ, which Linux sees to
// where the hypervisor tells it of the cloning, or else if they do so at different nanoseconds.
type idSource struct {
	start time.Time
	last  atomic.Uint64
	jump  atomic.Pointer[idJump]
}

const (
	jumpTime = 100 * time.Millisecond
	jumpIDs  = 1024
	jumpBits = 28
	jumpUnit = 20                    // bits that a jump leaves: logs that keys share go by the lower half of an id
	clockSet = 20 * time.Millisecond // by more the wall clock differs from the monotonic one if it has been set
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

// newID is never 0, which stands for nobody.
func newID(now time.Time) uint64 { return ids.next(int64(now.Sub(ids.start)), now.UnixNano()) }

// next is given what the monotonic clock and the wall clock show.
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

// covers reports whether an id follows the jump soon enough. One that precedes it may be a clone's as well. Clocks that
// were read by other goroutines may be a little behind.
func (j *idJump) covers(id uint64, mono, wall int64) bool {
	passed, set := mono-j.mono, (wall-j.wall)-(mono-j.mono)
	return id-j.to < jumpIDs && -int64(jumpTime) < passed && passed < int64(jumpTime) &&
		-int64(clockSet) < set && set < int64(clockSet)
}

// leap returns the id that it jumps to.
func (s *idSource) leap(mono, wall int64) uint64 {
	mixed := random64() + uint64(wall)*0x9e3779b97f4a7c15 // an odd number: other nanoseconds, other upper bits
	to := s.last.Add((mixed>>(64-jumpBits) + 1) << jumpUnit)
	s.jump.Store(&idJump{to, mono, wall})
	return to
}
