package core

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// selection is which rules a request is asked about. It implements [bridge.Asker], and has what the request has read.
type selection struct {
	bridge.Choice[Key]

	request  adapter.Request
	prefixes keys.Prefixes // of the limiter
	full     keys.Prefixes // of lists
	memo     keys.Memo
	rules    []*plan.Part
	failed   []failedShadow
	denied   *Decision // by the deny list of a rule in shadow, or nil
}

// failedShadow is a rule in shadow that could not be asked.
type failedShadow struct {
	policy string
	err    error
}

var selections = sync.Pool{New: func() any { return new(selection) }}

func newSelection(l *Limiter, r adapter.Request) *selection {
	c := selections.Get().(*selection) //nolint:forcetypeassert // nothing else is in the pool
	c.Asker, c.request, c.prefixes, c.full = c, r, l.prefixes, keys.Full
	c.prefixes.Memo, c.full.Memo = &c.memo, &c.memo
	return c
}

func (c *selection) free() {
	clear(c.memo)
	clear(c.rules)
	*c = selection{memo: c.memo[:0], rules: c.rules[:0]}
	selections.Put(c)
}

// Add implements [bridge.Asker], as Fail, Rules, Identity and Units do.
func (c *selection) Add(p *plan.Part) {
	if !p.Shadow || c.hasKeys(p) {
		c.rules = append(c.rules, p)
	}
}

// hasKeys reports whether all keys of a rule in shadow can be read, and notes errors.
func (c *selection) hasKeys(p *plan.Part) bool {
	for _, log := range p.Logs {
		if _, err := specOf(log.Key).ReadOnce(c.request, &c.prefixes); err != nil {
			if !errors.Is(err, ErrNoKey) {
				c.Fail(p.Rule.Policy, keyError(log, err))
			}
			return false
		}
	}
	return true
}

func (c *selection) Fail(policy string, err error) {
	if errors.Is(err, ErrForbidden) {
		c.denied = cmp.Or(c.denied, &Decision{Policy: policy})
		return
	}
	c.failed = append(c.failed, failedShadow{policy, err})
}

func (c *selection) Rules() []*plan.Part { return c.rules }

func (c *selection) Identity(k Key) (store.Identity, error) {
	return k.spec.ReadOnce(c.request, &c.full)
}

func (c *selection) Units() int { return cmp.Or(c.Cost, c.Tried, 1) }

// setCosts sets what a request costs.
func (c *selection) setCosts(pl *plan.Plan, d *Decision) {
	if c.TriedCosts != nil { // of units that no other rule has
		maps.Copy(c.TriedCosts, c.Costs)
		c.Costs = c.TriedCosts
	}
	if d.q.Take.Cost = c.Units(); pl.Unit != "" {
		d.q.Take.Cost = c.Costs[pl.Unit]
	}
	d.q.Price(pl, c.Costs, 0)
}

func newRuleList(k Key, entries []string) (names func(*bridge.Choice[Key]) (bool, error), err error) {
	l, err := keys.NewList("list", k.spec, entries, true)
	if err != nil {
		return nil, err
	}
	return func(selected *bridge.Choice[Key]) (bool, error) {
		c := selected.Asker.(*selection) //nolint:forcetypeassert // there are no others
		return isNamed(l, c.request, &c.full)
	}, nil
}

// plan returns the plan of the rules that were added.
func (c *selection) plan() (*plan.Plan, error) {
	pl, err := plan.Combine(c.rules)
	if err != nil {
		return nil, &bridge.RulesError{Err: err}
	}
	return pl, nil
}

// planWithoutShadows returns a plan of the rules of an ambiguous request that are not in shadow, or nil if all are. err
// is why there is none of all rules.
func (c *selection) planWithoutShadows(err error) (*plan.Plan, error) {
	c.rules = slices.DeleteFunc(c.rules, func(p *plan.Part) bool {
		if p.Shadow {
			c.Fail(p.Rule.Policy, err)
		}
		return p.Shadow
	})
	if len(c.rules) == 0 {
		return nil, nil //nolint:nilnil // documented
	}
	pl, err := c.plan()
	if err != nil {
		err = fmt.Errorf("sash: the request's path can be read in several ways: %w", err)
		return nil, &requestError{adapter.ErrorWithCause(err, ErrNoKey)}
	}
	return pl, nil
}

// failure returns the strictest failure policy of the rules. Rules in shadow refuse nothing, so theirs counts only if
// there are no others, and FailClosed is FailOpen then.
func (c *selection) failure() Failure {
	enforced := slices.ContainsFunc(c.rules, func(p *plan.Part) bool { return !p.Shadow })
	has := func(f Failure) bool {
		return slices.ContainsFunc(c.rules, func(p *plan.Part) bool {
			return p.Failure == int(f) && p.Shadow != enforced
		})
	}
	switch {
	case enforced && has(FailClosed):
		return FailClosed
	case has(FailLocal):
		return FailLocal
	}
	return FailOpen
}

// chosen returns the limiter and the plan for the rules that apply to a request; no plan if there is none.
func (l *Limiter) chosen(c *selection, choose bridge.Chooser[Key]) (by *Limiter, pl *plan.Plan, err error) {
	if err = choose(c.request, &c.Choice); err != nil || len(c.rules) == 0 {
		return l, nil, err
	}
	if pl, err = c.plan(); err != nil && c.Ambiguous {
		pl, err = c.planWithoutShadows(err)
	}
	if pl == nil || err != nil {
		return l, nil, err
	}
	return l.byFailure[c.failure()], pl, nil
}

func (l *Limiter) preview(r adapter.Request, choose bridge.Chooser[Key]) (d Decision, err error) {
	c := newSelection(l, r)
	defer c.free()
	err = adapter.Guard(func() error {
		by, pl, err := l.chosen(c, choose)
		if err != nil || pl == nil {
			return err
		}
		d.q.Take.Mode = store.ModePeek
		c.setCosts(pl, &d)
		return by.decide(r.Context(), r, &c.prefixes, pl, false, &d)
	})
	if err != nil {
		return Decision{}, err
	}
	if d.q.Plan == nil {
		d.Allowed = true
	}
	d.cloneKeys()
	return d, nil
}

func (l *Limiter) exempt(r adapter.Request) (passes bool, err error) {
	err = adapter.Guard(func() (err error) {
		passes, err = listed(l.lists, r, &keys.Full)
		passes = passes || err == nil && l.skip != nil && l.skip(r)
		return err
	})
	return passes, err
}
