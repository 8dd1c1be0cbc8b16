package definition

import (
	"cmp"
	"context"
	"math"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Store is what a store must do, written without any cleverness: each log is a list of what was recorded when, which
// is looked through from end to end for each question. Its clock is set by hand. The zero value is empty, at the Unix
// epoch.
type Store struct {
	mu   sync.Mutex
	now  int64 // microseconds since the Unix epoch
	logs map[logName]*log
	fail error
	byID bool // entries of one instant are in the order of their IDs, and not in that in which they were recorded
}

type logName struct{ key, log string }

// log is what was recorded in one log. Of an algorithm that counts, it is what was admitted.
type log struct {
	entries []entry // in the order of their instants; the slice is never written again
	byID    bool    // of the Store
	full    int64   // when a token bucket is full again, in nanoseconds since the Unix epoch, which end in 2262
}

type entry struct {
	id    uint64
	at    int64
	units int
	from  int64 // the instant from which on they come back to a token bucket, in nanoseconds
}

// Advance moves the store's time on.
func (s *Store) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += d.Microseconds()
}

// Now is the store's time.
func (s *Store) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.UnixMicro(s.now)
}

// Fail makes every valid call fail with err, until Fail is called with nil.
func (s *Store) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// Failure returns the error of the last call of Fail.
func Failure(s *Store) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail
}

// log returns the log of a limit, without the entries that no question about it needs any more.
func (s *Store) log(key *store.Key, l *store.Limit) *log {
	name := logName{key.String(), l.Log}
	if s.logs == nil {
		s.logs = make(map[logName]*log)
	}
	g := s.logs[name]
	if g == nil {
		g = &log{byID: s.byID}
		s.logs[name] = g
	}
	if l.Algorithm == store.TokenBucket { // only to be settled
		g.entries = g.entries[max(0, len(g.entries)-1000):]
		return g
	}
	windows := int64(2) // the period before
	if l.Algorithm == store.SlidingLog {
		windows = 1
	}
	g.entries = g.after(s.now - windows*l.Window.Microseconds())
	return g
}

// Validate implements [store.Store].
func (s *Store) Validate(...*store.Limit) error { return nil }

// Take implements [store.Store].
func (s *Store) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil {
		s.decide(takes, answers)
	}
	return s.fail
}

func (s *Store) decide(takes []store.Take, answers []store.Answer) {
	const most = math.MaxInt
	admitted, granted := true, most
	for i := range takes {
		t, a := &takes[i], &answers[i]
		l, g := t.Limit, s.log(&t.Key, t.Limit)
		units, mode := asks(t)
		used := g.used(l, s.now)
		*a = store.Answer{
			Known: true, Used: used, Allowed: mode == store.ModeRecord || l.HasRoom(used, units),
		}
		admitted = admitted && a.Allowed
		switch {
		case !a.Allowed:
			granted = 0
		case l.Unlimited:
			granted = min(granted, t.Grant(most))
		case !l.Permits:
			granted = min(granted, t.Grant(l.Quota-used))
		}
	}
	if granted == most { // of permits alone
		granted = takes[0].Cost
	}
	for i := range takes {
		s.finish(&takes[i], &answers[i], admitted, granted)
	}
}

// finish records a take as its mode says, and answers what is known only then.
func (s *Store) finish(t *store.Take, a *store.Answer, admitted bool, granted int) {
	l, g := t.Limit, s.log(&t.Key, t.Limit)
	units, mode := asks(t)
	e := entry{id: t.ID, at: instant(l, s.now), units: units}
	if mode == store.ModeAtMost && admitted {
		if a.Granted = granted; !l.Permits {
			e.units = granted
		}
	}
	denied := mode == store.ModeChargeDenied && !a.Allowed && !l.NeverFits(units)
	if mode == store.ModeRecord || denied || admitted && mode != store.ModePeek {
		g.record(l, e)
		if mode == store.ModeRecord || denied || l.Unlimited && l.Algorithm == store.SlidingLog {
			g.trim(l.Keeps(mode))
		}
	}
	if !a.Allowed {
		a.Retry = g.wait(l, s.now, l.Quota-units)
	}
	a.Reset = g.wait(l, s.now, g.used(l, s.now)-1)
}

