package rules

import (
	"strings"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
)

type choice = gate.Choice

// prepare makes the rules of a document ready for a limiter.
func (doc *document) prepare(e *engine.Engine) {
	for _, r := range doc.rules {
		labels := make(map[string]string) // of default names of limits: two that may hold at once need different ones
		for _, p := range r.parts {
			if len(p.limits) == 0 {
				continue
			}
			p.prepared = p.toAsk(doc.domain, r, labels)
			doc.prepared = append(doc.prepared, p.prepared)
			if err := e.Prepare(p.prepared); err != nil {
				p.at.get("limits").asName().fault(reason(err))
			}
		}
	}
}

// label names the keys of a descriptor and of those above it. A rule has none.
func (p *part) label() string {
	const longest = 40
	if p.above == nil {
		return ""
	}
	names := []string{"d"}
	for _, key := range p.above {
		names = append(names, key.label)
	}
	label := strings.Join(names, ".")
	if len(label) > longest {
		return "d-" + hash(label)
	}
	return label
}

// toAsk returns the limits of a rule or a descriptor.
func (p *part) toAsk(domain string, r *rule, labels map[string]string) *engine.Rule {
	label := p.label()
	one := &engine.Rule{
		Policy: r.name, Name: domain + "." + r.name, Label: label, Prefix: r.name + "-",
		Shadow: p.shadow, Detail: r.message, Key: keys.Global(),
	}
	if p.key != nil {
		one.Key = p.key.Spec()
	}
	for _, l := range p.limits {
		given := l.Given()
		if l.key != nil {
			given.Key, given.Label = l.key.Spec(), l.key.label
		}
		one.Limits = append(one.Limits, given)
		if l.Name != "" {
			continue
		}
		name := given.DefaultName()
		if other, taken := labels[name]; taken && other != label {
			one.Prefix = r.name + "-" + strings.TrimPrefix(label, "d.") + "-"
		} else {
			labels[name] = label
		}
	}
	return one
}
