package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/limittext"
)

// The words for algorithms.
const (
	slidingLog     = "sliding_window_log"
	slidingCounter = "sliding_window_counter"
	fixedWindow    = "fixed_window"
	tokenBucket    = "token_bucket"
)

// limit is a limit of a rule.
type limit struct {
	core.Limit

	at   place
	text string
	key  *key   // or nil: that of the rule
	unit string // what it counts, or empty: requests
}

// limits reads the limits of a rule or a descriptor. usual is the algorithm of the rule.
func (k *reader) limits(list place, usual string) (all []limit) {
	var names []string
	for _, one := range list.items() {
		l, ok := k.limit(one, usual)
		if !ok {
			continue
		}
		name := cmp.Or(l.Name, k.prefix+l.Given().DefaultName())
		if slices.Contains(names, name) { // given or by default
			at := one
			if given := one.get("name"); given.exists() {
				at = given
			}
			at.asFirst().fault(fmt.Sprintf("the name %q is used twice", cut(name)),
				"drop one of the limits, or give each a name of its own: {limit: TEXT, name: NAME}")
		}
		all, names = append(all, l), append(names, name)
	}
	return all
}

func (k *reader) limit(p place, usual string) (l limit, ok bool) {
	l.at = p
	if p.Kind == yaml.MappingNode {
		if l.at = p.get("limit"); !l.at.exists() {
			return l, false
		}
		if at := p.get("key"); at.exists() {
			if l.key = k.key(at); l.key == nil {
				return l, false
			}
		}
	}
	if l.at.isWrong() {
		return l, false
	}
	var err error
	l.text = l.at.Value
	if l.Limit, err = core.ParseLimit(l.text); err != nil {
		l.at.badLimit(err)
		return l, false
	}
	if !l.setUnit(p.get("unit")) || !l.setAlgorithm(p.get("algorithm"), usual) {
		return l, false
	}
	if l.key != nil {
		l.Limit = l.By(l.key.Key)
	}
	if at := p.get("name"); at.exists() {
		if l.Name = at.text(); !limittext.ValidName(l.Name) {
			at.fault(fmt.Sprintf("%q is not a limit's name", cut(l.Name)),
				"use 1 to 64 letters, digits, '.', '_' or '-'")
			return l, false
		}
	}
	return l, true
}

// setUnit gives a limit its unit, and reports whether it can have it.
func (l *limit) setUnit(at place) bool {
	form := l.Given()
	if l.unit = form.Unit; !at.exists() {
		return true
	}
	switch unit := at.text(); {
	case form.InFlight:
		at.fault("a limit of requests in flight counts requests", "remove the unit")
	case form.Unit != "" && form.Unit != unit:
		at.fault(fmt.Sprintf("%q counts %s already", cut(l.text), form.Unit), "remove one of the units")
	case !limittext.ValidUnit(unit):
		at.fault(fmt.Sprintf("%q is not a unit", cut(unit)), limittext.RemedyUnit)
	default:
		l.Limit = l.Of(unit)
		l.unit = l.Given().Unit
		return true
	}
	return false
}

// badLimit reports a text that is not a limit.
func (p place) badLimit(err error) {
	problem := fmt.Sprintf("%q is not a limit", cut(p.Value))
	quota, window, _ := strings.Cut(p.Value, "/")
	if strings.Trim(quota, "0 ") == "" && quota != "" {
		p.fault(problem, "to refuse every request, use deny; the quota is at least 1")
		return
	}
	var config *core.ConfigError
	errors.As(err, &config) // as all errors of ParseLimit are
	remedy := config.Remedy
	if near := nearWindow(quota, window); near != "" {
		remedy = fmt.Sprintf("did you mean %q?", near)
	}
	p.fault(problem+": "+config.Problem, remedy)
}

var windows = []string{"second", "minute", "hour", "day", "week", "month", "quarter", "year"}

// nearWindow returns the window that was probably meant, or "".
func nearWindow(quota, window string) string {
	word, rest, _ := strings.Cut(strings.TrimSpace(window), " ")
	near := nearest(strings.TrimSuffix(word, "s"), windows)
	if _, err := core.ParseLimit(strings.TrimSpace(quota + "/" + near + " " + rest)); err != nil {
		return "" // something else is wrong
	}
	return near
}

// setAlgorithm gives a limit its own algorithm or else the usual one of the rule, and reports whether it can have it.
func (l *limit) setAlgorithm(own place, usual string) bool {
	form, algorithm, at := l.Given(), usual, l.at
	if own.exists() {
		algorithm, at = own.text(), own
	}
	impossible := func(reason, remedy string) bool {
		at.fault(fmt.Sprintf("%q cannot be a %s: %s", cut(l.text), algorithm, reason), remedy)
		return false
	}
	burst, periods := form.Burst > 0, form.Calendar.IsSet()
	switch {
	case algorithm == "":
	case form.InFlight && own.exists():
		return impossible("requests in flight have no window", "remove the algorithm")
	case burst && own.exists() && algorithm != tokenBucket:
		return impossible("a burst makes it a token bucket", "remove the algorithm, or the burst")
	case form.InFlight || burst:
	case periods && (algorithm == tokenBucket || algorithm == slidingCounter):
		return impossible("calendar periods are fixed windows", "remove the algorithm, or choose "+fixedWindow)
	case algorithm == fixedWindow:
		l.Limit = l.With(core.FixedWindow)
	case algorithm == slidingCounter:
		l.Limit = l.With(core.SlidingCounter)
	case algorithm == tokenBucket:
		l.Limit = core.TokenBucket(l.Limit, l.Quota)
	}
	return true
}
