// Package permits knows the permits that requests in flight hold, and renews them until they are released.
package permits

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/internal/logname"
	"github.com/sashlimit/sash/core/store"
)

// Logs are the logs that the permits are in.
type Logs interface {
	// Renew renews permits of one log, and adds those that it has lost. If the error is an outage, the Set tries again
	// soon.
	Renew(ctx context.Context, r *store.Renewal) error

	// Release gives a permit back.
	Release(ctx context.Context, p *Permit) error
}

// Permit is the entry of a take in a log of permits.
type Permit struct {
	Key      store.Key // which outlives the request
	Limit    *store.Limit
	ID       uint64
	Degraded bool // it was taken without the store
	Renewed  bool // a renewal may have added it to the store

	Taken int // set by Hold if it returns nil: how many permits of the log were held already

	forgotten bool      // nobody can release it any more
	since     time.Time // when it was held
	log       *log      // nil when it is not held
	held      *Held     // nil once it is watched
}

// Age returns how long ago the permit was taken.
func (p *Permit) Age() time.Duration { return time.Since(p.since) }

// Held is the permits of one decision.
type Held struct {
	Context context.Context //nolint:containedctx // of the request, for those who release the permits when it has ended

	Permits []Permit
	// Deferred says that the permits are not released when the handler ends, because what it has begun holds them
	// still.
	Deferred bool

	set      *Set
	mu       sync.Mutex
	released bool
}

// Release gives the permits back. It does so once, unless it fails: then they are not renewed any more, and it may be
// called again.
func (h *Held) Release(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return nil
	}
	h.set.remove(h.Permits)
	var err error
	for i := range h.Permits {
		err = errors.Join(err, h.set.logs.Release(ctx, &h.Permits[i]))
	}
	h.released = err == nil
	return err
}

const (
	renewedBy  = 32 // logs at the same time
	watchAfter = 10 // leases
)

// A log is renewed three times within its lease, and a little earlier than that. After a renewal that has failed, and
// where the store lacks a permit, it is renewed soon.
func regularly(lease time.Duration) time.Duration { return lease/3 - soon(lease) }
func soon(lease time.Duration) time.Duration      { return min(lease/12, time.Second) }

// Set is the permits that are held. It is safe for concurrent use.
type Set struct {
	logs   Logs
	freed  func(*store.Key)
	ctx    context.Context //nolint:containedctx // of renewals; Close ends it
	cancel context.CancelFunc
	places chan struct{} // of renewals
	work   sync.WaitGroup

	mu   sync.Mutex
	held map[logname.Name]*log
}

// log is the permits that are held in one log, at least one.
type log struct {
	permits  map[*Permit]struct{}
	lease    time.Duration
	timer    *time.Timer // of the next renewal
	due      time.Time   // when that is
	renewing bool
	released []*Permit // while they are renewed
}

