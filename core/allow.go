package core

import (
	"context"
	"strconv"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/store"
)

// Allow takes one unit of key's quota if one is left. A denial is not an error: see Allowed, or [Decision.Err]. An
// error means that the store could not answer, or that the key is empty ([ErrNoKey]).
//
// The key is the text that the limiter's key would return for a request, so that both name the same log. For [ByIP] it
// is an address, for [ByHeader], [By] and [ByText] an identity, and for [First] whichever its keys accept. Under
// [Global] it is empty. What no text names, as with [Join], is a [ConfigError].
func (l *Limiter) Allow(ctx context.Context, key string) (d Decision, err error) {
	err = l.ask(ctx, key, gate.Call{Asked: gate.Asked{Cost: 1, Mode: l.gate.Mode}}, &d)
	return d, err
}

// AllowN takes cost units, all or none. A cost above a quota never fits: the decision is a denial, and the error is
// [ErrCostExceedsQuota], so that no caller waits for it.
func (l *Limiter) AllowN(ctx context.Context, key string, cost int) (d Decision, err error) {
	err = l.askN(ctx, key, gate.Call{Asked: gate.Asked{Cost: cost, Mode: l.gate.Mode}}, &d)
	return d, err
}

// askN is separate so that AllowN is short enough to be inlined. Otherwise AllowN copies its Decision twice, which
// takes a tenth of its time.
func (l *Limiter) askN(ctx context.Context, key string, c gate.Call, d *Decision) error {
	err := l.ask(ctx, key, c, d)
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
	c := gate.Call{Asked: gate.Asked{Cost: 1, Mode: l.gate.Mode}, Costs: costs, Named: true}
	err = l.askN(ctx, key, c, &d)
	return d, err
}

// AllowAtMost takes as many units as there are, up to cost: Granted of the decision. If there is none, the decision is
// a denial, with the wait for one unit; it is not recorded, not even under [WithCountDenied]. Of several limits, the
// one with the least left decides; of several keys, all are charged the same number.
//
// A cost of more than a quota is no error, since a part of it may be granted. A cost below 1 is a [ConfigError].
func (l *Limiter) AllowAtMost(ctx context.Context, key string, cost int) (d Decision, err error) {
	err = l.ask(ctx, key, gate.Call{Asked: gate.Asked{Cost: cost, Mode: store.ModeAtMost}}, &d)
	return d, err
}

// Peek returns what [Limiter.Allow] would decide, of one unit of each kind, and takes nothing: Remaining is what is
// left now.
func (l *Limiter) Peek(ctx context.Context, key string) (d Decision, err error) {
	err = l.ask(ctx, key, gate.Call{Asked: gate.Asked{Cost: 1, Mode: store.ModePeek}, Named: true, Rest: 1}, &d)
	return d, err
}

// Record counts cost units and never denies. Used is how much the key has consumed in the window of the longest limit
// before, for example to order a queue so that light users go first.
//
// For each limit it keeps as many units as the quota, and at least [store.MaxRecorded]. Used does not grow beyond that.
func (l *Limiter) Record(ctx context.Context, key string, cost int) (d Decision, err error) {
	err = l.ask(ctx, key, gate.Call{Asked: gate.Asked{Cost: cost, Mode: store.ModeRecord}}, &d)
	return d, err
}

// Log lists the entries in the window of the longest limit, with instants and costs, oldest first: of requests, or of
// the only other unit that the limits count. They do not identify who made the requests. A store may read a long log in
// parts: entries that leave meanwhile may be missing. Limits of [LimitBy] are those of the call's context.
func (l *Limiter) Log(ctx context.Context, key string) ([]Entry, error) {
	var id identity
	if err := l.identify(&id, "key", key); err != nil {
		return nil, err
	}
	set, err := l.gate.Sets(ctx)
	if err != nil {
		return nil, err
	}
	if err := set.NoUnnamed("Log"); err != nil {
		return nil, err
	}
	if set.Longest < 0 || !set.Keys[set.Limits[set.Longest].Key].Own {
		return nil, configError("Log", key, "no limit of the key has a log", "list keys of limits with windows")
	}
	return l.engine.Log(ctx, &set.Limits[set.Longest], id)
}

