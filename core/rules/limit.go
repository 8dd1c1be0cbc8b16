package rules

import (
	"cmp"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/store"
)

// limit is a limit of a rule.
type limit struct {
	engine.Given

	at place // of its text
}

// limits reads the limits of a rule or a descriptor. usual is the algorithm of the rule.
func (k *reader) limits(list place, usual string) (all []limit) {
	names := make(map[string]bool)
	for _, one := range list.items() {
		l, ok := k.limit(one, usual)
		if !ok {
			continue
		}
		if names[l.Name] {
			one.get("name").fault(fmt.Sprintf("the name %.60q is used twice", l.Name), "give the limit another name")
		}
		all, names[l.Name] = append(all, l), l.Name != ""
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
	key := k.key(p.get("key"))
	if l.at.isEmpty() || key == nil && p.get("key").exists() {
		return l, false
	}
	made, err := core.ParseLimit(l.at.Value)
	if err != nil {
		problem, remedy := reason(err)
		if quota, _, _ := strings.Cut(l.at.Value, "/"); quota != "" && strings.Trim(quota, "0 ") == "" {
			remedy = "to refuse every request, use deny; the quota is at least 1"
		}
		l.at.fault(problem, remedy)
		return l, false
	}
	switch unit, given := p.get("unit"), made.Given(); {
	case unit.isEmpty():
	case given.InFlight:
		unit.fault("a limit of requests in flight counts requests", "remove the unit")
	case given.Unit != "" && given.Unit != unit.Value:
		unit.fault(fmt.Sprintf("%.60q counts %s already", l.at.Value, given.Unit), "remove one of the units")
	default:
		made = made.Of(unit.Value)
	}
	l.Given = l.at.withAlgorithm(made, p.get("algorithm"), usual).Given()
	if l.Name = p.get("name").Value; key != nil {
		l.Key, l.Label = key.Spec(), key.label
	}
	return l, len(p.faults.all) == faults
}

// algorithms are the words for algorithms.
var algorithms = map[string]store.Algorithm{
	"sliding_window_log":     store.SlidingLog,
	"sliding_window_counter": store.SlidingCounter,
	"fixed_window":           store.FixedWindow,
	"token_bucket":           store.TokenBucket,
}

// withAlgorithm gives a limit its own algorithm, or the usual one of the rule if it can have another. p is its text.
func (p place) withAlgorithm(l core.Limit, own place, usual string) core.Limit {
	given, word, at := l.Given(), cmp.Or(own.Value, usual), p
	if own.exists() {
		at = own
	}
	algorithm, known := algorithms[word]
	as, isBucket := l.With(algorithm), algorithm == store.TokenBucket
	if isBucket {
		as = core.TokenBucket(l, l.Quota)
	}
	switch {
	case !known, given.Burst > 0 && isBucket, !own.exists() && (given.InFlight || given.Burst > 0):
	case given.InFlight, len(as.Given().Faults()) > 0:
		at.fault(fmt.Sprintf("%.60q cannot be a %s", p.Value, word), "remove the algorithm: a burst makes a "+
			"token bucket, calendar periods are fixed windows, and requests in flight have no window")
	default:
		return as
	}
	return l
}
