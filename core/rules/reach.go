package rules

import (
	"fmt"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/store"
)

// unreachable reports rules that never apply because an earlier one does.
func (doc *document) unreachable() {
	if doc.all {
		return
	}
	for i, r := range doc.rules {
		for _, earlier := range doc.rules[:i] {
			if !earlier.match.faulty && !r.match.faulty && earlier.match.covers(&r.match) {
				r.at.asFirst().fault(
					fmt.Sprintf("this rule never applies: rule %q on line %d matches all of its requests",
						earlier.name, earlier.at.asFirst().Line),
					"put it in front of that rule, narrow that rule's match, or write apply: all")
				break
			}
		}
	}
}

// limits and parts are what [rule.most] adds up.
func limits(p *part) int { return len(p.limits) }
func parts(p *part) int  { return min(len(p.limits), 1) } // of parts that have limits

// most returns the largest sum over the parts of a rule that may apply to one request.
func (r *rule) most(count func(*part) int) int { return max(r.part.most(count)) }

// most returns the largest sums over a part and those below it, where one of them decides, or -1 if none does, and
// where none does, so that those above apply as well: see [part.ask].
func (p *part) most(count func(*part) int) (decided, undecided int) {
	own, decides := count(p), p.unlimited
	for _, g := range p.below {
		most, mostUndecided := 0, 0
		for _, d := range g.values {
			yes, no := d.most(count)
			most, mostUndecided, decides = max(most, yes, no), max(mostUndecided, no), decides || yes >= 0
		}
		decided, undecided = decided+most, undecided+mostUndecided
	}
	switch {
	case p.unlimited || !p.shadow && own > 0:
		return max(decided, undecided+own), 0
	case decides:
		return decided + own, undecided + own
	}
	return -1, undecided + own
}

// atMost reports the first rule with which more may apply to one request than there may be in a rule, or in all rules.
func (doc *document) atMost(count func(*part) int, inRule, inFile int, problem, remedy string) {
	sum := 0
	for _, r := range doc.rules {
		n := r.most(count)
		if sum += n; !doc.all {
			sum = n
		}
		if n > inRule || sum > inFile {
			r.at.asFirst().fault(fmt.Sprintf(problem, sum), remedy)
			return
		}
	}
}

// tooMany reports rules that have more limits together than are decided at once: a rule more than a policy may have,
// and a file of which all rules may apply to one request more than a request may be asked about. joins is why the store
// cannot decide about several logs, or nil.
func (doc *document) tooMany(joins error) {
	doc.atMost(limits, engine.MostLimits, store.MostTakes, "with this rule, %d limits may apply to one request",
		fmt.Sprintf("write at most %d in a rule, and %d in all with apply: all", engine.MostLimits, store.MostTakes))
	if joins != nil {
		problem, remedy := reason(joins)
		doc.atMost(parts, 1, 1, "with this rule, %d parts with limits may apply to one request: "+problem,
			remedy+"; or write apply: first, and a rule for each descriptor")
	}
}