// ask fills in d, which must be zero. While a call waits, it is the only Decision on the stack, because the stack is
// most of the memory that a waiter takes.
func (l *Limiter) ask(ctx context.Context, key string, c gate.Call, d *Decision) error {
	c.Began = l.begin()
	err := l.call(ctx, key, &c, &d.result)
	if d.result.Set == nil {
		return l.failed(ctx, &c.Asked, d, err)
	}
	l.decide(d)
	l.report(ctx, &c.Asked, d)
	return err
}

func (l *Limiter) call(ctx context.Context, key string, c *gate.Call, r *engine.Result) error {
	if err := l.identify(&c.Own[0], "key", key); err != nil {
		return err
	}
	set, err := l.gate.Sets(ctx)
	if err != nil {
		return err
	}
	if err = l.checkCost(set, c); err != nil {
		return err
	}
	return l.gate.Call(ctx, set, c, r)
}

// checkCost returns an error for costs that a call cannot have.
func (l *Limiter) checkCost(set *engine.Set, c *gate.Call) error {
	switch {
	case c.Named && c.Costs == nil: // Peek asks for a unit of each kind
		return nil
	case c.Named:
		return Costs(c.Costs).check("AllowCosts", set, l.gate.Shadow)
	case c.Cost < 1:
		return costBelow1(c.Cost)
	}
	return set.NoUnnamed("cost")
}

func costBelow1(cost int) error {
	return configError("cost", strconv.Itoa(cost), "a request costs at least 1 unit",
		"use Peek for requests that cost nothing")
}

// identify sets the identity that a text names, for calls without a request.
func (l *Limiter) identify(id *identity, call, key string) error {
	if l.gate.Rules != nil {
		return configError(call, "a text", "rules need a request, but this call has none",
			"use the middleware, or a limiter without rules")
	}
	return l.gate.Key.Identify(id, call, key, &l.gate.Prefixes)
}

// Reset deletes the logs of key, of all units, what its limits of other algorithms have counted, and its bans. It keeps
// what limits with keys of their own ([Limit.By]) have counted, and the logs of limits that [LimitBy] or an override
// has not yet chosen in this limiter. An unknown key is not an error.
//
// The key is a text as for [Limiter.Allow]. [Decision.Reset] resets the key of a request, whatever it is.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	var id identity
	if err := l.identify(&id, "Reset", key); err != nil {
		return err
	}
	return l.engine.Reset(ctx, id)
}

// Wait takes one unit of key's quota as soon as one is available. Calls of one limiter that wait for the same log are
// served in order. They do not poll: the first of them sleeps until the instant when it can be admitted, or until this
// limiter gives units back ([Decision.Undo], [Decision.Settle], [Limiter.Reset]). Other users of the log, such as
// [Limiter.Allow] and other processes, compete for each unit. What other processes give back is seen at that instant.
//
// It is unknown when a permit of [InFlight] will be free. A call that waits for one is woken when this limiter gives
// one back ([Decision.Release], or the end of a handler). The first of those that wait for the same permits also looks
// after 50 ms to 1 s whether another process has given one back.
//
// Wait returns at once if ctx ends before its own wait would be over. The error then is [context.DeadlineExceeded], and
// the decision has that wait. What those who wait before it take is not foreseen, so a wait may also end with ctx. Such
// a wait takes nothing, and is not counted as a denial under [WithCountDenied].
func (l *Limiter) Wait(ctx context.Context, key string) (d Decision, err error) {
	err = l.waitN(ctx, key, 1, &d)
	return d, err
}

// WaitN waits for cost units, and takes them all at once. It does not wait for a cost above a quota: the error is
// [ErrCostExceedsQuota].
func (l *Limiter) WaitN(ctx context.Context, key string, cost int) (d Decision, err error) {
	err = l.waitN(ctx, key, cost, &d)
	return d, err
}

func (l *Limiter) waitN(ctx context.Context, key string, cost int, d *Decision) error {
	if l == nil || l.engine == nil {
		return configError("Wait", "no limiter", noLimiter, checkNew)
	}
	return l.askN(ctx, key, gate.Call{Asked: gate.Asked{Cost: cost, Mode: store.ModeCharge}, Waits: true}, d)
}
