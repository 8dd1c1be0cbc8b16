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

// limit is a limit of a rule.
type limit struct {
	core.Limit

	at  place // of its text
	key *key  // or nil: that of the rule
}

// unit returns what the limit counts, or an empty text for requests.
func (l *limit) unit() string { return l.Given().Unit }

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
			at := one.asFirst()
			if l.Name != "" {
				at = one.get("name")
			}
			at.fault(fmt.Sprintf("the name %q is used twice", cut(name)),
				"drop one of the limits, or give each a name of its own: {limit: TEXT, name: NAME}")
		}
		all, names = append(all, l), append(names, name)
	}
	return all
}

// limit reads a limit, and reports whether it has no mistakes.
func (k *reader) limit(p place, usual string) (l limit, ok bool) {
	faults := len(p.faults.all)
	l.at = p
	if p.Kind == yaml.MappingNode {
		l.at = p.get("limit")
	}
	if l.key = k.key(p.get("key")); l.at.isEmpty() || l.key == nil && p.get("key").exists() {
		return l, false
	}
	var err error
	if l.Limit, err = core.ParseLimit(l.at.Value); err != nil {
		l.at.badLimit(err)
		return l, false
	}
	l.setUnit(p.get("unit"))
	l.setAlgorithm(p.get("algorithm"), usual)
	if l.key != nil {
		l.Limit = l.By(l.key.Key)
	}
	name := p.get("name")
	if l.Name = name.Value; name.exists() && !limittext.ValidName(l.Name) {
		name.fault(fmt.Sprintf("%q is not a limit's name", cut(l.Name)), "use 1 to 64 letters, digits, '.', '_' or '-'")
	}
	return l, len(p.faults.all) == faults
}

// setUnit gives a limit its unit.
func (l *limit) setUnit(at place) {
	switch form := l.Given(); {
	case at.isEmpty():
	case form.InFlight:
		at.fault("a limit of requests in flight counts requests", "remove the unit")
	case form.Unit != "" && form.Unit != at.Value:
		at.fault(fmt.Sprintf("%q counts %s already", cut(l.at.Value), form.Unit), "remove one of the units")
	case !limittext.ValidUnit(at.Value):
		at.fault(fmt.Sprintf("%q is not a unit", cut(at.Value)), limittext.RemedyUnit)
	default:
		l.Limit = l.Of(at.Value)
	}
}

// badLimit reports a text that is not a limit.
func (p place) badLimit(err error) {
	var config *core.ConfigError
	errors.As(err, &config) // as all errors of ParseLimit are
	remedy := config.Remedy
	if quota, _, _ := strings.Cut(p.Value, "/"); quota != "" && strings.Trim(quota, "0 ") == "" {
		remedy = "to refuse every request, use deny; the quota is at least 1"
	}
	p.fault(fmt.Sprintf("%q is not a limit: %s", cut(p.Value), config.Problem), remedy)
}

// algorithms are the words for algorithms.
var algorithms = map[string]func(core.Limit) core.Limit{
	slidingLog:               func(l core.Limit) core.Limit { return l.With(core.SlidingLog) },
	"sliding_window_counter": func(l core.Limit) core.Limit { return l.With(core.SlidingCounter) },
	"fixed_window":           func(l core.Limit) core.Limit { return l.With(core.FixedWindow) },
	tokenBucket:              func(l core.Limit) core.Limit { return core.TokenBucket(l, l.Quota) },
}

const (
	slidingLog  = "sliding_window_log"
	tokenBucket = "token_bucket"
)

// setAlgorithm gives a limit its own algorithm, or the usual one of the rule if it can have another.
func (l *limit) setAlgorithm(own place, usual string) {
	form, word, at := l.Given(), cmp.Or(own.Value, usual), l.at
	if own.exists() {
		at = own
	}
	switch as := algorithms[word]; {
	case as == nil, !own.exists() && (form.InFlight || form.Burst > 0), form.Burst > 0 && word == tokenBucket:
	case form.InFlight, len(as(l.Limit).Given().Faults()) > 0:
		at.fault(fmt.Sprintf("%q cannot be a %s", cut(l.at.Value), word), "remove the algorithm: a burst makes a "+
			"token bucket, calendar periods are fixed windows, and requests in flight have no window")
	default:
		l.Limit = as(l.Limit)
	}
}
