package core

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/question"
	"github.com/sashlimit/sash/core/store"
)

func init() { //nolint:gochecknoinits // package bridge must not import core
	bridge.Core = &bridge.Rules[*Limiter, Option, Key, Limit, Failure, Decision]{
		NewLimiter: newRules,
		InForce:    func(l *Limiter, rules func() []plan.Named) { l.inForce = rules },
		Answering:  (*Limiter).answering,
		Prepare:    (*Limiter).prepareAll,
		Joins:      (*Limiter).joins,
		Preview:    (*Limiter).preview,
		Exempt:     (*Limiter).exempt,
		Reloaded:   func(ctx context.Context, l *Limiter, err error) { l.reloaded(ctx, err) },
		NewList:    newRuleList,
		Check:      Key.err,
		Labelled:   Key.labelled,
		FormOf:     func(l Limit) plan.Limit { return l.compiled() },
	}
	bridge.Limiters = &bridge.Functions[*Limiter, Decision, Override]{
		OverrideKeys: overrideNames, LimitsOf: limitsOf, LookUp: lookUp,
		Override: overrideNamed, RemoveOverride: removeOverrideNamed, Windows: windows,
		NameOf: func(l *Limiter) (policy, limits string) {
			switch {
			case l.namespace == nil:
				return "", ""
			case l.choose != nil:
				return l.namespace.Policy(), ""
			}
			return l.namespace.Policy(), l.limitsText()
		},
	}
}

// lookUp is LookUp of [bridge.Functions].
func lookUp(ctx context.Context, l *Limiter, key string) (d Decision, err error) {
	var id identity
	if l.choose != nil {
		return d, l.identityOf(key, &id) // rules need a request
	}
	id, err = l.key.IdentityOf("Look up", key, &l.prefixes)
	switch config := (*ConfigError)(nil); {
	case errors.As(err, &config):
		return d, configError("Look up", config.Value, config.Problem,
			"choose the key among those with the most requests: no text names it")
	case err != nil:
		return d, err
	case l.policy.fixed == nil:
		return d, configError("Look up", "LimitBy",
			"the limits are not known here, because each request chooses its own",
			"choose the key among those with the most requests")
	case l.key.Finds(keys.KindAll) && !l.asked.Load(): // no call has used a text
		id = keys.Everybody
	}
	pl, err := l.planFor(ctx)
	if err != nil {
		return d, err
	}
	d.q.Take.Key.Identity, d.q.Take.Cost, d.q.Take.Mode = id, 1, store.ModePeek
	err = l.decide(ctx, nil, &l.prefixes, pl, false, &d)
	return d, err
}

const maxListed = 10_000 // units of a log whose entries are listed

// windows is Windows of [bridge.Functions].
func windows(ctx context.Context, d Decision) ([]bridge.Window, error) {
	if d.q.Plan == nil {
		return nil, nil
	}
	l := d.limiter
	if l.guard != nil {
		ctx = l.guard.Within(ctx, time.Now())
	}
	now := &Decision{limiter: l, q: question.Question{Plan: d.q.Plan, Take: d.q.Take, More: d.q.More}}
	now.q.Take.Cost, now.q.Take.Mode = 1, store.ModePeek
	now.cloneKeys() // others may use the takes of d
	if now.q.More != nil {
		now.q.More.Asked = len(now.q.More.Takes)
		for i := range now.q.More.Takes {
			now.q.More.Takes[i].Cost = 1
		}
	}
	if err := now.peek(ctx); err != nil {
		return nil, store.Error(err)
	}
	windows := make([]bridge.Window, len(d.q.Plan.Limits))
	for i, s := range now.Limits() {
		windows[i] = bridge.Window{
			Name: s.Name, Unit: s.Unit, Quota: s.Quota, Used: s.Used, Remaining: s.Remaining, ResetAfter: s.ResetAfter,
		}
	}
	for i, log := range now.q.Logs() {
		t, _ := now.q.At(i)
		if err := now.list(ctx, log, t.Key, windows); err != nil {
			return nil, store.Error(err)
		}
	}
	return windows, nil
}

// peek asks about each log by itself, because the deny cache answers for all of them when one denies. It does not look
// at bans.
func (d *Decision) peek(ctx context.Context) error {
	takes, answers := d.q.Asked()
	if d.q.More != nil {
		d.q.Prepare()
	}
	for i := range takes {
		t, a := &takes[i], &answers[i]
		peek := store.Take{Key: t.Key, Plan: d.q.Logs()[i].StorePlan(), Cost: t.Cost, Mode: d.q.Take.Mode}
		var err error
		if *a, err = d.limiter.takeOne(ctx, peek, d); err != nil || d.storeErr != nil {
			return cmp.Or(err, d.storeErr)
		}
	}
	if d.q.More != nil {
		d.q.Answer = plan.Merge(d.q.More.Logs, takes, answers)
	}
	d.fill()
	return nil
}

