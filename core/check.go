package core

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/internal/inflight"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/question"
	"github.com/sashlimit/sash/core/internal/refusal"
	"github.com/sashlimit/sash/core/store"
)

// For adapters: Check decides about a request. Call it once for each request, and [Decision.Serve] if the request is
// allowed. A denial is a Decision. An error means that there is no decision; adapters answer it with [ProblemOf].
//
// The exchange identifies the request among all in flight. It is a pointer or a map that the request has from beginning
// to end and that no other request has, such as its response's header. A request that is checked again before Serve has
// returned, because the limiter is mounted twice, is allowed and not counted.
//
// If a callback panics, the error is an [adapter.PanicError]. Only [http.ErrAbortHandler] is passed on, if a net/http
// server is there to recover it.
func (l *Limiter) Check(r adapter.Request, exchange any) (d Decision, err error) {
	err = l.admit(r, exchange, &d)
	return d, err
}

// admit is separate from Check for the same reason as askN is from AllowN.
func (l *Limiter) admit(r adapter.Request, exchange any, d *Decision) (err error) {
	token := inflight.TokenOf(exchange)
	if !l.inFlight.Acquire(token) {
		d.Allowed = true
		return nil
	}
	began := l.begin()
	d.began, d.q.Take.Mode, d.borrowed = began, l.mode, true
	defer func() {
		p := recover()
		if p != nil {
			*d = Decision{began: began}
			d.q.Take.Mode = l.mode
			err = l.failed(r.Context(), d, adapter.NewPanicError(p))
		}
		if err != nil || !d.Allowed {
			l.inFlight.Release(token)
		}
		aborts := p == http.ErrAbortHandler //nolint:errorlint // a panic's value is not a chain
		if aborts && r.Context().Value(http.ServerContextKey) != nil {
			panic(p) //nolint:forbidigo // the callback has asked net/http to abort
		}
		if err != nil {
			l.logRefused(r.Context(), err)
		}
		if err != nil || !d.Allowed {
			return
		}
		if d.token = token; d.limiter == nil {
			d.limiter = l
		}
		if l.refunds != nil && d.q.Recorded() {
			d.served = new(served)
			d.served.response.Init(r)
		}
		if d.served != nil || l.inContext {
			d.cloneKeys() // the handler may overwrite the memory that they were read from
		}
	}()
	if !l.rereads {
		return l.check(r, nil, d)
	}
	c := newSelection(l, r)
	defer c.free()
	return l.check(r, c, d)
}

// logRefused logs why a request is refused, unless the last line about that is recent. A denial by a list is not
// logged, and the guard logs outages itself.
func (l *Limiter) logRefused(ctx context.Context, err error) {
	r := refusal.Refusal{Policy: l.namespace.Policy(), Key: l.key.Name, Status: ProblemOf(err).Status, Err: err}
	switch {
	case r.Status == http.StatusForbidden, r.Status == http.StatusServiceUnavailable && store.IsOutage(err):
		return
	case r.Status == http.StatusServiceUnavailable:
		r.Reason = "the store cannot serve its key: see the store's documentation for the class"
	case errors.As(err, new(*adapter.PanicError)):
		r.Reason = "a callback has panicked"
	case isOwn(err):
		r.Reason, r.Err = err.Error(), nil
	case errors.As(err, new(*listError)):
		r.Reason = "the key function of a list failed"
	case r.Status == http.StatusBadRequest:
		r.Reason = "it has no key"
	default:
		r.Reason = "its key function failed"
	}
	if failed := (*limitKeyError)(nil); errors.As(err, &failed) {
		r.Policy, r.Key = cmp.Or(failed.policy, r.Policy), failed.key
	}
	l.refusals.Refused(ctx, r)
}

// isOwn reports whether the text of an error is sash's own. A callback may return a ConfigError as well, such as one of
// ParseLimit, which contains its input.
func isOwn(err error) bool {
	return errors.As(err, new(*requestError)) || errors.As(err, new(*bridge.RulesError)) ||
		errors.As(err, new(*adapter.ConstantError))
}

// check decides about a request. c remembers what its keys are, or is nil if none is read twice.
func (l *Limiter) check(r adapter.Request, c *selection, d *Decision) error {
	own, full := &l.prefixes, &keys.Full
	if c != nil {
		own, full = &c.prefixes, &c.full
	}
	listed, err := listed(l.lists, r, full)
	if err != nil {
		return l.failed(r.Context(), d, err)
	}
	switch {
	case listed:
		return l.pass(r.Context(), event.Listed, d, nil)
	case l.skip != nil && l.skip(r):
		return l.pass(r.Context(), event.Skipped, d, nil)
	}
	if l.choose != nil {
		return l.checkRules(c, d)
	}
	if d.q.Take.Key.Identity, err = l.key.ReadOnce(r, own); err != nil {
		return l.failed(r.Context(), d, err)
	}
	pl, err := l.plan(r)
	if err != nil {
		return l.failed(r.Context(), d, err)
	}
	d.q.Take.Cost, d.q.Take.Mode = 1, l.mode
	if l.cost != nil || l.costs != nil || pl.Unit != "" || pl.Units != nil {
		if err := l.readCosts(r, pl, d); err != nil {
			return l.failed(r.Context(), d, err)
		}
	}
	return l.reported(r.Context(), d, l.decide(r.Context(), r, own, pl, true, d))
}

