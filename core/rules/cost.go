package rules

import (
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/plan"
)

// unitCost is what a request takes of a unit.
type unitCost struct {
	unit  string
	cost  int
	value string // of earlier middleware, which is the cost; or empty
}

// costs reads what a request takes of units other than requests.
func (k *reader) costs(p place, r *rule) (all []unitCost) {
	var units []string // of the rule's limits
	for _, of := range r.parts() {
		for _, l := range of.limits {
			if l.unit == "" || slices.Contains(units, l.unit) {
				continue
			}
			if units = append(units, l.unit); !p.get(l.unit).exists() {
				r.at.get("name").fault(fmt.Sprintf("%q counts %s, and the rule does not say what a request costs",
					cut(l.text), l.unit), fmt.Sprintf("add costs: {%s: {value: NAME}}, or a number", l.unit))
			}
		}
	}
	for _, one := range p.fields() {
		of := unitCost{unit: one.name.Value}
		switch {
		case of.unit == plan.Requests:
			one.asName().fault("requests have a cost of their own", "write cost: in place of it")
			continue
		case !slices.Contains(units, of.unit):
			one.asName().fault("no limit of the rule counts "+cut(of.unit),
				"remove it, or add a limit such as 100 "+cut(of.unit)+"/minute")
			continue
		case one.Kind == yaml.MappingNode:
			if of.value = one.get("value").text(); of.value == "" {
				continue
			}
		default:
			of.cost, _ = integer(one.Node)
		}
		all = append(all, of)
	}
	return all
}

// addCosts adds what a request takes of units other than requests. Of several rules the largest counts. A rule in
// shadow does not change what others ask.
func (r *rule) addCosts(req adapter.Request, c *choice) error {
	for _, of := range r.costs {
		cost, err := of.of(req)
		if err != nil {
			return fmt.Errorf("rule %s: %w", r.name, err)
		}
		costs := &c.Costs
		if r.shadow {
			costs = &c.TriedCosts
		}
		if *costs == nil {
			*costs = make(map[string]int)
		}
		(*costs)[of.unit] = max((*costs)[of.unit], cost)
	}
	return nil
}

// of returns the cost of a request.
func (u *unitCost) of(r adapter.Request) (cost int, err error) {
	if u.value == "" {
		return u.cost, nil
	}
	given := r.Value(u.value)
	switch given := given.(type) {
	case int:
		cost = given
	case int64:
		cost = int(given)
	case uint32:
		cost = int(given)
	case string:
		cost, err = strconv.Atoi(given)
	default:
		err = strconv.ErrSyntax
	}
	if err != nil || cost < 0 {
		return 0, fmt.Errorf("the value %s of the request is not a number of %s from 0 to %d: %T", u.value, u.unit,
			core.MaxQuota, given)
	}
	return min(cost, core.MaxQuota+1), nil
}
