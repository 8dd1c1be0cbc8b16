package rules

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
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
	for _, part := range r.parts {
		for _, l := range part.limits {
			unit := l.unit()
			if unit == "" || slices.Contains(units, unit) {
				continue
			}
			if units = append(units, unit); !p.get(unit).exists() {
				l.at.fault(fmt.Sprintf("%q counts %s, and the rule does not say what a request costs",
					cut(l.at.Value), unit), fmt.Sprintf("add costs: {%s: {value: NAME}}, or a number", unit))
			}
		}
	}
	for _, one := range p.fields() {
		u := unitCost{unit: one.name.Value}
		switch {
		case u.unit == limittext.Requests:
			one.asName().fault("requests have a cost of their own", "write cost: in place of it")
		case !slices.Contains(units, u.unit):
			one.asName().fault("no limit of the rule counts "+cut(u.unit),
				"remove it, or add a limit such as 100 "+cut(u.unit)+"/minute")
		case one.Kind == yaml.MappingNode:
			u.value = one.get("value").Value
		default:
			u.cost, _ = integer(one.Node)
		}
		all = append(all, u)
	}
	return all
}

// unitCosts returns what a request takes of units other than requests.
func (r *rule) unitCosts(req adapter.Request) (all []gate.UnitCost, err error) {
	for _, u := range r.costs {
		cost, problem := u.read(req)
		if problem != "" {
			return nil, &gate.RulesError{Err: &core.ConfigError{
				Option: "costs", Value: "request", Problem: "rule " + r.name + ": " + problem,
				Remedy: "store one under that name in middleware in front of the rules",
			}}
		}
		all = append(all, gate.UnitCost{Unit: u.unit, Cost: cost})
	}
	return all, nil
}

// read returns the cost of a request, or why it is not known.
func (u *unitCost) read(r adapter.Request) (cost int, problem string) {
	if u.value == "" {
		return u.cost, ""
	}
	given := r.Value(u.value)
	cost, err := strconv.Atoi(keys.TextOf(given)) // the largest int if it is larger
	if err != nil && !errors.Is(err, strconv.ErrRange) || cost < 0 {
		return 0, fmt.Sprintf("the value %s of the request is not a number of %s from 0 to %d: %T", u.value, u.unit,
			core.MaxQuota, given)
	}
	return min(cost, core.MaxQuota+1), ""
}
