package core

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/question"
	"github.com/sashlimit/sash/core/store"
)

// Allow takes one unit of key's quota if one is left. A denial is not an error: see Allowed, or [Decision.Err]. An
// error means that the store could not answer, or that the key is empty ([ErrNoKey]).
//
// The key is the text that the limiter's key would return for a request, so that both name the same log. For [ByIP] it
// is an address, for [ByHeader] and [By] an identity, and for [First] whichever its keys accept. Under [Global] and
// [Join], and with keys of package jwtkey, the text names a separate log.
func (l *Limiter) Allow(ctx context.Context, key string) (d Decision, err error) {
	err = l.ask(ctx, key, 1, nil, l.mode, &d)
	return d, err
}

// AllowN takes cost units, all or none. A cost above a quota never fits: the decision is a denial, and the error is
// [ErrCostExceedsQuota], so that no caller waits for it.
func (l *Limiter) AllowN(ctx context.Context, key string, cost int) (d Decision, err error) {
	err = l.askN(ctx, key, cost, nil, &d)
	return d, err
}

// askN is separate so that AllowN is short enough to be inlined. Otherwise AllowN copies its Decision twice, which
// takes a tenth of its time.
func (l *Limiter) askN(ctx context.Context, key string, cost int, costs Costs, d *Decision) error {
	err := l.ask(ctx, key, cost, costs, l.mode, d)
	if err == nil && d.never() {
		err = d.Err()
	}
	return err
}

// AllowCosts takes units of several kinds, all or none: see [Limit.Of]. It takes one request where a limit counts
// requests, unless costs names them, and nothing of other units that costs does not name. The error is
// [ErrCostExceedsQuota] if a cost is above a quota, and a [ConfigError] if no limit counts a unit.
//
//	d, err := limiter.AllowCosts(ctx, "customer 7", core.Costs{"tokens": 4000})
func (l *Limiter) AllowCosts(ctx context.Context, key string, costs Costs) (d Decision, err error) {
	if costs == nil {
		costs = Costs{}
	}
	err = l.askN(ctx, key, 1, costs, &d)
	return d, err
}

// AllowAtMost takes as many units as there are, up to cost: Granted of the decision. If there is none, the decision is
// a denial, with the wait for one unit; it is not recorded, not even under [WithCountDenied]. Of several limits, the
// one with the least left decides; of several keys, all are charged the same number.
//
// A cost of more than a quota is no error, since a part of it may be granted. A cost below 1 is a [ConfigError].
func (l *Limiter) AllowAtMost(ctx context.Context, key string, cost int) (d Decision, err error) {
	err = l.ask(ctx, key, cost, nil, store.ModeUpTo, &d)
	return d, err
}

// Peek returns what would be decided about a request that takes one of each unit, and takes nothing: Remaining is what is
// left now. Where the limits count nothing but requests, it is what [Limiter.Allow] would return.
func (l *Limiter) Peek(ctx context.Context, key string) (d Decision, err error) {
	err = l.ask(ctx, key, 1, nil, store.ModePeek, &d)
	return d, err
}

// Record counts cost units and never denies. Used is how much the key has consumed in the window of the longest limit
// before, for example to order a queue so that light users go first.
//
// For each key it keeps as many units as the largest quota, and at least [store.MaxRecorded]. Used does not grow beyond
// that.
func (l *Limiter) Record(ctx context.Context, key string, cost int) (d Decision, err error) {
	err = l.ask(ctx, key, cost, nil, store.ModeRecord, &d)
	return d, err
}

