package main

import (
	"context"

	"github.com/sashlimit/sash/core"
)

type customer struct {
	name string
	plan plan
}

type plan struct {
	included int // requests a month
	billed   int // requests a month that may be billed in addition
}

var (
	free, paid = plan{included: 3}, plan{included: 5, billed: 4}

	customers = map[string]customer{"key-1": {"ann", free}, "key-2": {"bob", paid}}
)

type planKey struct{}

// meter counts each request once: as one of the plan, or as one to be billed.
type meter struct{ included, billed *core.Limiter }

func newMeter(store core.Store) (m *meter, err error) {
	limits := func(quota func(plan) int) core.Policy {
		return core.LimitBy(func(ctx context.Context) core.Limits {
			p, _ := ctx.Value(planKey{}).(plan)
			return core.Limits{core.PerMonth(quota(p))}
		})
	}
	m = new(meter)
	// While Redis does not answer, nothing is served that would be counted nowhere.
	options := []core.Option{core.WithStore(store), core.WithFailure(core.FailClosed)}
	m.included, err = core.New(limits(func(p plan) int { return p.included }), core.ByText(),
		append(options, core.WithName("included"))...)
	if err != nil {
		return nil, err
	}
	m.billed, err = core.New(limits(func(p plan) int { return p.billed }), core.ByText(),
		append(options, core.WithName("billed"))...)
	return m, err
}

// allow asks for a request of the plan, and if there is none left, for one to be billed. The first denial has taken
// nothing.
func (m *meter) allow(ctx context.Context, c customer) (d core.Decision, billed bool, err error) {
	d, err = m.included.Allow(ctx, c.name)
	if err != nil || d.Allowed || c.plan.billed == 0 {
		return d, false, err
	}
	d, err = m.billed.Allow(ctx, c.name)
	return d, err == nil && d.Allowed, err
}
