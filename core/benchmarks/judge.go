package main

import "time"

// asked is a request of a trace, and the answer to it.
type asked struct {
	at      time.Duration
	allowed bool
}

// score says where answers differ from those of an exact limiter.
type score struct {
	over   int             // units above the quota in the fullest window; 0 if none was above it
	denied []time.Duration // when requests were denied although their window had room
}

func (s score) exact() bool { return s.over == 0 && len(s.denied) == 0 }

// judge scores the answers to requests, which are in the order of asking. A request's window is the one that ends with
// it, and holds what this limiter has admitted: one that has admitted too much may deny until its window has room
// again. No window is fuller than the one that ends with its latest admission, so only those are looked at.
//
// Each window is counted from scratch, without any code of the limiters.
func judge(quota int, window time.Duration, all []asked) (s score) {
	for i, r := range all {
		used := held(all[:i], r.at, window)
		switch {
		case r.allowed:
			s.over = max(s.over, used+1-quota)
		case used < quota:
			s.denied = append(s.denied, r.at)
		}
	}
	return s
}

// held is how many were admitted in the window (end-window, end]: what is exactly one window old has left.
func held(all []asked, end, window time.Duration) (n int) {
	for _, r := range all {
		if r.allowed && end-window < r.at && r.at <= end {
			n++
		}
	}
	return n
}
