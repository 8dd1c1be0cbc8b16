package memory

import (
	"time"

	"github.com/sashlimit/sash/core/internal/slide"
	"github.com/sashlimit/sash/core/store"
)

// decide answers a take at instant now into a, which must be zero. It adds an entry to the log, with that ID, if the
// take is charged in this mode. It returns the ID of the entry, which the log assigns if id is 0, or 0 if it adds none.
// A limit's window is (now-Window, now].
func decide(
	log *slide.Log, now int64, id uint64, p *store.Plan, asked int, mode store.Mode, a *store.Answer,
) uint64 {
	cost, mode := p.Counted(asked, mode)
	for i := range p.Limits {
		a.State[i].Used, a.State[i].Reset = log.View(now, p.Limits[i].Window)
	}
	p.Judge(a, cost, mode)
	units := cost // those that are added, where cost must fit
	if mode == store.ModeUpTo {
		p.Grant(a, asked)
		if cost = 1; !p.Slots {
			units = a.Granted
		}
	}
	if p.Shadow > 0 {
		a.Shadow = retryAfter(log, now, cost, p.Shadows())
	}
	switch {
	case mode == store.ModeRecord:
		id = log.Add(now, id, cost)
		log.Trim(max(p.Largest(), store.MaxRecorded))
	case a.Allowed && mode != store.ModePeek:
		if id = log.Add(now, id, units); len(p.Limits) == p.Shadow {
			log.Trim(store.MaxRecorded)
		}
	case !a.Allowed && mode == store.ModeChargeDenied && !p.NeverFits(cost):
		id = log.Add(now, id, cost)
		log.Trim(p.Bound)
		a.Retry = retryAfter(log, now, cost, p.Deciding())
	default:
		if !a.Allowed {
			a.Retry = retryAfter(log, now, cost, p.Deciding())
		}
		return 0
	}
	for i := range p.Limits {
		if a.State[i].Used == 0 {
			a.State[i].Reset = p.Limits[i].Window
		} else if mode != store.ModeCharge { // the oldest unit may have been trimmed
			_, a.State[i].Reset = log.View(now, p.Limits[i].Window)
		}
	}
	return id
}

// retryAfter returns how long it takes until all limits admit cost units. It returns 0 if they do now, or if a quota is
// smaller than cost.
func retryAfter(log *slide.Log, now int64, cost int, limits []store.Limit) (wait time.Duration) {
	for i := range limits {
		limit := &limits[i]
		if cost > limit.Quota {
			return 0
		}
		wait = max(wait, log.Wait(now, limit.Window, limit.Quota, cost))
	}
	return wait
}
