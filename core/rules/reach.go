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

// limits and parts are what [part.most] adds up.
func limits(p *part) int { return len(p.limits) }
func parts(p *part) int  { return min(len(p.limits), 1) } // of parts that have limits

// most returns the largest sum over p and the parts below it that may apply to one request: of those in shadow, or of
// the others, of which only the deepest apply. See [rule.askPart].
func (p *part) most(shadow bool, count func(*part) int) int {
	own, below := 0, 0
	if p.shadow == shadow {
		own = count(p)
	}
	for _, g := range p.below {
		most := 0
		for _, d := range g.values {
			most = max(most, d.most(shadow, count))
		}
		below += most
	}
	if shadow {
		return own + below
	}
	return max(own, below)
}

// atMost reports the first rule with which more may apply to one request than there may be in a rule, or in all rules.
// Those in shadow are decided apart from the others.
func (doc *document) atMost(count func(*part) int, inRule, inFile int, problem, remedy string) {
	for _, shadow := range []bool{false, true} {
		sum := 0
		for _, r := range doc.rules {
			n := r.most(shadow, count)
			if sum += n; !doc.all {
				sum = n
			}
			if n > inRule || sum > inFile {
				r.at.asFirst().fault(fmt.Sprintf(problem, sum), remedy)
				break
			}
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
