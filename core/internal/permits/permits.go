// Package permits knows the permits that requests in flight hold, and renews them until they are released.
package permits

import (
	"context"
	"log/slog"
	"sync"
	"time"

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

const (
	renewals    = 3           // of a permit within its lease
	ticks       = 12          // within a lease
	longestTick = time.Second // so that renewals which have failed are repeated soon
	renewedBy   = 32          // logs at the same time
	watchAfter  = 10          // leases
)

// Set is the permits that are held. A timer ticks while there are any. It is safe for concurrent use.
type Set struct {
	logs   Logs
	freed  func(*store.Key)
	ctx    context.Context //nolint:containedctx // of renewals; Close ends it
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	held   map[logKey]*log
	timer  *time.Timer // nil while no permit is held
	timers int         // started so far
	closed bool
}

// logKey is a comparable name of a log.
type logKey struct {
	namespace string
	identity  store.Identity
	log       string
}

func logKeyOf(p *Permit) logKey { return logKey{p.Key.Namespace.Name(), p.Key.Identity, p.Limit.Log} }

// log is the permits that are held in one log.
type log struct {
	permits  map[*Permit]struct{}
	lease    time.Duration
	due      time.Time // when they are renewed next
	renewing bool
	released []*Permit // while they are renewed
}

// New makes an empty set of permits in logs. Freed is called with the key of a permit that was given back later than
// Release has returned, because a renewal had added it to its log again.
func New(logs Logs, freed func(*store.Key)) *Set {
	s := &Set{logs: logs, freed: freed, held: make(map[logKey]*log)}
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
		l := s.addOne(p)
		if len(l.permits) <= p.Limit.Quota || p.Limit.Unlimited || s.closed {
			continue
		}
		l.due = time.Time{}
		p.Taken = len(l.permits) - 1
		for j := range i + 1 {
			s.remove(&h.Permits[j])
		}
		return false
	}
	return true
}

func (s *Set) addOne(p *Permit) *log {
	key := logKeyOf(p)
	l := s.held[key]
	if l == nil {
		l = &log{permits: make(map[*Permit]struct{}), lease: p.Limit.Window}
		l.renewedAt(p.since)
		s.held[key] = l
	}
	l.permits[p], p.log = struct{}{}, l
	if p.Degraded {
		l.due = time.Time{} // the store does not have it
	}
	if s.timer == nil || len(l.permits) == 1 { // its lease may be shorter than the others
		s.start(l.lease)
	}
	return l
}

// renewedAt sets when the permits are renewed next, before the tick that would be too late.
func (l *log) renewedAt(now time.Time) { l.due = now.Add(l.lease/renewals - tickOf(l.lease)) }

func tickOf(lease time.Duration) time.Duration { return min(lease/ticks, longestTick) }

// start has a tick come. A timer is used once, because one that was made in a testing/synctest bubble must not be used
// outside of it.
func (s *Set) start(lease time.Duration) {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.closed {
		return
	}
	for _, l := range s.held {
		lease = min(lease, l.lease)
	}
	s.timers++
	number := s.timers
	s.timer = time.AfterFunc(tickOf(lease), func() { s.tick(number) })
}

func (s *Set) remove(p *Permit) {
	l := p.log
	if l == nil {
		return
	}
	delete(l.permits, p)
	p.log = nil
	if l.renewing && p.Renewed {
		l.released = append(l.released, p)
	}
	if len(l.permits) > 0 {
		return
	}
	delete(s.held, logKeyOf(p))
	if len(s.held) == 0 && s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// Hasten renews all permits now.
func (s *Set) Hasten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.held {
		l.due = time.Time{}
	}
	if s.timer != nil {
		s.start(0)
	}
}

// tick renews what is due. It does nothing if the timer was replaced meanwhile.
func (s *Set) tick(timer int) {
	s.mu.Lock()
	var due []*log
	if s.timers == timer && s.timer != nil {
		s.drop()
		for _, l := range s.held {
			if !l.renewing && !time.Now().Before(l.due) {
				l.renewing = true
				due = append(due, l)
			}
		}
	}
	if s.timers == timer && s.timer != nil { // not all were dropped
		s.start(longestTick * ticks)
		s.work.Add(1)
		defer s.work.Done()
	}
	s.mu.Unlock()
	places := make(chan struct{}, renewedBy)
	var all sync.WaitGroup
	for _, l := range due {
		places <- struct{}{}
		all.Go(func() {
			s.renew(l)
			<-places
		})
	}
	all.Wait()
}

// renew renews the permits of a log. Those that are released meanwhile are given back once more, since the renewal may
// have added them to the log after that.
func (s *Set) renew(l *log) {
	var asked store.Renewal
	s.mu.Lock()
	for p := range l.permits {
		asked.Key, asked.Limit = p.Key, p.Limit
		asked.IDs = append(asked.IDs, p.ID)
		p.Renewed = true
	}
	s.mu.Unlock()
	if len(asked.IDs) == 0 {
		return // the log is not held any more
	}
	err := s.logs.Renew(s.ctx, &asked)
	s.mu.Lock()
	released := l.released
	l.renewing, l.released = false, nil
	if l.due = (time.Time{}); !store.IsOutage(err) {
		l.renewedAt(time.Now())
	}
	s.mu.Unlock()
	for _, p := range released {
		s.logs.Release(s.ctx, p) //nolint:errcheck // the lease ends the permit
		s.freed(&p.Key)
	}
}

// drop removes the permits that nobody can release, and watches those that have been held for long.
func (s *Set) drop() {
	policy, dropped := "", 0
	for _, l := range s.held {
		for p := range l.permits {
			if p.held != nil && p.Age() >= watchAfter*l.lease {
				p.held.watch()
			}
			if p.forgotten {
				s.remove(p)
				policy = p.Key.Namespace.Policy()
				dropped++
			}
		}
	}
	if dropped > 0 {
		slog.Default().LogAttrs(s.ctx, slog.LevelWarn,
			"sash: requests in flight were not released, so their permits end with their lease",
			slog.String("policy", policy), slog.Int("permits", dropped),
			slog.String("remedy", "defer Decision.Release after each Allow, AllowN, AllowAtMost and Wait"))
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
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
}