// list fills in the rest of the windows of a log's limits.
func (d *Decision) list(ctx context.Context, log *plan.Log, key store.Key, windows []bridge.Window) (err error) {
	most, decide := 0, log.At[:log.Deciding()]
	for _, at := range decide {
		most = max(most, windows[at].Used)
	}
	var entries []Entry
	units := 0
	listed := !log.InFlight() && log.KeepsEntries() && d.limiter.lister != nil && most <= maxListed
	if listed {
		if entries, err = d.limiter.lister.Log(ctx, key, log.Keep); err != nil {
			return err
		}
		for _, e := range entries {
			units += e.Cost
		}
	}
	for _, at := range decide {
		limit, w := &d.q.Plan.Limits[at], &windows[at]
		w.Window, w.Algorithm, w.Key = limit.Window, limit.Algorithm.String(), key.Label()
		w.Reset = func(ctx context.Context) error { return d.resetLog(ctx, key) }
		if log.InFlight() {
			w.Algorithm = "in flight"
		}
		if w.Now = time.Now(); listed {
			setEntries(w, entries, units == most)
		}
	}
	return nil
}

// setEntries sets the entries that are in the window: the latest ones, which have its units. If they are those that the
// limit was asked about, the time of the store follows from the oldest of them and when it leaves.
func setEntries(w *bridge.Window, all []Entry, same bool) {
	units, first := 0, len(all)
	for first > 0 && units < w.Used {
		first--
		units += all[first].Cost
	}
	w.Entries = append([]Entry{}, all[first:]...)
	if same && units == w.Used && units > 0 {
		w.Now = w.Entries[0].At.Add(w.Window - w.ResetAfter)
	}
}

// resetLog resets the log of a key. For the limiter's own key it lifts bans as well, as [Limiter.resetKey] does.
func (d *Decision) resetLog(ctx context.Context, key store.Key) error {
	l := d.limiter
	var err error
	if key.Identity == d.q.Take.Key.Identity {
		err = l.liftBan(ctx, key.Identity)
	}
	return cmp.Or(err, l.reset(ctx, key))
}

func overrideNames(l *Limiter) (names []string) {
	for _, k := range l.overridable() {
		names = append(names, k.Name)
	}
	return names
}

// limitsOf is LimitsOf of [bridge.Functions].
func limitsOf(l *Limiter, name string) (limits []string) {
	for _, k := range l.overridable() {
		if k.Name != name {
			continue
		}
		for _, pl := range k.Bases {
			for _, log := range pl.Logs {
				for _, limit := range log.Limits[:log.Deciding()] {
					if log.KeySpace == k.Space {
						limits = append(limits, limit.Text)
					}
				}
			}
		}
	}
	return limits
}

// namedTarget finds the key of a kind with a name.
func (l *Limiter) namedTarget(call, name, text string) (overrideTarget, error) {
	policy, limit, _ := strings.Cut(name, "/")
	var named *plan.OverrideKey
	var names []string // of the keys of the policy or the rule
	for _, k := range l.overridable() {
		if k.Policy == policy {
			names = append(names, k.Name)
			if k.Name == name || slices.Contains(k.Limits, limit) {
				named = k
			}
		}
	}
	if named != nil {
		return l.namedBy(call, text, named)
	}
	known := policy == l.namespace.Policy()
	if l.choose != nil {
		known = slices.ContainsFunc(l.inForce(), func(r plan.Named) bool { return r.Name == policy })
	}
	problem, remedy := "no rule has this name", "use the name of a rule in force"
	switch {
	case names != nil:
		problem, remedy = "it does not name one kind of key", "use one of "+strings.Join(names, ", ")
	case known:
		problem, remedy = "it has no limits that deny", "override keys of limits that are not in shadow"
	}
	return overrideTarget{}, configError(call, name, problem, remedy)
}

func overrideNamed(ctx context.Context, l *Limiter, name, key string, o Override) error {
	return l.setOverride(ctx, o, func() (t overrideTarget, err error) {
		if t, err = l.namedTarget("Override", name, key); err == nil && o.By.spec != nil {
			err = configError("Override", o.By.spec.Name, "keys of rules are not those of the program",
				`leave By out, and name a limit of the rule, as in "rule/limit"`)
		}
		return t, err
	})
}

func removeOverrideNamed(ctx context.Context, l *Limiter, name, key string) error {
	return l.removeOverride(ctx, func() (overrideTarget, error) {
		return l.namedTarget("RemoveOverride", name, key)
	})
}
