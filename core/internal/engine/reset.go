package engine

import (
	"context"
	"errors"
	"strings"

	"github.com/sashlimit/sash/core/store"
)

// notice remembers the logs of limits, except those of permits, which stay when a key is reset.
func (e *Engine) notice(limits []Limit) {
	for i := range limits {
		l := &limits[i]
		if !l.InFlight {
			e.seen.get(logID{namespace: l.key.Namespace, log: l.Log()}, l.Store)
		}
	}
}

// logsOf returns the limits of all logs that a key of a namespace has had, and of its bans.
func (e *Engine) logsOf(n *store.Namespace) (limits []*store.Limit) {
	for log, limit := range e.seen.all() {
		if log.namespace == n {
			limits = append(limits, limit)
		}
	}
	if e.ban != nil && n == e.own.Namespace {
		limits = append(limits, e.ban.logs()...)
	}
	return limits
}

// Reset deletes what an identity of the own key has used, of all limits that this process knows, those of LimitBy and
// of overrides included, and its bans. Permits stay.
func (e *Engine) Reset(ctx context.Context, id store.Identity) error {
	if e.overrides != nil {
		e.noticeOverride(ctx, id)
	}
	return e.reset(ctx, &store.Key{Namespace: e.own.Namespace, Identity: id})
}

// reset deletes the logs of a key, and those that are tried out beside them.
func (e *Engine) reset(ctx context.Context, key *store.Key) error {
	defer e.wakeKey(key)
	policy, part, _ := strings.Cut(key.Namespace.Name(), ":")
	if tried, ok := e.namespaces.find(policy + shadowMark + ":" + part); ok {
		shadow := store.Key{Namespace: tried, Identity: key.Identity}
		e.ShadowFailed(ctx, e.config.Policy, e.resetLogs(ctx, &shadow))
	}
	return e.resetLogs(ctx, key)
}

func (e *Engine) resetLogs(ctx context.Context, key *store.Key) error {
	note := func() {
		e.resetOf.replace(logID{namespace: key.Namespace, identity: key.Identity.Clone()}, e.resets.Add(1))
	}
	note()
	limits := e.logsOf(key.Namespace)
	if len(limits) == 0 {
		return nil
	}
	defer note() // once more, for what is taken before the store has done it
	return e.store.Reset(ctx, *key, limits)
}

// wasReset reports whether a key was reset here after there had been so many resets. A log of entries knows what is not
// in it any more, but an algorithm that counts would be settled to less than nothing, or count what was reset.
func (e *Engine) wasReset(key *store.Key, resets uint64) bool {
	number, ok := e.resetOf.find(logID{namespace: key.Namespace, identity: key.Identity})
	return ok && number > resets
}

// ResetKeys deletes what the own key of the request has used, as [Engine.Reset] does; of rules, what these have counted
// for their own keys.
func (r *Result) ResetKeys(ctx context.Context) error {
	var errs []error
	all, _ := r.all()
	for n, k := range r.Set.Keys {
		if i := r.find(func(i int) bool { return r.Set.Limits[i].Key == n }); k.Own && i >= 0 {
			errs = append(errs, r.engine.reset(ctx, &all[i].Key))
		}
	}
	if errs == nil {
		return configError("Reset", "a decision", "no limit about the request has the own key of its policy or rule",
			"give a limit no key of its own")
	}
	return errors.Join(errs...)
}
