package engine

import (
	"context"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/internal/spread"
	"github.com/sashlimit/sash/core/store"
)

// Spread has denied requests come back one after the other: see [Engine.spreadOut].
type Spread struct {
	Most time.Duration // the longest wait that it makes; 0: twenty windows of each limit
}

const (
	spreadWindows = 20
	relist        = time.Second // at least, between two listings of a log
	mostSpread    = 1024        // logs whose waits are spread
	retaken       = 64          // a unit is taken again so much of a window later, since clients need some time to come
	mostInSpread  = 1000        // entries of a log that are listed; of longer ones, units are taken to leave evenly
)

// spreadOut makes the wait of a request that was denied one that no other request was told: until the first unit of the
// log after the last one that was handed out. Of several limits that have denied, the longest wait counts.
func (e *Engine) spreadOut(ctx context.Context, r *Result) {
	if r.Allowed || r.Cause != ByLimits || r.Retry == 0 || r.Mode == store.ModeChargeDenied {
		return
	}
	for limit := range r.Set.Limits {
		if r.State(limit).Denies && !r.Set.Limits[limit].InFlight {
			t, _ := r.of(limit)
			id := logID{t.Key.Namespace, t.Key.Identity, t.Limit.Log}
			s, ok := e.spreads.find(id)
			if !ok {
				id.identity = id.identity.Clone()
				s = e.spreads.get(id, func() *spreadLog { return new(spreadLog) })
			}
			r.Retry = max(r.Retry, s.wait(ctx, r, limit))
		}
	}
}

// spreadLog is what was handed out of a log.
type spreadLog struct {
	mu       sync.Mutex
	first    int           // the cost of the first request that waits, which needed no schedule; 0: there was none
	last     time.Duration // since the process started: the latest instant that was handed out
	schedule *spread.Schedule
	next     int64 // the first unit of the schedule that was not handed out
	quota    int   // of the schedule
	isListed bool  // the schedule was not computed, but is that of the log's entries
	made     time.Duration
}

// wait returns how long a request that a limit has denied is to wait.
func (s *spreadLog) wait(ctx context.Context, r *Result, limit int) time.Duration {
	t, a := r.of(limit)
	cost := t.Cost
	if r.Mode == store.ModeAtMost {
		cost = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(processStart)
	if s.first == 0 || s.last <= now { // nobody waits
		s.first, s.last, s.schedule = cost, now+a.Retry, nil
		return a.Retry
	}
	if s.schedule == nil || s.quota != t.Limit.Quota || s.isListed && now-s.made >= relist {
		s.plan(ctx, r, limit, cost, now)
	}
	most := r.engine.config.Spread.Most
	if most == 0 {
		most = spreadWindows * lengthOf(t.Limit)
	}
	free := s.schedule.Before(now)
	s.next = max(s.next, free) + int64(cost)
	if s.schedule.At(s.next-1)-now > most {
		s.next = free + int64(cost)
	}
	s.last = s.schedule.At(s.next - 1)
	return max(a.Retry, s.last-now)
}

// plan makes a schedule. Of its units, as many are handed out as of those of the one before.
func (s *spreadLog) plan(ctx context.Context, r *Result, limit, cost int, now time.Duration) {
	t, a := r.of(limit)
	ahead := int64(s.first)
	if s.schedule != nil {
		ahead = max(0, s.next-s.schedule.Before(now))
	}
	var leave []spread.Units
	if t.Limit.Algorithm == store.SlidingLog && a.Used/cost <= mostInSpread {
		entries, _ := r.Entries(ctx, limit) // without them, units are taken to leave evenly
		for _, e := range entries {
			leave = append(leave, spread.Units{At: time.Duration(e.At.UnixNano()), N: e.Cost})
		}
	}
	quota, period := t.Limit.Quota, t.Limit.Window+t.Limit.Window/retaken
	s.isListed, s.made, s.quota = leave != nil, now, quota
	if leave == nil {
		period, quota = everyOf(t.Limit)
		leave = []spread.Units{{N: quota}}
	}
	s.schedule = spread.New(leave, quota, period)
	s.schedule.Set(int64(cost-1), now+a.Retry) // on the clock of this process
	s.next = s.schedule.Before(now) + ahead
}

// lengthOf returns how long it takes until all units of a limit were available once.
func lengthOf(l *store.Limit) time.Duration {
	switch {
	case l.Algorithm == store.TokenBucket:
		return time.Duration(l.Interval()) * time.Duration(l.Quota)
	case l.Calendar != nil:
		return time.Duration(l.Calendar[3]-l.Calendar[2]) * time.Microsecond
	}
	return l.Window
}

// everyOf returns how many units of a limit are available again at a time, and how often: all at the end of a period,
// or else one by one.
func everyOf(l *store.Limit) (period time.Duration, units int) {
	if l.Algorithm == store.FixedWindow {
		return lengthOf(l), l.Quota
	}
	return max(lengthOf(l)/time.Duration(l.Quota), 1), 1
}
