package guard

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/sashlimit/sash/core/store"
)

// request is what one decision is about: takes of different keys, with the same ID, Cost and Mode. It refers to the
// takes and answers of its caller, and no function may keep it, so that a request stays on its caller's stack.
type request struct {
	takes   []store.Take
	answers []store.Answer
	booking *booking // that is made in the same call, or nil
}

func (r *request) mode() store.Mode { return r.takes[0].Mode }

func (r *request) setID(id uint64) {
	for i := range r.takes {
		r.takes[i].ID = id
	}
}

// admitted reports whether all answers admit. ModeRecord takes units whether slots are free or not.
func (r *request) admitted() bool {
	if r.mode() == store.ModeRecord {
		return true
	}
	for i := range r.answers {
		if !r.answers[i].Allowed {
			return false
		}
	}
	return true
}

// keepsEntries reports whether t has an entry that its ID names. Only then may it be sent twice, settled or merged.
func keepsEntries(t *store.Take) bool { return t.Plan.Algorithm() == store.SlidingLog }

// keepEntries reports whether all takes have entries.
func (r *request) keepEntries() bool {
	return !slices.ContainsFunc(r.takes, func(t store.Take) bool { return !keepsEntries(&t) })
}

// clone returns a copy that does not refer to memory which the caller of Take may reuse.
func (r *request) clone() *request {
	c := &request{takes: slices.Clone(r.takes), answers: slices.Clone(r.answers)}
	for i := range c.takes {
		c.takes[i].Key = cloneKey(&c.takes[i].Key)
	}
	return c
}

// logKey is a comparable store.Key.
type logKey struct {
	policy   string
	identity store.Identity
}

func logKeyOf(k *store.Key) logKey { return logKey{k.Namespace.Policy(), k.Identity} }

// cloneKey returns a copy of a key for keeping, as the memory of a request may be reused.
func cloneKey(k *store.Key) store.Key { return store.Key{Namespace: k.Namespace, Identity: k.Clone()} }

// ids makes the ids of takes for stores outside this process. It counts from a random number of 64 bits, so that
// processes which share a log do not use the same ids. An id is not a timestamp, because two requests may have the same
// instant, and not chosen by the client, because a repeated id is not charged again. Ids increase, because Redis orders
// the entries of one instant by id and trims the first.
type ids struct{ last atomic.Uint64 }

var processIDs = newIDs()

func newIDs() *ids {
	s := new(ids)
	s.last.Store(rand.Uint64())
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
