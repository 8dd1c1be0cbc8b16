package guard

import (
	"time"

	"github.com/sashlimit/sash/core/store"
)

// backlogSnapshot is a backlog at one instant.
type backlogSnapshot struct {
	replay  bool          // there is something to replay
	long    bool          // there are more than maxPart entries
	lowers  bool          // the store may have more units of a take than it is to have; not set if long
	entries []store.Entry // oldest first; empty if long
}

// snapshots fills in the backlogs of a request's keys. It reports whether one of them has something to replay, and
// whether one of them is long.
func (j *journal) snapshots(r *request, backlogs *[store.MaxLimits]backlogSnapshot) (replay, long bool) {
	for i := range r.len() {
		t, _ := r.at(i)
		s := &backlogs[i]
		*s = j.snapshot(&t.Key)
		replay, long = replay || s.replay, long || s.long
	}
	return replay, long
}

func (j *journal) snapshot(key *store.Key) (s backlogSnapshot) {
	sh, b := j.lock(key)
	defer sh.mu.Unlock()
	if b == nil {
		return s
	}
	j.expire(b)
	s.replay, s.long = len(b.entries) > 0, len(b.entries) > maxPart
	if s.long {
		return s
	}
	now := j.now()
	for i := range b.entries {
		e := &b.entries[i]
		s.lowers = s.lowers || e.settled || e.cost == 0
		s.entries = append(s.entries, store.Entry{Age: time.Duration(now - e.at), Cost: int(e.cost)})
	}
	return s
}

// addTo adds the entries to the states of an answer from a store that does not have them.
func (s *backlogSnapshot) addTo(t *store.Take, a *store.Answer) {
	for i := range t.Plan.Limits {
		window, state := t.Plan.Limits[i].Window, &a.State[i]
		for n := range s.entries {
			e := &s.entries[n]
			if e.Cost == 0 || e.Age >= window {
				continue
			}
			if reset := window - e.Age; state.Reset == 0 || reset < state.Reset {
				state.Reset = reset
			}
			state.Used += e.Cost
		}
	}
}