// New makes an empty set of permits in logs. Freed is called with the key of a permit that was given back later than
// Release has returned, because a renewal had added it to its log again.
func New(logs Logs, freed func(*store.Key)) *Set {
	s := &Set{logs: logs, freed: freed, held: make(map[logname.Name]*log), places: make(chan struct{}, renewedBy)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Hold adds the permits of one decision to the set, until [Held.Release]. If requests of this process hold all permits
// of one of the logs already, that log has lost some. Then Hold gives all back, and returns nil.
func (s *Set) Hold(ctx context.Context, all []Permit) *Held {
	h := &Held{Context: ctx, Permits: all, set: s}
	if s.add(h) {
		return h
	}
	s.remove(all)
	for i := range all {
		s.logs.Release(ctx, &all[i]) //nolint:errcheck // the lease ends the permit
	}
	return nil
}

func (s *Set) add(h *Held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range h.Permits {
		p := &h.Permits[i]
		p.held, p.since = h, time.Now()
		l := s.held[logname.Of(&p.Key, p.Limit)]
		if l == nil {
			l = &log{permits: make(map[*Permit]struct{}), lease: p.Limit.Window}
			s.held[logname.Of(&p.Key, p.Limit)] = l
			s.renewIn(l, regularly(l.lease))
		}
		l.permits[p], p.log = struct{}{}, l
		lost := len(l.permits) > p.Limit.Quota && !p.Limit.Unlimited && s.ctx.Err() == nil
		if lost || p.Degraded {
			s.renewIn(l, soon(l.lease))
		}
		if lost {
			p.Taken = len(l.permits) - 1
			return false
		}
	}
	return true
}

// renewIn has a log renewed after some time, unless it is to be renewed earlier. A timer is used once, because one that
// was made in a testing/synctest bubble must not be used outside of it.
func (s *Set) renewIn(l *log, in time.Duration) {
	due := time.Now().Add(in)
	if l.timer != nil && l.timer.Stop() && l.due.Before(due) {
		due = l.due
	}
	l.due = due
	l.timer = time.AfterFunc(time.Until(due), func() { s.renew(l) })
}

func (s *Set) remove(permits []Permit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range permits {
		s.removeOne(&permits[i])
	}
}

func (s *Set) removeOne(p *Permit) {
	l := p.log
	if l == nil {
		return
	}
	delete(l.permits, p)
	p.log = nil
	if l.renewing && p.Renewed {
		l.released = append(l.released, p)
	}
	if len(l.permits) == 0 {
		delete(s.held, logname.Of(&p.Key, p.Limit))
		l.timer.Stop()
	}
}

// Hasten renews all permits now.
func (s *Set) Hasten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.held {
		s.renewIn(l, 0)
	}
}

// renew renews the permits of a log. Those that are released meanwhile are given back once more, since the renewal may
// have added them to the log after that.
func (s *Set) renew(l *log) {
	s.places <- struct{}{}
	defer func() { <-s.places }()
	r := s.begin(l)
	if r == nil {
		return
	}
	defer s.work.Done()
	err := s.logs.Renew(s.ctx, r)
	s.mu.Lock()
	released := l.released
	l.renewing, l.released = false, nil
	switch {
	case len(l.permits) == 0: // another log of that name may be held
	case store.IsOutage(err):
		s.renewIn(l, soon(l.lease))
	default:
		s.renewIn(l, regularly(l.lease))
	}
	s.mu.Unlock()
	for _, p := range released {
		s.logs.Release(s.ctx, p) //nolint:errcheck // the lease ends the permit
		s.freed(&p.Key)
	}
}

// begin returns what is to be renewed of a log, or nil.
func (s *Set) begin(l *log) *store.Renewal {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(l)
	if s.ctx.Err() != nil || l.renewing || len(l.permits) == 0 {
		return nil
	}
	l.renewing = true
	s.work.Add(1)
	r := new(store.Renewal)
	for p := range l.permits {
		r.Key, r.Limit, r.IDs = p.Key, p.Limit, append(r.IDs, p.ID)
		p.Renewed = true
	}
	return r
}

// drop removes the permits of a log that nobody can release, and watches those that have been held for long.
func (s *Set) drop(l *log) {
	policy, dropped := "", 0
	for p := range l.permits {
		if p.held != nil && p.Age() >= watchAfter*l.lease {
			p.held.watch()
		}
		if p.forgotten {
			s.removeOne(p)
			policy = p.Key.Namespace.Policy()
			dropped++
		}
	}
	if dropped > 0 {
		slog.Default().LogAttrs(s.ctx, slog.LevelWarn,
			"sash: requests in flight were not released, so their permits end with their lease",
			slog.String("policy", policy), slog.Int("permits", dropped),
			slog.String("remedy", "defer Decision.Release after each Allow, AllowN, AllowAtMost and Wait"))
	}
}

// watch has the permits forgotten when the garbage collector has found that nobody can release them. Until then the set
// refers to them alone. Most permits are released long before, so they cost the garbage collector nothing.
func (h *Held) watch() {
	for i := range h.Permits {
		h.Permits[i].held = nil
	}
	runtime.AddCleanup(h, h.set.forget, h.Permits)
}

// forget notes that nobody can release permits. It must not use a timer, which a testing/synctest bubble may have made.
func (s *Set) forget(permits []Permit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range permits {
		permits[i].forgotten = true
	}
}

// Len returns how many permits are held.
func (s *Set) Len() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.held {
		n += len(l.permits)
	}
	return n
}

// Close ends the renewal for good. Permits that are held end with their lease.
func (s *Set) Close() {
	s.mu.Lock()
	s.cancel()
	for _, l := range s.held {
		l.timer.Stop()
	}
	s.mu.Unlock()
	s.work.Wait()
}