// listed reports whether an allow list names the client. If a deny list does, the error is ErrForbidden. p is
// [keys.Full], or the same of a request that remembers its keys.
func listed(lists []*keys.List, r adapter.Request, p *keys.Prefixes) (passes bool, err error) {
	for _, l := range lists {
		if passes && l.Passes {
			continue
		}
		found, err := isNamed(l, r, p)
		if err != nil {
			return false, err
		}
		if found && !l.Passes {
			return false, ErrForbidden
		}
		passes = passes || found
	}
	return passes, nil
}

// isNamed reports whether a list names the client of a request. p is as in listed.
func isNamed(l *keys.List, r adapter.Request, p *keys.Prefixes) (bool, error) {
	found, err := l.Names(r, p)
	if err != nil {
		return false, &listError{err}
	}
	return found, nil
}

// checkRules decides about a request by the rules that apply to it.
func (l *Limiter) checkRules(c *selection, d *Decision) error {
	r := c.request
	by, pl, err := l.chosen(c, l.choose)
	if err != nil {
		return l.failed(r.Context(), d, err)
	}
	l.shadowsFailed(r.Context(), c)
	switch {
	case pl == nil && c.Listed:
		return l.pass(r.Context(), event.Listed, d, c.denied)
	case pl == nil:
		return l.pass(r.Context(), event.Skipped, d, c.denied)
	}
	if d.q.Take.Mode = l.mode; c.CountDenied {
		d.q.Take.Mode = store.ModeChargeDenied
	}
	c.setCosts(pl, d)
	err = by.decide(r.Context(), r, &c.prefixes, pl, true, d)
	if c.denied != nil {
		return by.report(r.Context(), d, c.denied, err)
	}
	return by.reported(r.Context(), d, err)
}

// shadowsFailed reports to the observers the rules in shadow that could not be evaluated.
func (l *Limiter) shadowsFailed(ctx context.Context, c *selection) {
	for _, failed := range c.failed {
		e := l.event(event.ShadowFailed, new(Decision), failed.err)
		e.Policy = failed.policy
		l.observe(ctx, &e)
	}
}

func (l *Limiter) plan(r adapter.Request) (*plan.Plan, error) {
	pl, err := l.policy.plan(r)
	if pl != nil && err != nil { // an invalid shadow does not affect the decision
		e := l.event(event.ShadowFailed, new(Decision), err)
		l.observe(r.Context(), &e)
		err = nil
	}
	return pl, err
}

// readCosts sets what a request costs.
func (l *Limiter) readCosts(r adapter.Request, pl *plan.Plan, d *Decision) error {
	unnamed := l.costs[plan.UnitName(pl.Unit)]
	if d.q.Take.Cost = 1; unnamed != nil {
		d.q.Take.Cost = unnamed(r)
	} else if l.cost != nil {
		d.q.Take.Cost = l.cost(r)
	} else if pl.Unit != "" {
		return &requestError{costUnknown(pl.Unit)}
	}
	costs := make(Costs, len(pl.Units))
	for _, unit := range pl.Units {
		name := plan.UnitName(unit)
		cost := l.costs[name]
		switch {
		case cost == nil && unit == "": // only a shadow counts requests
			continue
		case cost == nil:
			return &requestError{costUnknown(unit)}
		}
		if costs[name] = cost(r); costs[name] < 0 {
			return costBelow0(name)
		}
	}
	switch {
	case d.q.Take.Cost < 0 && unnamed != nil:
		return costBelow0(plan.UnitName(pl.Unit))
	case d.q.Take.Cost == 0 && unnamed == nil:
		return nil // WithCost must not return 0
	}
	d.q.Price(pl, costs, 0)
	return nil
}

// decide makes every decision, and calls no observer. d has an identity, unless rules have chosen the plan, a cost and
// a mode; decide fills it in place, because a Decision is large to copy. Keys of limits are read from r, which is nil
// for calls without a request. A denial counts towards a ban if try is true.
func (l *Limiter) decide(
	ctx context.Context, r adapter.Request, p *keys.Prefixes, pl *plan.Plan, try bool, d *Decision,
) (err error) {
	if d.q.Take.Cost < 1 && (d.q.More == nil || d.q.Take.Cost < 0) {
		return &requestError{configError("cost", strconv.Itoa(d.q.Take.Cost), "a request costs at least 1 unit",
			"use WithSkip or Peek for requests that cost nothing")}
	}
	d.limiter, d.q.Plan = l, pl
	d.q.Take.Cost = min(d.q.Take.Cost, question.MostCost)
	if d.q.Take.Mode == store.ModeRecord && pl.Counter != store.SlidingLog {
		return entriesNeeded("Record", pl.Counter)
	}
	if own := pl.OwnSpace(); own != nil && l.choose == nil && d.q.More == nil {
		d.q.Take.Key.Namespace = own.Namespace
	} else if d.q.Take.Key.Namespace == nil { // otherwise they were read before
		if err := l.readKeys(ctx, r, p, d); err != nil {
			return err
		}
	}
	if l.overrides != nil && l.applyOverrides(ctx, d) {
		return nil
	}
	if l.ban == nil || d.q.Take.Mode == store.ModeRecord {
		err = l.charge(ctx, d)
	} else {
		err = l.decideWithBan(ctx, d, try)
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*ConfigError)): // of a store that never serves this cost, such as a stream
		return &requestError{err}
	}
	return store.Error(err)
}
