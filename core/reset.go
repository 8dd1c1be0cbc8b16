package core

import (
	"cmp"
	"context"
	"errors"

	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/question"
	"github.com/sashlimit/sash/core/store"
)

// Reset deletes the logs of key, of all units, what its limits of other algorithms have counted, and its bans. It keeps
// what limits with keys of their own ([Limit.By]) have counted, and the counters of limits with other algorithms that
// [LimitBy] has not yet chosen in this limiter. An unknown key is not an error.
//
// The key is a text as for [Limiter.Allow]. Keys of [Join] and of package jwtkey have no such text; [Decision.Reset]
// resets the key of a request, whatever it is. For a text that no request can have, Reset deletes what Allow and other
// calls have used by that text; if there is nothing, the error is a [ConfigError]. Under [Global], any text also resets
// the quota of all requests, unless this limiter has had calls with texts, such as Allow.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	var id identity
	if err := l.identityOf(key, &id); err != nil {
		return err
	}
	switch {
	case id.Kind != keys.KindBy || l.key.Finds(keys.KindBy):
		return l.resetKey(ctx, id)
	case l.key.Classes[0].Kind == keys.KindAll && !l.asked.Load():
		return cmp.Or(l.resetKey(ctx, id), l.resetKey(ctx, keys.Everybody))
	case l.key.Classes[0].Kind == keys.KindAll:
		return l.resetKey(ctx, id)
	}
	unused := l.unused(ctx, id)
	return cmp.Or(l.resetKey(ctx, id), unused)
}

// Reset deletes what the key of the decision's request has used, as [Limiter.Reset] does for a text: with rules, what
// the rules that applied to the request have counted for their keys. It works for all keys, and for denials too. A
// handler gets its request's decision by [DecisionFrom], and an observer by [Event]. A decision about a request whose
// key was not read, as by [WithSkip], is a [ConfigError].
func (d Decision) Reset(ctx context.Context) error {
	switch {
	case d.q.Take.Key.Kind != "" && d.limiter.choose == nil:
		return d.limiter.resetKey(ctx, d.q.Take.Key.Identity)
	case d.q.Take.Key.Kind != "" && d.q.Plan != nil:
		return d.resetRules(ctx)
	case d.storeErr != nil: // FailOpen has decided, and the rules are not known
		return d.storeErr
	}
	return configError("Reset", "a decision", "the request was not limited, so it has no key",
		"reset decisions about limited requests only")
}

// resetRules resets the logs that a decision by rules was asked about, unless their limits have keys of their own.
func (d *Decision) resetRules(ctx context.Context) error {
	var errs []error
	for i, log := range d.q.Logs() {
		if log.Own && !log.InFlight() {
			t, _ := d.q.At(i)
			errs = append(errs, d.limiter.reset(ctx, t.Key))
		}
	}
	if errs == nil {
		return configError("Reset", "a decision", "no limit of its rules has a window and the rule's own key",
			"give a limit of the rule a window and no key")
	}
	return errors.Join(errs...)
}

// resetKey resets an identity of the limiter's key. The ban comes first, because calls that wait for its end are woken
// by the reset of the log.
func (l *Limiter) resetKey(ctx context.Context, id identity) error {
	err := l.liftBan(ctx, id)
	if fixed := l.policy.fixed; fixed != nil && l.overrides != nil {
		l.findOverridden(ctx, fixed, id)
	}
	err = cmp.Or(err, l.reset(ctx, store.Key{Namespace: l.namespace, Identity: id}))
	for space := range l.policy.spaces.Others {
		err = cmp.Or(err, l.reset(ctx, store.Key{Namespace: space.Namespace, Identity: id}))
	}
	return err
}

// unused returns an error if nothing was used by a text that no request's key is.
func (l *Limiter) unused(ctx context.Context, id identity) error {
	d := Decision{q: question.Question{Take: store.Take{
		Key: store.Key{Identity: id}, Cost: 1, Mode: store.ModePeek,
	}}}
	pl, err := l.planFor(ctx)
	if err == nil {
		err = l.decide(ctx, nil, &l.prefixes, pl, false, &d)
	}
	if err = cmp.Or(err, d.storeErr); err == nil { // ask the logs, since a cached denial is about one of them only
		err = d.peek(ctx)
	}
	if errors.As(err, new(*store.StoreError)) {
		return err
	}
	used := func(i int) bool { return d.q.Answer.State[i].Used > 0 && d.q.Plan.Limits[i].IsOwn(l.key) }
	if err == nil && (d.Banned || d.q.Find(used) >= 0) {
		return nil
	}
	return configError("Reset", "a text", l.key.Name+" finds no such key, and nothing was used under this text",
		"reset the key of a request with Decision.Reset")
}
