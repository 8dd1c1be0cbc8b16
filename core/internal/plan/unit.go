package plan

import (
	"cmp"
	"slices"
	"strings"
)

// Requests is the name of the unit of limits that are given no other. As a unit it is an empty text.
const Requests = "requests"

// ValidUnit reports whether a limit can have a unit of this name.
func ValidUnit(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// RemedyUnit is for a unit that is not valid.
const RemedyUnit = "use 1 to 32 lower-case letters, digits or '-'"

// UnitName returns the name of a unit.
func UnitName(unit string) string { return cmp.Or(unit, Requests) }

// UnitNames returns the names of the units that the plan's limits count.
func (p *Plan) UnitNames() (names []string) {
	if p.Counts(UnitName(p.Unit)) {
		names = append(names, UnitName(p.Unit))
	}
	for _, u := range p.Units {
		names = append(names, UnitName(u))
	}
	return names
}

// Counts reports whether the plan has a limit of the unit with a name, or a log that records it, as where an override
// lets the limits deny nothing.
func (p *Plan) Counts(name string) bool {
	of := func(l *Limit) bool { return !l.InFlight && UnitName(l.Unit) == name }
	return slices.ContainsFunc(p.All(), func(l Limit) bool { return of(&l) }) ||
		slices.ContainsFunc(p.Logs, func(l *Log) bool { return of(&l.Limits[0]) })
}

// NoUnnamed returns an error if it is not certain of which unit a cost without a name is: if there are several, and
// none is requests.
func (p *Plan) NoUnnamed(option string) error {
	if p.Unit == "" || !p.mixed {
		return nil
	}
	return configError(option, "without a unit",
		"the limits count several units: "+strings.Join(p.UnitNames(), ", "),
		"use AllowCosts, SettleCosts or WithCostOf, which name them")
}

// findUnits finds the units of the limits and of the shadow's.
func (p *Plan) findUnits() {
	p.Units, p.mixed = nil, false
	for i, l := range p.All() {
		if l.InFlight || l.Unit == p.Unit {
			continue
		}
		if p.mixed = p.mixed || i < len(p.Limits); !slices.Contains(p.Units, l.Unit) {
			p.Units = append(p.Units, l.Unit)
		}
	}
}

// unnamedUnit returns the unit of costs without a name: requests if there is a limit of them, or else that of the first
// limit that has a window.
func unnamedUnit(limits []Limit) (unit string) {
	for i := range limits {
		l := &limits[i]
		if !l.InFlight && l.Unit == "" {
			return ""
		}
		if !l.InFlight && unit == "" {
			unit = l.Unit
		}
	}
	return unit
}
