package definition

import (
	"fmt"
	"time"

	"github.com/sashlimit/sash/core/store"
)

const (
	shortestWindow = time.Millisecond
	longestWindow  = 365 * 24 * time.Hour
)

// Limits returns a limit of each algorithm, which admits so many units at once and in a window.
func Limits(quota int, window time.Duration) (all []*store.Limit) {
	for _, a := range store.Algorithms() {
		l := &store.Limit{Log: fmt.Sprintf("%v.%d", window, a), Quota: quota, Window: window, Algorithm: a}
		if a == store.TokenBucket {
			l.Refill = quota
		}
		all = append(all, l)
	}
	return all
}

// addLogs adds the logs of a key.
func (tr *trace) addLogs(key int) {
	logs := 1
	if tr.abilities.several {
		logs += tr.r.IntN(tr.kind.logs)
	}
	for n := range logs {
		s, a := &subject{key: key}, store.SlidingLog
		if len(tr.abilities.algorithms) > 0 && tr.r.IntN(5) == 0 {
			a = anyOf(tr.r, tr.abilities.algorithms...)
		}
		l := tr.limit(a, n)
		if a == store.SlidingLog && tr.abilities.permits && tr.r.IntN(6) == 0 {
			l.Permits, l.Quota, l.Log = true, 1+tr.r.IntN(5), l.Log+".permits"
		}
		s.limits = append(s.limits, l)
		for tr.r.IntN(4) == 0 { // other quotas, as of overrides
			other := *l
			if a != store.TokenBucket { // a bucket of another size is another one
				other.Quota = min(1+tr.r.IntN(2*min(l.Quota, store.MaxQuota/2)), store.MaxQuota)
			}
			other.Unlimited = !l.Permits && tr.r.IntN(4) == 0
			s.limits = append(s.limits, &other)
		}
		tr.logs = append(tr.logs, s)
	}
}

// limit returns a limit of the nth log of a key.
func (tr *trace) limit(a store.Algorithm, n int) *store.Limit {
	l := &store.Limit{Quota: 1 + tr.r.IntN(9), Window: tr.window(), Algorithm: a}
	switch tr.r.IntN(8) {
	case 0, 1:
		l.Quota = 1 + tr.r.IntN(200)
	case 2:
		l.Quota = store.MaxQuota - tr.r.IntN(9)
	}
	switch {
	case a == store.TokenBucket:
		l.Refill = 1 + tr.r.IntN(12)
		if tr.r.IntN(3) == 0 {
			l.Refill = 1 + tr.r.IntN(store.MaxQuota)
		}
		l.Quota = int(min(int64(l.Quota), max(1, int64(longestWindow)/l.Interval())))
	case a == store.FixedWindow && tr.r.IntN(2) == 0:
		l.Window = max(l.Window, time.Minute)
		l.Calendar = tr.calendar(tr.want.now, l.Window)
	}
	l.Log = fmt.Sprintf("%d.%v", n, l.Window)
	if a != store.SlidingLog {
		l.Log += fmt.Sprintf(".%d", a)
	}
	return l
}

func (tr *trace) window() time.Duration {
	windows := []time.Duration{
		shortestWindow, 7 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour,
	}
	if n := tr.r.IntN(2 * len(windows)); n < len(windows) {
		return windows[n]
	}
	if tr.r.IntN(8) == 0 {
		return longestWindow
	}
	return time.Duration(1000+tr.r.IntN(20_000_000)) * time.Microsecond
}

// calendar returns one of which an instant is in the first or the second period.
func (tr *trace) calendar(now int64, longest time.Duration) *store.Calendar {
	const minute = int64(time.Minute / time.Microsecond)
	length := func() int64 { return minute * (1 + tr.r.Int64N(longest.Microseconds()/minute)) }
	first := length()
	begin := now - tr.r.Int64N(2*first)
	begin -= begin % minute
	c := store.Calendar{begin}
	for i := range c[1:] {
		c[i+1] = c[i] + length()
	}
	if now >= c[2] { // a short second period has passed
		c[2] = now - now%minute + minute
		c[3] = c[2] + length()
	}
	return &c
}

// current returns a limit with the calendar of another limiter at the instant of the next step, whose clock may be a
// period behind or ahead. It is the one that the log's limits have from now on.
func (tr *trace) current(l *store.Limit) *store.Limit {
	c, now := l.Calendar, tr.nextAt
	if c == nil || now < c[2] || now < c[3] && tr.r.IntN(2) == 0 {
		return l
	}
	later := *c
	if now-later[2] > 4*l.Window.Microseconds() { // nothing was recorded since
		later = *tr.calendar(now, l.Window)
	}
	for now >= later[2] {
		length := 60e6 * (1 + tr.r.Int64N(l.Window.Microseconds()/60e6))
		later = store.Calendar{later[1], later[2], later[3], later[3] + length}
	}
	for _, s := range tr.logs {
		for i, other := range s.limits {
			if other.Calendar == c {
				moved := *other
				moved.Calendar = &later
				if s.limits[i] = &moved; other == l {
					l = &moved
				}
			}
		}
	}
	return l
}
