package guard

import (
	"errors"
	"slices"
	"sync"

	"github.com/sashlimit/sash/core/internal/logname"
	"github.com/sashlimit/sash/core/store"
)

// flights are the takes of which a call is under way: a settlement, or a call that its caller has left. Meanwhile no
// settlement of them is sent, because it could overtake the call. It is owed when the call has ended.
type flights struct {
	mu    sync.Mutex
	calls map[flightKey]*flight
}

type flightKey struct {
	id  uint64
	log logname.Name
}

type flight struct {
	calls   int
	settles bool  // one of the calls is a settlement
	owed    *owed // or nil
}

func flightOf(id uint64, k *store.Key, l *store.Limit) flightKey {
	return flightKey{id, logname.Of(k, l)}
}

// depart notes that a call is under way.
func (f *flights) depart(key flightKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(key)
}

// begin notes that a settlement is under way, unless another call is: then it is owed.
func (f *flights) begin(key flightKey, o owed) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls[key].owe(o) {
		return false
	}
	f.add(key)
	f.calls[key].settles = true
	return true
}

// changes reports whether the cost of a take is being changed, or is to be when its calls have ended.
func (f *flights) changes(key flightKey) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.calls[key]
	return one != nil && (one.settles || one.owed != nil)
}

// add is depart for a caller that holds the lock.
func (f *flights) add(key flightKey) {
	if f.calls == nil {
		f.calls = make(map[flightKey]*flight)
	}
	if f.calls[key] == nil {
		f.calls[key] = new(flight)
	}
	f.calls[key].calls++
}

// land notes that a call has ended. If it was the last one, it calls add with what is owed, before anyone knows that.
func (f *flights) land(key flightKey, add func(*owed)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.calls[key]
	if one.calls--; one.calls > 0 {
		return
	}
	if one.owed != nil {
		add(one.owed)
	}
	delete(f.calls, key)
}

// owe notes what is owed of a take when its calls have ended. It reports whether there are any.
func (f *flights) owe(key flightKey, o owed) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[key].owe(o)
}

func (one *flight) owe(o owed) bool {
	switch {
	case one == nil:
		return false
	case one.owed == nil:
		one.owed = &o
	case one.owed.cost > 0: // what was undone stays undone
		one.owed.cost = o.cost
	}
	return true
}

// fly notes that a call about takes is under way, if err is that of a caller that has left it. The caller calls land
// when it has noted what it owes.
func (g *Guard) fly(err error, takes []store.Take) (land func()) {
	var left *store.LeftError
	if !errors.As(err, &left) {
		return func() {}
	}
	kept := slices.Clone(takes)
	for i := range kept {
		kept[i].Key = kept[i].Key.Clone()
	}
	g.depart(kept)
	return func() {
		left.Then(func(recorded bool, err error) { g.landed(kept, recorded || err != nil) })
	}
}

// depart notes that a call about takes is under way.
func (g *Guard) depart(takes []store.Take) {
	for i := range takes {
		t := &takes[i]
		g.record.flights.depart(flightOf(t.ID, &t.Key, t.Limit))
	}
}

// landed notes that a call about takes has ended, and has those settled of which something is owed. Of a vain one that
// was not recorded nothing is.
func (g *Guard) landed(takes []store.Take, recorded bool) {
	for i := range takes {
		t := &takes[i]
		var b *backlog
		g.record.flights.land(flightOf(t.ID, &t.Key, t.Limit), func(o *owed) {
			if !o.vain || recorded {
				b = g.record.add(t.ID, &t.Key, t.Limit, *o)
			}
		})
		if b != nil {
			g.startReplay(b) //nolint:errcheck // it is done later
		}
	}
}
