package core

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/inflight"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/queue"
	"github.com/sashlimit/sash/core/store"
)

// Limiter decides about requests. It is safe for concurrent use. Make one with [New] and keep it: a limiter that is
// made within a handler has empty logs, so it limits nothing. It need not be closed; see [Limiter.Close].
type Limiter struct {
	policy    *policy
	key       Key
	store     Store
	lister    store.Lister  // store, if it can list logs, or nil
	memory    *memory.Store // of store, if it is a MemoryStore, or nil
	guard     *guard.Guard  // of any other store, which may fail to answer
	namespace *store.Namespace
	prefixes  prefixes
	headers   Headers
	mode      store.Mode
	ban       *ban
	lists     []*list // pointers, so that a copy of a Limiter prints the same and shares its locks
	cost      func(adapter.Request) int
	skip      func(adapter.Request) bool
	refunds   func(adapter.Request, int) bool
	observers []func(context.Context, Event)
	inFlight  *inflight.Set
	queues    *queue.Queues[queueKey]
	refusals  *refusals

	deny, fail    any // the handlers given to an adapter's WithDeny and WithError; see Bind
	callbackTypes []callbackType
}

// New makes a limiter from a policy (how much is allowed), a key (whose quota it is) and options. It does no I/O. The
// error reports all mistakes, each as a [ConfigError].
func New(p Policy, k Key, opts ...Option) (*Limiter, error) {
	l, err := build(p, k, opts)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// build returns a limiter even with an error, so that NewFor can check it for further mistakes.
func build(p Policy, k Key, opts []Option) (*Limiter, error) {
	c := configure(opts)
	compiled := c.compile(p)
	if k.read == nil && k.fault == nil {
		c.fault("key", "none", "say whose quota it is, such as core.ByIP() or core.Global()")
	}
	c.faults = append(c.faults, k.fault)
	if c.store == nil {
		c.store = NewMemoryStore()
	}
	c.addShadow(compiled)
	var limits Limits
	if compiled.fixed != nil {
		limits = compiled.fixed.all
	}
	c.faults = append(c.faults, c.store.Validate(newStorePlan(c.ban.appendLimit(limits), 0, 0, 0, false)))
	c.faults = append(c.faults, c.lacks())
	named := c.name != ""
	if !named {
		c.name = compiled.name
	}
	c.prefixes.check = &setupCheck{policy: c.name}
	l := &Limiter{
		policy:        compiled,
		key:           k,
		store:         c.store,
		namespace:     store.NewNamespace(c.name, c.secret),
		prefixes:      c.prefixes,
		headers:       c.headers,
		mode:          c.mode,
		ban:           c.ban.forPolicy(c.name, c.secret),
		lists:         c.lists,
		cost:          c.cost,
		skip:          c.skip,
		refunds:       c.refunds,
		observers:     c.observers,
		inFlight:      new(inflight.Set),
		queues:        new(queue.Queues[queueKey]),
		refusals:      new(refusals),
		deny:          c.deny,
		fail:          c.fail,
		callbackTypes: append(append(compiled.callbackTypes, k.callbackTypes...), c.callbackTypes...),
	}
	l.lister, _ = c.store.(store.Lister)
	if own, ok := c.store.(*MemoryStore); ok {
		l.memory = own.logs
	} else {
		l.guard = newGuard(&c)
	}
	err := errors.Join(c.faults...)
	if err == nil {
		warnWithinHandler(c.name)
		if c.shared {
			warnSharedLogs(&c, k, compiled.name, named)
		}
	}
	return l, err
}

// addShadow compiles the policy of WithShadow and adds it to p, unless p is invalid.
func (c *config) addShadow(p *policy) {
	if c.shadow == nil {
		return
	}
	shadow, err := c.shadow.compile()
	c.faults = append(c.faults, err)
	if err == nil && p.name != "" {
		c.faults = append(c.faults, p.withShadow(shadow))
	}
}

// lacks returns an error for each option that needs an optional method which the store does not have.
func (c *config) lacks() error {
	var faults []error
	name := fmt.Sprintf("%T", c.store)
	if _, ok := c.store.(store.Settler); !ok && c.refunds != nil {
		faults = append(faults, &ConfigError{
			Option: "WithRefund", Value: name,
			Reason: "this store cannot give units back: it has no method Settle (store.Settler)",
		})
	}
	_, merges := c.store.(store.Merger)
	if _, settles := c.store.(store.Settler); c.failLocal && !(merges && settles) {
		faults = append(faults, &ConfigError{
			Option: "WithFailure", Value: "FailLocal",
			Reason: "the store " + name + " cannot be told what was admitted without it: it has no methods Merge and " +
				"Settle (store.Merger, store.Settler; a wrapper embeds store.Full); choose core.FailOpen or " +
				"core.FailClosed",
		})
	}
	return errors.Join(faults...)
}

// Check decides about a request. Adapters call it once for each request, and [Decision.Serve] if the request is
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
	d.began, d.mode = began, l.mode
	defer func() {
		if p := recover(); p != nil {
			l.inFlight.Release(token)
			aborts := p == http.ErrAbortHandler //nolint:errorlint // a panic's value is not a chain
			if aborts && r.Context().Value(http.ServerContextKey) != nil {
				panic(p) //nolint:forbidigo // the callback has asked net/http to abort
			}
			*d = Decision{began: began, mode: l.mode}
			err = l.failed(r.Context(), d, adapter.NewPanicError(p))
			l.refused(r.Context(), err)
			return
		}
		if err != nil || !d.Allowed {
			l.inFlight.Release(token)
			if err != nil {
				l.refused(r.Context(), err)
			}
			return
		}
		d.limiter, d.token = l, token
		if l.refunds != nil && d.taken > 0 {
			d.served = new(served)
			d.served.response.Init(r)
			d.key.Identity = d.key.Clone() // the handler may overwrite the memory that it was read from
		}
	}()
	return l.check(r, d)
}

