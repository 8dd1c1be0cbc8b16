package core

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// choice implements [bridge.Asker].
type choice struct {
	bridge.Choice[Key]

	request  adapter.Request
	prefixes prefixes
	whole    prefixes
	memo     keyMemo
	rules    [store.MaxLimits]*prepared
	n        int
	rest     []*prepared // for which rules has no room
	failed   []failedShadow
}

// failedShadow is a rule in shadow that could not be asked.
type failedShadow struct {
	policy string
	err    error
}

var choices = sync.Pool{New: func() any {
	c := new(choice)
	c.Asker = c
	return c
}}

func newChoice(l *Limiter, r adapter.Request) *choice {
	c := choices.Get().(*choice) //nolint:forcetypeassert // nothing else is in the pool
	c.request, c.prefixes, c.whole = r, l.prefixes, wholeAddress
	c.prefixes.memo, c.whole.memo = &c.memo, &c.memo
	return c
}

func (c *choice) free() {
	c.memo.clear()
	clear(c.rules[:c.n])
	c.request, c.n, c.rest, c.Cost, c.Tried, c.Listed, c.failed = nil, 0, nil, 0, 0, false, nil
	c.Ambiguous = false
	choices.Put(c)
}

// Add implements [bridge.Asker], as Fail, Rules, Identity and Units do.
func (c *choice) Add(one bridge.Prepared) {
	p := one.(*prepared) //nolint:forcetypeassert // there are no others
	if p.Shadow && !c.hasKeys(p) {
		return
	}
	c.put(p)
}

func (c *choice) put(p *prepared) {
	if c.n == len(c.rules) {
		c.rest = append(c.rest, p)
		return
	}
	c.rules[c.n] = p
	c.n++
}

// hasKeys reports whether all keys of a rule in shadow can be read, and notes errors.
func (c *choice) hasKeys(p *prepared) bool {
	for _, log := range p.Logs {
		if _, err := keyOf(log).readOnce(c.request, &c.prefixes); err != nil {
			if !errors.Is(err, ErrNoKey) {
				failed := keyError(p.Plan, log, err)
				failed.policy = p.Rule.Policy
				c.Fail(failed.policy, failed)
			}
			return false
		}
	}
	return true
}

func (c *choice) Fail(policy string, err error) {
	c.failed = append(c.failed, failedShadow{policy, err})
}

func (c *choice) Rules() []bridge.Prepared {
	added := make([]bridge.Prepared, c.n)
	for i, p := range c.rules[:c.n] {
		added[i] = p
	}
	return added
}

func (c *choice) Identity(k Key) (store.Identity, error) {
	return k.readOnce(c.request, &c.whole)
}

func newRuleList(k Key, entries []string) (names func(*bridge.Choice[Key]) (bool, error), err error) {
	l, err := newList("list", k, entries, true)
	if err != nil {
		return nil, err
	}
	return func(of *bridge.Choice[Key]) (bool, error) {
		c := of.Asker.(*choice) //nolint:forcetypeassert // there are no others
		return l.names(c.request, &c.whole)
	}, nil
}

// all returns the rules that were added.
func (c *choice) all() []*prepared { return slices.Concat(c.rules[:c.n], c.rest) }

// plan returns the plan of the rules that were added.
func (c *choice) plan(l *Limiter) (*plan.Plan, error) {
	if c.rest != nil {
		return nil, tooManyLimits(c.all())
	}
	if c.n == 1 {
		return c.rules[0].alone, nil
	}
	with := c.rules[0].with
	with.mu.RLock()
	pl := with.plans[c.rules]
	with.mu.RUnlock()
	if pl != nil {
		return pl, nil
	}
	pl, err := l.combine(c.rules[:c.n])
	if err != nil {
		return nil, err
	}
	with.mu.Lock()
	defer with.mu.Unlock()
	if known := with.plans[c.rules]; known != nil {
		return known, nil
	}
	if len(with.plans) < maxCombinations {
		with.plans[c.rules] = pl
	}
	return pl, nil
}

// fewerPlan returns a plan of the rules of an ambiguous request without those in shadow, and false if all are. err is
// why there is none of all rules.
func (c *choice) fewerPlan(l *Limiter, err error) (pl *plan.Plan, ok bool, failed error) {
	all := c.all()
	clear(c.rules[:])
	c.n, c.rest = 0, nil
	for _, p := range all {
		if p.Shadow {
			c.Fail(p.Rule.Policy, err)
		} else {
			c.put(p)
		}
	}
	if c.n == 0 {
		return nil, false, nil
	}
	if pl, failed = c.plan(l); failed != nil {
		return nil, false, &ambiguousError{failed}
	}
	return pl, true, nil
}

// failure returns the strictest failure policy of the rules. Rules in shadow refuse nothing, so theirs counts only if
// there are no others, and FailClosed is FailOpen then.
func (c *choice) failure() Failure {
	strictest, tried := FailOpen, FailOpen
	enforced := false
	for _, p := range c.rules[:c.n] {
		switch {
		case p.Shadow && p.failure == FailLocal:
			tried = FailLocal
		case p.Shadow:
		case p.failure == FailClosed:
			return FailClosed
		case p.failure == FailLocal:
			strictest, enforced = FailLocal, true
		default:
			enforced = true
		}
	}
	if !enforced {
		return tried
	}
	return strictest
}

// chosen returns the limiter and the plan for the rules that apply to a request, whose keys it reads; no plan if there
// is none.
func (l *Limiter) chosen(c *choice, choose bridge.Chooser[Key], d *Decision) (of *Limiter, pl *plan.Plan, err error) {
	if err = choose(c.request, &c.Choice); err != nil || c.n == 0 {
		return l, nil, err
	}
	ok := true
	if pl, err = c.plan(l); err != nil && c.Ambiguous {
		pl, ok, err = c.fewerPlan(l, err)
	}
	if err != nil || !ok {
		return l, nil, err
	}
	of = l.variants[c.failure()]
	d.limiter, d.plan = of, pl
	return of, pl, of.readKeys(c.request.Context(), c.request, &c.prefixes, d)
}

func (c *choice) Units() int { return cmp.Or(c.Cost, c.Tried, 1) }
