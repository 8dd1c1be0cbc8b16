package plan

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	"github.com/sashlimit/sash/core/store"
)

// Rule describes the rule that has chosen a limit.
type Rule struct{ Policy, Detail string }

// Part is the plan of a rule, or of a part of it that applies by itself.
type Part struct {
	*Plan // the limits with their logs

	Rule    *Rule
	Shadow  bool
	Failure int   // a Failure of package core
	Single  *Plan // for requests to which no other part applies

	with *Combinations
}

// Combinations make the plans of parts that apply to one request, and remember them.
type Combinations struct {
	check func(*Plan) error
	mu    sync.RWMutex
	plans map[combination]*Plan
}

// combination has the parts that apply to a request, and then nil. Each has a limit, so there are no more of them.
type combination [store.MaxLimits]*Part

// maxCombinations is how many plans are kept. Further ones are made for each request.
const maxCombinations = 4096

// NewCombinations is for parts that are prepared together. check reports what the store cannot decide.
func NewCombinations(check func(*Plan) error) *Combinations {
	return &Combinations{check: check, plans: make(map[combination]*Plan)}
}

// Add adds a part, or returns why it cannot be asked.
func (c *Combinations) Add(p *Part) (err error) {
	p.with = c
	p.Single, err = c.combine([]*Part{p})
	return err
}

// Combine returns the plan of a request to which parts apply that were prepared together, at least one.
func Combine(parts []*Part) (*Plan, error) {
	if len(parts) == 1 {
		return parts[0].Single, nil
	}
	var key combination
	c := parts[0].with
	if copy(key[:], parts) < len(parts) {
		return c.combine(parts)
	}
	c.mu.RLock()
	p := c.plans[key]
	c.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	p, err := c.combine(parts)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.plans) < maxCombinations {
		c.plans[key] = p
	}
	return p, nil
}

// combine makes one plan of those of several parts.
func (c *Combinations) combine(parts []*Part) (*Plan, error) {
	p, shadow := new(Plan), new(Plan)
	names := make([]string, 0, len(parts))
	for _, part := range parts {
		if names = append(names, part.Rule.Policy); part.Shadow {
			shadow.add(part)
		} else {
			p.add(part)
		}
	}
	if len(p.Limits)+len(shadow.Limits) > store.MaxLimits {
		return nil, configError("rules", "request",
			fmt.Sprintf("these rules apply to one request, and have more than %d limits together: %s", store.MaxLimits,
				strings.Join(names, ", ")), "remove limits, or narrow the matches of these rules")
	}
	for _, log := range shadow.Logs {
		p.Logs = append(p.Logs, log.moved(func(at int) int { return len(p.Limits) + at }))
	}
	if shadow.sum(); len(shadow.Limits) > 0 {
		p.Shadow, p.Rule = shadow, cmp.Or(p.Rule, shadow.Rule)
	}
	if p.sum(); len(p.Limits) > 0 {
		shadow.Unit = p.Unit
	}
	if len(p.Logs) > 1 {
		return p, c.check(p)
	}
	return p, nil
}

// add adds the limits of a part, and copies of its logs.
func (p *Plan) add(part *Part) {
	first := len(p.Limits)
	p.Limits, p.Rule = append(p.Limits, part.Limits...), cmp.Or(p.Rule, part.Rule)
	for _, log := range part.Logs {
		p.Logs = append(p.Logs, log.moved(func(at int) int { return first + at }))
	}
}

// Alone returns a part of only one of its limits, with its log, to ask about that limit.
func (p *Part) Alone(limit int) *Part {
	own := &Plan{Limits: p.Limits[limit : limit+1]}
	log := p.Logs[LogOf(p.Logs, limit)].empty()
	log.Limits, log.At = own.Limits, []int{0}
	if p.Shadow {
		log.KeySpace = nil // overrides are not of it
	}
	own.Logs = []*Log{log}
	own.sum()
	alone := &Part{Plan: own, Rule: p.Rule, Failure: p.Failure}
	alone.Single, _ = new(Combinations).combine([]*Part{alone}) // one log is not checked
	return alone
}