func (l *Limiter) check(r adapter.Request, d *Decision) error {
	listed, err := l.listed(r)
	if err != nil {
		return l.failed(r.Context(), d, err)
	}
	switch {
	case listed:
		return l.pass(r.Context(), event.Listed, d)
	case l.skip != nil && l.skip(r):
		return l.pass(r.Context(), event.Skipped, d)
	}
	if d.key.Identity, err = l.key.read(r, &l.prefixes); err != nil {
		return l.failed(r.Context(), d, err)
	}
	plan, err := l.plan(r)
	if err != nil {
		return l.failed(r.Context(), d, err)
	}
	cost := 1
	if l.cost != nil {
		cost = l.cost(r)
	}
	return l.decide(r.Context(), plan, cost, l.mode, true, d)
}

// take passes t to the logs in memory or to the guard of the store. It fills in the rest of t: the key, and for a store
// outside the process an id. Logs in memory number their takes themselves.
func (l *Limiter) take(ctx context.Context, key *store.Key, t *store.Take, d *Decision, a *store.Answer) (err error) {
	if l.memory != nil {
		l.memory.Take(key, t, a)
		d.source = event.Memory
		return nil
	}
	t.Key = *key
	from, err := l.guard.Take(ctx, t, a)
	switch {
	case from == guard.FromLocal:
		d.Degraded, d.storeErr, err = true, err, nil
		d.source = event.Local
	case err != nil || d.Degraded: // an earlier take of this decision was decided without the store
	case from == guard.FromCache:
		d.source = event.Cache
	default:
		d.source = event.Store
	}
	return err
}

func (l *Limiter) settle(ctx context.Context, s store.Settlement, degraded bool) error {
	defer l.queues.Wake(queueKeyOf(&s.Key))
	if l.memory != nil {
		l.memory.Settle(&s)
		return nil
	}
	return l.guard.Settle(ctx, s, degraded)
}

func (l *Limiter) reset(ctx context.Context, key store.Key) error {
	defer l.queues.Wake(queueKeyOf(&key))
	if l.memory != nil {
		l.memory.Reset(&key)
		return nil
	}
	return l.guard.Reset(ctx, key)
}

// refund calls the callback of WithRefund for a request that has been served, and gives its units back if the callback
// returns true.
func (l *Limiter) refund(d *Decision, status int) {
	request := d.served.response.Request()
	ctx := context.WithoutCancel(d.served.response.Context())
	back := false
	err := adapter.Guard(func() error {
		if back = l.refunds(request, status); back {
			return d.Undo(ctx)
		}
		return nil
	})
	if back || err != nil {
		outcome := event.Refunded
		if err != nil {
			outcome = event.RefundFailed
		}
		e := l.event(outcome, d, err)
		e.Decision, e.Took = *d, 0
		e.Decision.served, e.Decision.token = nil, inflight.Token{}
		l.refundFailed(ctx, errors.Join(err, l.observe(ctx, &e)))
	}
}

func (l *Limiter) plan(r adapter.Request) (*plan, error) {
	plan, err := l.policy.plan(r, l.store.Validate)
	if plan != nil && err != nil { // an invalid shadow does not affect the decision
		e := l.event(event.ShadowFailed, new(Decision), err)
		err = l.observe(r.Context(), &e)
	}
	return plan, err
}

// decide makes every decision except those of Wait. d has an identity and nothing else; decide fills it in place,
// because a Decision is large to copy. try tells that a denial counts towards a ban.
func (l *Limiter) decide(ctx context.Context, plan *plan, cost int, mode store.Mode, try bool, d *Decision) error {
	if err := l.evaluate(ctx, plan, cost, mode, try, d); err != nil {
		return l.failed(ctx, d, err)
	}
	if l.observers != nil {
		return l.notify(ctx, d)
	}
	return nil
}

// evaluate is decide without the observers.
func (l *Limiter) evaluate(
	ctx context.Context, plan *plan, cost int, mode store.Mode, try bool, d *Decision,
) (err error) {
	d.cost, d.mode = cost, mode
	if cost < 1 {
		return &ConfigError{
			Option: "cost", Value: strconv.Itoa(cost),
			Reason: "a request costs at least 1 unit; use WithSkip or Peek for what costs nothing",
		}
	}
	d.limiter, d.plan = l, plan
	d.cost = min(cost, MaxQuota+1) // a larger cost is denied the same, but would overflow sums
	d.key.Namespace = l.namespace
	if l.ban == nil || mode == store.ModeRecord {
		err = l.charge(ctx, d, mode)
	} else {
		err = l.ban.decide(ctx, d, mode, try)
	}
	return store.Error(err)
}

func (l *Limiter) charge(ctx context.Context, d *Decision, mode store.Mode) error {
	var t store.Take // a literal would be built in a temporary and copied
	t.Plan, t.Cost, t.Mode = l.policy.storePlan(d.plan), d.cost, mode
	err := l.take(ctx, &d.key, &t, d, &d.answer)
	if err == nil {
		d.id = t.ID
		d.fill(mode)
	}
	return err
}
