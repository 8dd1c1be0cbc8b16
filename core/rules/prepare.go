package rules

import (
	"fmt"
	"strings"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/internal/plan"
)

// prepare makes the rules of a document ready for a limiter.
func (k *reader) prepare(doc *document, l *core.Limiter) {
	var rules []toAsk
	var parts []*part
	for _, r := range doc.rules {
		names := make(map[string]string)
		for _, part := range r.parts() {
			if len(part.limits) > 0 {
				rules, parts = append(rules, k.toAsk(doc.domain, r, part, names)), append(parts, part)
			}
		}
	}
	prepared, faults := engine.Prepare(l, rules)
	for i, part := range parts {
		if part.prepared = prepared[i]; faults[i] != nil {
			part.at.get("limits").asName().fault(reason(faults[i]))
		}
	}
}

const longestLabel = 40

// label names the keys of a descriptor and of those above it. A rule has none.
func (p *part) label() string {
	if p.above == nil {
		return ""
	}
	labels := []string{"d"}
	for _, key := range p.above {
		labels = append(labels, key.label)
	}
	label := strings.Join(labels, ".")
	if len(label) > longestLabel {
		return "d-" + hash(label)
	}
	return label
}

// toAsk returns the limits of a rule or a descriptor. names has which label has a limit of a default name: two that may
// hold at once need different ones.
func (k *reader) toAsk(domain string, r *rule, part *part, names map[string]string) toAsk {
	own, label := r.key, part.label()
	switch len(part.above) {
	case 0:
	case 1:
		own = part.above[0]
	default:
		own = k.combined("join", part.above)
	}
	one := toAsk{
		Policy: r.name, Name: domain + "." + r.name, Label: label, Prefix: r.name + "-",
		Shadow: part.shadow, Failure: r.failure, Detail: r.message,
	}
	if own != nil {
		one.Key = own.Key
	}
	for _, l := range part.limits {
		one.Limits = append(one.Limits, l.Limit)
		if l.Name == "" {
			name := engine.FormOf(l.Limit).Name
			if other, taken := names[name]; taken && other != label {
				one.Prefix = r.name + "-" + strings.TrimPrefix(label, "d.") + "-"
			} else {
				names[name] = label
			}
		}
	}
	for _, l := range part.limits {
		if l.Name == "" && !limittext.ValidName(one.Prefix+engine.FormOf(l.Limit).Name) {
			l.at.fault(fmt.Sprintf("the default name of the limit %q is too long", cut(l.text)),
				"give it one: {limit: "+l.text+", name: NAME}")
		}
	}
	return one
}

type (
	choice   = bridge.Choice[core.Key]
	prepared = *plan.Part
	toAsk    = bridge.Rule[core.Key, core.Limit, core.Failure]
	names    = func(*choice) (bool, error) // reports whether a list names the client of a request
)

// engine is what package core does for this package.
var engine = bridge.Core.(*bridge.Rules[ //nolint:forcetypeassert // core sets it
	*core.Limiter, core.Option, core.Key, core.Limit, core.Failure, core.Decision,
])
