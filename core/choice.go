package core

// This file is for package rules, as rule.go is.

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// Choice is which rules a request is asked about. It reads each key once. It is for package rules; see [NewRules].
type Choice struct {
	Cost   int  // units of the request; 1 if it is not set
	Tried  int  // units if Cost is not set, because all rules are in shadow
	Listed bool // the request passes because of an allow list; used if no rule is added

	// Ambiguous says that the request's path can be read in several ways. If the rules of all of them cannot be decided
	// together, those in shadow are left out, and then the request is refused (400), since clients choose how a path is
	// spelled.
	Ambiguous bool

	request  adapter.Request
	prefixes prefixes
	whole    prefixes
	read     keysRead
	rules    [store.MaxLimits]*Prepared
	n        int
	rest     []*Prepared // for which rules has no room
	failed   []failedShadow
}

// failedShadow is a rule in shadow that could not be asked.
type failedShadow struct {
	policy string
	err    error
}

var choices = sync.Pool{New: func() any { return new(Choice) }}

func newChoice(l *Limiter, r adapter.Request) *Choice {
	c := choices.Get().(*Choice) //nolint:forcetypeassert // nothing else is in the pool
	c.request, c.prefixes, c.whole = r, l.prefixes, wholeAddress
	c.prefixes.read, c.whole.read = &c.read, &c.read
	return c
}

func (c *Choice) free() {
	c.read.reset()
	clear(c.rules[:c.n])
	c.request, c.n, c.rest, c.Cost, c.Tried, c.Listed, c.failed = nil, 0, nil, 0, 0, false, nil
	c.Ambiguous = false
	choices.Put(c)
}

// Add adds a rule that applies to the request. One in shadow is left out if the request has not the keys of its limits.
func (c *Choice) Add(p *Prepared) {
	if p.Shadow && !c.hasKeys(p) {
		return
	}
	c.put(p)
}

func (c *Choice) put(p *Prepared) {
	if c.n == len(c.rules) {
		c.rest = append(c.rest, p)
		return
	}
	c.rules[c.n] = p
	c.n++
}

// hasKeys reports whether all keys of a rule in shadow can be read, and notes errors.
func (c *Choice) hasKeys(p *Prepared) bool {
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

// Fail notes that a rule in shadow could not be asked. Observers hear of it, and the request is decided without it.
func (c *Choice) Fail(policy string, err error) {
	c.failed = append(c.failed, failedShadow{policy, err})
}

// Rules returns the rules that were added.
func (c *Choice) Rules() []*Prepared { return c.rules[:c.n] }

// Identity returns what a key finds in the request. An address has all its bits.
func (c *Choice) Identity(k Key) (store.Identity, error) {
	return k.readOnce(c.request, &c.whole)
}

// Names reports whether a list names the request's client.
func (c *Choice) Names(l *List) (bool, error) { return l.names(c.request, &c.whole) }

// List is an allow list or a deny list of a rule.
type List struct{ *list }

// NewList makes a list of the clients that a key finds; see [WithAllowList].
func NewList(k Key, entries []string) (*List, error) {
	l, err := newList("list", k, entries, true)
	if err != nil {
		return nil, err
	}
	return &List{l}, nil
}

// all returns the rules that were added.
func (c *Choice) all() []*Prepared { return slices.Concat(c.rules[:c.n], c.rest) }

// plan returns the plan of the rules that were added.
func (c *Choice) plan(l *Limiter) (*plan.Plan, error) {
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
func (c *Choice) fewerPlan(l *Limiter, err error) (pl *plan.Plan, ok bool, failed error) {
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
func (c *Choice) failure() Failure {
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
func (l *Limiter) chosen(c *Choice, choose any, d *Decision) (of *Limiter, pl *plan.Plan, err error) {
	f := choose.(func(adapter.Request, *Choice) error) //nolint:forcetypeassert // NewRules and Preview give it
	if err = f(c.request, c); err != nil || c.n == 0 {
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

// Units returns what the request costs.
func (c *Choice) Units() int { return cmp.Or(c.Cost, c.Tried, 1) }
