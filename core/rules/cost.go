package rules

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// unitCost is what a request takes of a unit.
type unitCost struct {
	unit  string
	cost  int
	value string // of earlier middleware, which is the cost; or empty
}

// costs reads what a request takes, and reports limits that cannot count it: of units that cost nothing, of quotas, or
// sizes of a bucket, that are below a fixed cost, so that no request would pass, and those that cannot count denials.
func (k *reader) costs(p place, r *rule) {
	requests, of := p.get("cost"), p.get("costs")
	r.cost = max(integer(requests.Node), 1)
	counted := make(map[string]bool)
	for _, part := range r.parts {
		for _, l := range part.limits {
			at := requests
			if l.Unit != "" {
				at = of.get(l.Unit)
			}
			if l.Unit != "" && !at.exists() && !counted[l.Unit] {
				l.at.fault(fmt.Sprintf("%.60q counts %s, and the rule does not say what a request costs",
					l.at.Value, l.Unit), fmt.Sprintf("add costs: {%s: {value: NAME}}, or a number", l.Unit))
			}
			counted[l.Unit] = true
			if r.countDenied && (l.Algorithm != store.SlidingLog || l.Calendar.IsSet()) {
				p.get("count_denied").fault("only limits of the algorithm sliding_window_log can count denials",
					"remove it, or choose that algorithm")
			}
			// In flight, a request takes one permit whatever it costs.
			if n := integer(at.Node); n > cmp.Or(l.Burst, l.Quota) && !l.InFlight {
				at.fault(fmt.Sprintf("a cost of %d never fits the limit %.60q on line %d", n, l.at.Value, l.at.Line),
					"lower the cost or raise the limit; to refuse every request, use deny")
			}
		}
	}
	for _, one := range of.fields() {
		u := unitCost{one.name.Value, integer(one.Node), one.get("value").Value}
		switch {
		case u.unit == limittext.Requests:
			one.asName().fault("requests have a cost of their own", "write cost: in place of it")
		case !counted[u.unit]:
			one.asName().fault(fmt.Sprintf("no limit of the rule counts %.60s", u.unit),
				fmt.Sprintf("remove it, or add a limit such as 100 %.60s/minute", u.unit))
		}
		r.costs = append(r.costs, u)
	}
}

// unitCosts returns what a request takes of units other than requests.
func (r *rule) unitCosts(req adapter.Request) (all []gate.UnitCost, err error) {
	for _, u := range r.costs {
		cost := u.cost
		if u.value != "" {
			given := req.Value(u.value)
			cost, err = strconv.Atoi(keys.TextOf(given)) // the largest int if it is larger
			if err != nil && !errors.Is(err, strconv.ErrRange) || cost < 0 {
				return nil, &adapter.ConstantError{Err: &core.ConfigError{
					Option: "costs", Value: "request", Problem: fmt.Sprintf("rule %s: the value %s of the request is "+
						"not a number of %s from 0 to %d: %T", r.name, u.value, u.unit, core.MaxQuota, given),
					Remedy: "store one under that name in middleware in front of the rules",
				}}
			}
		}
		all = append(all, gate.UnitCost{Unit: u.unit, Cost: min(cost, core.MaxQuota+1)})
	}
	return all, nil
}
