package coretest

import (
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// visible returns the exported fields of a decision.
func visible(d core.Decision) core.Decision {
	v := core.Decision{Allowed: d.Allowed, Remaining: d.Remaining, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter,
		Used: d.Used, Violated: d.Violated, Banned: d.Banned, Granted: d.Granted}
	if len(v.Violated) == 0 {
		v.Violated = nil
	}
	return v
}

// expect returns the decision for an answer of the store.
func expect(limits core.Limits, cost int, mode store.Mode, a store.Answer) core.Decision {
	d := core.Decision{Allowed: a.Allowed, RetryAfter: a.Retry}
	charged := cost
	if mode == store.ModeUpTo { // which asks for one unit
		charged, cost = a.Granted, 1
	}
	never, longest := false, 0
	for i, l := range limits {
		never = never || cost > l.Quota
		if l.Window > limits[longest].Window {
			longest = i
		}
	}
	if mode == store.ModePeek || !a.Allowed && (mode != store.ModeChargeDenied || never) {
		charged = 0
	}
	if a.Allowed {
		d.Granted = charged
	}
	least, left := -1, 0
	for i, l := range limits {
		denies := !a.Allowed && a.State[i].Used+cost > l.Quota
		if denies {
			d.Violated = append(d.Violated, l.Name)
		}
		if r := max(0, l.Quota-a.State[i].Used-charged); (a.Allowed || denies) && (least < 0 || r < left) {
			least, left = i, r
		}
	}
	d.Remaining, d.Used, d.ResetAfter = left, a.State[longest].Used, a.State[least].Reset
	return d
}

// banned returns the decision of a ban that ends after left.
func banned(left time.Duration, used int) core.Decision {
	return core.Decision{
		RetryAfter: left, ResetAfter: left, Violated: []string{"ban"}, Banned: true, Used: used,
	}
}
