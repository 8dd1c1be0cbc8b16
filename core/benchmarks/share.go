package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"
)

const sharedQuota = 10_000 // of the processes that share one, in any second

// share measures how exactly several processes share a quota when they are asked for less, for all, and for more than
// that. The run fails if one that should be exact was above it.
func (r *run) share() {
	over := r.table("leases-over", "Above the quota in the fullest window, %", "")
	admitted := r.table("leases-admitted", "Admitted, % of what an exact limiter admits", "")
	denied := r.table("leases-denied", "Denied although the window had room, % of all requests", "")
	longest := r.table("leases-longest",
		"The longest time for which a process denied although there was room, ms", "")
	s := r.server()
	lim := limit{quota: sharedQuota, window: time.Second}
	for _, percent := range []int{90, 100, 150} {
		for _, n := range []int{1, 3, 8} {
			column := fmt.Sprintf("%d %% by %d", percent, n)
			r.say("processes share a quota, %s", column)
			for _, c := range sharing(s.rdb) {
				s.flush()
				mean := lim.window * 100 / time.Duration(lim.quota*percent)
				j := job{
					Addr: s.Addr(), Limiter: c.name, Quota: lim.quota, Window: lim.window, Workers: 64,
					Span: r.span * 25 / 4, Mean: mean,
				}
				calls, err := j.together(n)
				if err != nil {
					over.row(c).fault(column, err)
					continue
				}
				u := lim.judge(calls)
				over.row(c).add(column, 100*float64(u.over)/float64(lim.quota))
				admitted.row(c).add(column, 100*float64(u.admitted)/float64(u.ideal))
				denied.row(c).add(column, 100*float64(u.denied)/float64(len(calls)))
				longest.row(c).add(column, u.longest.Seconds()*1e3)
				if c.kind == exact && u.over > 0 {
					r.err = errors.Join(r.err, fmt.Errorf("%s, %s: %d above the quota", c.name, column, u.over))
				}
			}
		}
	}
}

// call is a check and its answer.
type call struct {
	Asked    int64 `json:"asked"` // in ns since 1970, as is the other
	Answered int64 `json:"answered"`
	Allowed  bool  `json:"allowed"`
	Process  int   `json:"process"`
}

// shared is how exactly processes have shared a quota.
type shared struct {
	over     int // units above it in the fullest window
	admitted int
	ideal    int // units that an exact limiter admits of the same requests
	denied   int // requests, although the window had room
	longest  time.Duration
}

// judge scores calls of several processes. A unit is admitted at some instant between the question and the answer. It
// is in a window if both are, so none is called too full that is not. A window has room for a request if it has room
// even with all units of which one of the two is in it.
func (l limit) judge(calls []call) (s shared) {
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.Asked, b.Asked) })
	w := l.window.Nanoseconds()
	var asked, answered, exactly []int64 // of the units that were admitted
	for _, c := range calls {
		if c.Allowed {
			asked, answered = append(asked, c.Asked), append(answered, c.Answered)
		}
		if n := len(exactly); n < l.quota || exactly[n-l.quota] <= c.Asked-w {
			exactly = append(exactly, c.Asked)
		}
	}
	slices.Sort(answered)
	s.admitted, s.ideal = len(asked), len(exactly)
	before := func(instants []int64, end int64) int {
		return sort.Search(len(instants), func(i int) bool { return instants[i] >= end })
	}
	for i, begin := range asked {
		s.over = max(s.over, before(answered, begin+w)-i-l.quota)
	}
	since := make(map[int]int64) // a process denies although there is room
	for _, c := range calls {
		room := !c.Allowed && before(asked, c.Answered+1)-before(answered, c.Asked-w+1) < l.quota
		if !room {
			delete(since, c.Process)
			continue
		}
		s.denied++
		if _, ok := since[c.Process]; !ok {
			since[c.Process] = c.Asked
		}
		s.longest = max(s.longest, time.Duration(c.Answered-since[c.Process]))
	}
	return s
}
