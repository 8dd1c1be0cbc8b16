package core

import (
	"time"

	"github.com/sashlimit/sash/core/internal/slide"
)

// decide answers t at instant now into a, which must be zero. It adds an entry to the log, with that ID, if t is
// charged in this mode. It returns the ID of the entry, which the log assigns if id is 0, or 0 if it adds none. A
// limit's window is (now-Window, now].
func decide(log *slide.Log, now int64, id uint64, t *Take, mode Mode, a *Answer) uint64 {
	a.Allowed = true
	deciding := t.Limits[:len(t.Limits)-t.Shadow]
	largest, never := 0, false
	for i := range t.Limits {
		quota, state := t.Limits[i].Quota, &a.State[i]
		state.Used, state.Reset = log.View(now, t.Limits[i].Window)
		if i < len(deciding) {
			a.Allowed = a.Allowed && state.Used+t.Cost <= quota
			largest, never = max(largest, quota), never || t.Cost > quota
		}
	}
	if t.Shadow > 0 {
		a.Shadow = retryAfter(log, now, t.Cost, t.Limits[len(deciding):])
	}
	switch {
	case mode == ModeRecord:
		a.Allowed = true
		id = log.Add(now, id, t.Cost)
		log.Trim(max(largest, MaxRecorded))
	case a.Allowed && mode != ModePeek:
		id = log.Add(now, id, t.Cost)
	case !a.Allowed && mode == ModeChargeDenied && !never:
		id = log.Add(now, id, t.Cost)
		log.Trim(max(largest, t.Bound))
		a.Retry = retryAfter(log, now, t.Cost, deciding)
	default:
		if !a.Allowed {
			a.Retry = retryAfter(log, now, t.Cost, deciding)
		}
		return 0
	}
	for i := range t.Limits {
		if a.State[i].Used == 0 {
			a.State[i].Reset = t.Limits[i].Window
		} else if mode != ModeCharge { // the oldest unit may have been trimmed
			_, a.State[i].Reset = log.View(now, t.Limits[i].Window)
		}
	}
	return id
}

// retryAfter is how long it takes until all limits admit cost units: 0 if they do now, or if a quota is smaller.
func retryAfter(log *slide.Log, now int64, cost int, limits Limits) (wait time.Duration) {
	for i := range limits {
		limit := &limits[i]
		if cost > limit.Quota {
			return 0
		}
		wait = max(wait, log.Wait(now, limit.Window, limit.Quota, cost))
	}
	return wait
}
