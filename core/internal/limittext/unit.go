package limittext

import (
	"cmp"
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