// asks returns how many units a take needs room for, and the mode in which it is recorded.
func asks(t *store.Take) (int, store.Mode) {
	if units, mode := t.Limit.Counted(t.Cost, t.Mode); mode != store.ModeAtMost {
		return units, mode
	}
	return 1, store.ModeAtMost
}

// instant is the instant that counts for a limit: a clock that is beyond a calendar takes the nearest period.
func instant(l *store.Limit, t int64) int64 {
	if l.Calendar != nil {
		return min(max(t, l.Calendar[0]), l.Calendar[3]-1)
	}
	return t
}

func (g *log) record(l *store.Limit, e entry) {
	if l.Algorithm == store.TokenBucket { // which does not become emptier than empty
		e.from = max(g.full, 1000*e.at)
		g.full = min(e.from+int64(min(e.units, l.Quota))*l.Interval(), 1000*e.at+int64(l.Quota)*l.Interval())
	}
	g.insert(e)
}

// insert adds entries, each behind those that are not later.
func (g *log) insert(more ...entry) {
	g.entries = slices.Concat(g.entries, more)
	slices.SortStableFunc(g.entries, func(a, b entry) int {
		if a.at == b.at && g.byID {
			return cmp.Compare(a.id, b.id)
		}
		return cmp.Compare(a.at, b.at)
	})
}

// trim removes the oldest entries while so many units are left.
func (g *log) trim(keep int) {
	for len(g.entries) > 0 && sum(g.entries[1:]) >= keep {
		g.entries = g.entries[1:]
	}
}

func sum(entries []entry) (units int) {
	for _, e := range entries {
		units += e.units
	}
	return units
}

// used returns how many units are not available at instant t, if nothing is recorded after those of the list.
func (g *log) used(l *store.Limit, t int64) int {
	switch l.Algorithm {
	case store.SlidingLog:
	case store.FixedWindow:
		begin, end := period(l, instant(l, t))
		return sum(g.between(begin, end))
	case store.SlidingCounter:
		begin, end := period(l, t)
		length := end - begin
		before := sum(g.between(begin-length, begin))
		return sum(g.between(begin, end)) + partOf(before, end-t, length)
	case store.TokenBucket:
		missing := max(g.full-1000*t, 0)
		return int((missing + l.Interval() - 1) / l.Interval())
	}
	return sum(g.after(t - l.Window.Microseconds()))
}

// after returns the entries after an instant.
func (g *log) after(t int64) []entry { return g.between(t+1, math.MaxInt64) }

// between returns the entries from one instant on and before another.
func (g *log) between(begin, end int64) (entries []entry) {
	for _, e := range g.entries {
		if begin <= e.at && e.at < end {
			entries = append(entries, e)
		}
	}
	return entries
}

// period returns the period of a limit that has an instant.
func period(l *store.Limit, t int64) (begin, end int64) {
	if c := l.Calendar; c != nil {
		n := 1
		for n < len(c)-1 && t >= c[n] {
			n++
		}
		return c[n-1], c[n]
	}
	length := l.Window.Microseconds()
	begin = t - t%length
	if begin > t { // before the epoch
		begin -= length
	}
	return begin, begin + length
}

// partOf returns units*part/whole, rounded up.
func partOf(units int, part, whole int64) int {
	product := new(big.Int).Mul(big.NewInt(int64(units)), big.NewInt(part))
	product.Add(product, big.NewInt(whole-1))
	return int(product.Div(product, big.NewInt(whole)).Int64())
}

