package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
)

// The words for algorithms.
const (
	slidingLog     = "sliding_window_log"
	slidingCounter = "sliding_window_counter"
	fixedWindow    = "fixed_window"
	tokenBucket    = "token_bucket"
)

var algorithmNames = []string{slidingLog, slidingCounter, fixedWindow, tokenBucket}

// limit is a limit of a rule.
type limit struct {
	core.Limit

	text   string
	node   *yaml.Node
	key    *key // or nil: that of the rule
	counts bool // of another algorithm than the sliding log
}

// limits reads the limits of a rule or a descriptor. usual is the algorithm of the rule.
func (k *keys) limits(n *yaml.Node, field, usual string) (all []limit) {
	list := items(n)
	if n != nil && n.Kind == yaml.SequenceNode && len(list) == 0 {
		k.add(n, field, "the list is empty", `write at least one limit, such as "100/minute", or unlimited: true`)
	}
	var names []string
	for i, one := range list {
		l, ok := k.limit(one, item(field, i), usual)
		if !ok {
			continue
		}
		name := cmp.Or(l.Name, k.prefix+engine.FormOf(l.Limit).Name)
		if slices.Contains(names, name) {
			k.nameTwice(one, item(field, i), name)
		}
		all, names = append(all, l), append(names, name)
	}
	return all
}

// nameTwice reports a limit that has the name of an earlier one, given or by default.
func (k *keys) nameTwice(n *yaml.Node, field, name string) {
	at := n
	if given := get(n, "name"); given != nil {
		at, field = given, join(field, "name")
	}
	k.add(first(at), field, fmt.Sprintf("the name %q is there twice", cut(name)),
		"drop one of the limits, or give each a name of its own: {limit: TEXT, name: NAME}")
}

func (k *keys) limit(n *yaml.Node, field, usual string) (l limit, ok bool) {
	at, at2, algorithm, own := n, field, usual, false
	if n.Kind == yaml.MappingNode {
		if at, at2 = get(n, "limit"), join(field, "limit"); at == nil {
			return l, false
		}
		if a := get(n, "algorithm"); a != nil {
			algorithm, own = a.Value, true
		}
		if named := get(n, "key"); named != nil {
			l.key = k.of(named, join(field, "key"), keyWords)
		}
		if l.key == nil && get(n, "key") != nil {
			return l, false
		}
	}
	if at.Kind != yaml.ScalarNode {
		return l, false
	}
	parsed, err := core.ParseLimit(at.Value)
	if err != nil {
		k.badLimit(at, at2, err)
		return l, false
	}
	l.Limit, l.text, l.node = parsed, at.Value, at
	if l.Limit, l.counts, ok = k.with(n, at, field, l.Limit, algorithm, own); !ok {
		return l, false
	}
	if l.key != nil {
		l.Limit = l.By(l.key.Key)
	}
	if n.Kind == yaml.MappingNode {
		l.Name = textAt(n, "name")
		if named := get(n, "name"); named != nil && !isLimitName(l.Name) {
			k.add(named, join(field, "name"), fmt.Sprintf("%q is not a limit's name", cut(l.Name)),
				"use 1 to 64 letters, digits, '.', '_' or '-'")
			return l, false
		}
	}
	return l, true
}

func (k *keys) badLimit(at *yaml.Node, field string, err error) {
	problem := fmt.Sprintf("%q is not a limit", cut(at.Value))
	quota, window, _ := strings.Cut(at.Value, "/")
	if strings.Trim(quota, "0 ") == "" && quota != "" {
		k.add(at, field, problem, "to refuse every request, use deny; the quota is at least 1")
		return
	}
	var config *core.ConfigError
	if !errors.As(err, &config) {
		config = &core.ConfigError{Problem: err.Error()}
	}
	remedy := config.Remedy
	if near := nearWindow(quota, window); near != "" {
		remedy = fmt.Sprintf("did you mean %q?", near)
	}
	k.add(at, field, problem+": "+config.Problem, remedy)
}

var windows = []string{"second", "minute", "hour", "day", "week", "month", "quarter", "year"}

// nearWindow returns the window that was probably meant, or "".
func nearWindow(quota, window string) string {
	word, rest, _ := strings.Cut(strings.TrimSpace(window), " ")
	near := nearest(strings.TrimSuffix(word, "s"), windows)
	if near == "" {
		return ""
	}
	if _, err := core.ParseLimit(strings.TrimSpace(quota + "/" + near + " " + rest)); err != nil {
		return "" // something else is wrong
	}
	return near
}

// with gives a limit an algorithm, and reports whether it is another than the sliding log. own says that it is the
// limit's own, and not that of the rule.
func (k *keys) with(
	n, at *yaml.Node, field string, l core.Limit, algorithm string, own bool,
) (made core.Limit, counts, ok bool) {
	form := engine.FormOf(l)
	counts = form.Burst || form.Calendar
	name := at
	if own {
		name = get(n, "algorithm")
	}
	impossible := func(reason, remedy string) (core.Limit, bool, bool) {
		k.add(name, field, fmt.Sprintf("%q cannot be a %s: %s", cut(at.Value), algorithm, reason), remedy)
		return l, counts, false
	}
	switch {
	case algorithm == "" || !slices.Contains(algorithmNames, algorithm):
		return l, counts, true
	case form.InFlight && own:
		return impossible("requests in flight have no window", "remove the algorithm")
	case form.Burst && own && algorithm != tokenBucket:
		return impossible("a burst makes it a token bucket", "remove the algorithm, or the burst")
	case form.InFlight || form.Burst:
		return l, counts, true
	case form.Calendar && (algorithm == tokenBucket || algorithm == slidingCounter):
		return impossible("periods of the calendar are counted one by one",
			"remove the algorithm, or choose "+fixedWindow)
	}
	switch algorithm {
	case fixedWindow:
		return l.With(core.FixedWindow), true, true
	case slidingCounter:
		return l.With(core.SlidingCounter), true, true
	case tokenBucket:
		return core.TokenBucket(l, l.Quota), true, true
	}
	return l, counts, true
}

const nameLetters = "abcdefghijklmnopqrstuvwxyz0123456789._-"

func isLimitName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(strings.ToLower(s), nameLetters) == ""
}