// Log lists the entries in the window of the longest limit, with instants and costs, oldest first: of requests, or of
// the only other unit that the limits count. They do not identify who made the requests. A store may read a long log in
// parts: entries that leave meanwhile may be missing.
func (l *Limiter) Log(ctx context.Context, key string) ([]Entry, error) {
	var id identity
	if err := l.identityOf(key, &id); err != nil {
		return nil, err
	}
	own, window := l.policy.spaces.Own(), time.Duration(0)
	switch fixed := l.policy.fixed; {
	case fixed != nil && fixed.Counter != store.SlidingLog:
		return nil, entriesNeeded("Log", fixed.Counter)
	case fixed != nil:
		for _, log := range fixed.Logs {
			if log.Own && !log.InFlight() && log.Unit() == fixed.Unit {
				own = log.Space
			}
		}
		window = fixed.Limits[fixed.Longest].Window
	case own.Keep() == 0: // LimitBy has chosen no sliding log of requests
		var units []*plan.Space
		for space := range l.policy.spaces.Others {
			if space.Counter != store.SlidingLog {
				return nil, entriesNeeded("Log", space.Counter)
			}
			units = append(units, space)
		}
		if len(units) == 1 {
			own = units[0]
		}
	}
	if l.lister == nil {
		return nil, configError("Log", fmt.Sprintf("%T", l.store),
			"this store cannot list a log: it has no method Log (store.Lister)", otherStore)
	}
	window = cmp.Or(window, own.Keep(), MaxWindow)
	entries, err := l.lister.Log(ctx, store.Key{Namespace: own.Namespace, Identity: id}, window)
	if err != nil {
		return nil, store.Error(err)
	}
	return entries, nil
}

// ask fills in d, which must be zero. Costs are nil unless units are named.
func (l *Limiter) ask(
	ctx context.Context, key string, cost int, costs Costs, mode store.Mode, d *Decision,
) error {
	d.began, d.q.Take.Mode, d.q.Take.Cost = l.begin(), mode, cost
	pl, err := l.planOf(ctx, key, &d.q.Take.Key.Identity)
	if err == nil && costs != nil {
		err = d.setCosts(pl, costs)
	}
	if err != nil {
		return l.failed(ctx, d, err)
	}
	return l.reported(ctx, d, l.decide(ctx, nil, &l.prefixes, pl, mode != store.ModePeek, d))
}

// setCosts sets the costs of units with a name.
func (d *Decision) setCosts(pl *plan.Plan, costs Costs) error {
	if err := costs.check("AllowCosts", pl); err != nil {
		return err
	}
	if cost, named := costs.of(pl.Unit); named || pl.Unit != "" {
		d.q.Take.Cost = cost
	}
	d.q.Price(pl, costs, 0)
	return nil
}

// planOf finds the identity that key names, and returns the plan, for calls that are decided without a request.
func (l *Limiter) planOf(ctx context.Context, key string, id *identity) (*plan.Plan, error) {
	if err := l.identityOf(key, id); err != nil {
		return nil, err
	}
	if !l.asked.Load() { // reading is faster where many processors do it
		l.asked.Store(true)
	}
	return l.planFor(ctx)
}

// planFor returns the plan for calls without a request.
func (l *Limiter) planFor(ctx context.Context) (*plan.Plan, error) {
	if !l.policy.varies() {
		return l.policy.fixed, nil
	}
	if !l.policy.context {
		return nil, fmt.Errorf("sash: LimitBy takes a %v, but this call has no request: "+
			"pass LimitBy a func(context.Context) core.Limits", l.policy.callbacks[0].Type)
	}
	return l.plan(noRequest{ctx})
}

// overridden returns the plan of a call without a request, with overrides.
func (l *Limiter) overridden(ctx context.Context, pl *plan.Plan, id identity) (*plan.Plan, error) {
	d := &Decision{limiter: l, q: question.Question{Plan: pl}}
	d.q.Take.Key.Identity, d.q.Take.Mode = id, store.ModePeek
	if err := l.readKeys(ctx, nil, &l.prefixes, d); err != nil {
		return nil, err
	}
	l.applyOverrides(ctx, d)
	return d.q.Plan, nil
}

// identityOf finds the identity that key names, for calls without a request.
func (l *Limiter) identityOf(key string, id *identity) error {
	if l.choose != nil {
		return configError("key", "a text", "rules need a request, but this call has none",
			"use the middleware, or a limiter without rules")
	}
	if l.key.FromText != nil {
		if named, ok := l.key.FromText(key, &l.prefixes); ok {
			*id = named
			return nil
		}
	}
	if key == "" {
		return ErrNoKey
	}
	id.Kind, id.Text = keys.KindBy, key
	return nil
}