// wait returns how long it takes until so many units are used or fewer: the instant is found by trying later and later
// ones, and then halving the distance to the one before. It is 0 if they never are, or are now.
func (g *log) wait(l *store.Limit, now int64, used int) time.Duration {
	now = instant(l, now)
	if used < 0 || g.used(l, now) <= used {
		return 0
	}
	if l.Algorithm == store.SlidingLog { // here the instants are known
		left := g.used(l, now)
		for _, e := range g.after(now - l.Window.Microseconds()) {
			if left -= e.units; left <= used {
				return time.Duration(e.at-now)*time.Microsecond + l.Window
			}
		}
	}
	late := int64(1)
	for g.usedLater(l, now+late) > used {
		late *= 2
	}
	for early := late / 2; early+1 < late; {
		if middle := early + (late-early)/2; g.usedLater(l, now+middle) > used {
			early = middle
		} else {
			late = middle
		}
	}
	return time.Duration(late) * time.Microsecond
}

// usedLater is used at an instant that may be beyond a calendar, when nothing is used.
func (g *log) usedLater(l *store.Limit, t int64) int {
	if l.Calendar != nil && t >= l.Calendar[3] {
		return 0
	}
	return g.used(l, t)
}

// Settle implements [store.Settler].
func (s *Store) Settle(_ context.Context, m store.Settlement) error {
	return s.on(&m.Key, m.Limit, func(g *log) {
		n := g.find(m.ID)
		if n < 0 {
			return
		}
		if l := m.Limit; l.Algorithm == store.TokenBucket {
			e, now := g.entries[n], 1000*s.now
			change := int64(max(min(m.Cost-e.units, l.Quota), -l.Quota)) * l.Interval()
			rest := max(e.from+int64(min(e.units, l.Quota))*l.Interval()-now, 0) // the others have come back already
			g.full = min(max(g.full, now)+max(change, -rest), now+int64(l.Quota)*l.Interval())
		}
		g.settle(n, m.Cost)
	})
}

func (g *log) find(id uint64) int {
	return slices.IndexFunc(g.entries, func(e entry) bool { return e.id == id })
}

// settle changes the units of an entry. Of an algorithm that counts, it can be settled again from 0.
func (g *log) settle(n, units int) {
	g.entries = slices.Clone(g.entries)
	g.entries[n].units = units
}

// Merge implements [store.Merger].
func (s *Store) Merge(_ context.Context, m store.MergeRequest) error {
	return s.on(&m.Key, m.Limit, func(g *log) {
		var more []entry
		for _, e := range m.Entries {
			n := g.find(e.ID)
			switch {
			case n >= 0:
				g.settle(n, e.Cost)
			case e.Age < m.Limit.Window:
				more = append(more, entry{id: e.ID, at: s.now - e.Age.Microseconds(), units: e.Cost})
			}
		}
		g.insert(more...)
	})
}

// Renew implements [store.Renewer].
func (s *Store) Renew(_ context.Context, r store.Renewal) error {
	return s.on(&r.Key, r.Limit, func(g *log) {
		for _, id := range r.IDs {
			if n := g.find(id); n >= 0 {
				g.entries = slices.Concat(g.entries[:n], g.entries[n+1:])
			}
			g.insert(entry{id: id, at: s.now, units: 1})
		}
	})
}

// Log implements [store.Lister].
func (s *Store) Log(_ context.Context, key store.Key, l *store.Limit) (all []store.Entry, err error) {
	err = s.on(&key, l, func(g *log) {
		for _, e := range g.entries {
			all = append(all, store.Entry{At: time.UnixMicro(e.at), Cost: e.units})
		}
	})
	return all, err
}

// Reset implements [store.Store].
func (s *Store) Reset(_ context.Context, key store.Key, limits []*store.Limit, young time.Duration) (err error) {
	for _, l := range limits {
		err = cmp.Or(err, s.on(&key, l, func(g *log) {
			kept := g.after(s.now - young.Microseconds())
			*g = log{byID: g.byID}
			if l.Algorithm == store.SlidingLog {
				g.entries = kept
			}
		}))
	}
	return err
}

// on calls f with a log. Entries without units leave it.
func (s *Store) on(key *store.Key, l *store.Limit, f func(*log)) error {
	if err := key.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	g := s.log(key, l)
	f(g)
	if l.Algorithm == store.SlidingLog {
		g.entries = slices.DeleteFunc(slices.Clone(g.entries), func(e entry) bool { return e.units == 0 })
	}
	return nil
}
