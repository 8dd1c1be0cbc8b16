package core

import (
	"slices"
	"time"

	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

const banSteps = maxLimits - 1

// ban uses two more logs of the store, so that stores need no support for bans. In the log of bans, the n-th ban is an
// entry of 2^(n-1) units, and the limits form a ladder: 1 unit in first, 2 in twice first, 4 in four times first. So an
// entry fills the window of its own step and of the steps below it, and older entries together are too few to fill it.
type ban struct {
	limit  plan.Limit // of denials
	tries  *store.Plan
	ladder *store.Plan
	begin  [banSteps]*store.Plan // the ladder for an entry of 2^n units: each admits that where the ladder admits 1
	first  time.Duration

	denials, bans *store.Namespace
}

// newBan returns the plans of a ban, or what is wrong.
func newBan(denials int, within, first time.Duration) (*ban, fault) {
	tries := Limit{Quota: denials, Window: within}
	if denials < 1 || denials > MaxQuota {
		return nil, fault{"the number of denials is out of range", remedyQuota}
	}
	if wrong := tries.fault(); wrong != (fault{}) {
		return nil, wrong
	}
	most := (MaxWindow >> banSteps).Truncate(time.Microsecond)
	if first < MinWindow || first > most || first%time.Microsecond != 0 {
		return nil, fault{
			"the length of the first ban is out of range",
			"choose " + MinWindow.String() + " to " + most.String() + ", in whole microseconds",
		}
	}
	var ladder []plan.Limit
	for i := range banSteps {
		ladder = append(ladder, plan.Limit{Quota: 1 << i, Window: first << i})
	}
	// The last limit never denies. Its window tells for how long bans are remembered.
	ladder = append(ladder, plan.Limit{Quota: 1 << (2 * banSteps), Window: first << banSteps})
	b := &ban{
		limit: tries.compiled(), tries: plan.Stored(tries.compiled()), ladder: plan.Stored(ladder...), first: first,
	}
	for step := range b.begin {
		begin := slices.Clone(ladder)
		for i := range begin {
			begin[i].Quota += 1<<step - 1
		}
		b.begin[step] = plan.Stored(begin...)
	}
	return b, fault{}
}

// forPolicy returns a copy with namespaces for the limiter's policy. No policy can have their names, because of the
// colon.
func (b *ban) forPolicy(name string, secret []byte) *ban {
	if b == nil {
		return nil
	}
	named := *b
	named.denials = store.NewNamespace(name+":d", secret)
	named.bans = store.NewNamespace(name+":b", secret)
	return &named
}
