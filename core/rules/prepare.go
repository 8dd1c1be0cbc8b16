package rules

import (
	"fmt"
	"strings"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/bridge"
)

type (
	choice   = bridge.Choice[core.Key]
	prepared = bridge.Prepared
	toAsk    = bridge.Rule[core.Key, core.Limit, core.Failure]
	names    = func(*choice) (bool, error) // reports whether a list names the client of a request
)

// engine is what package core does for this package.
var engine = bridge.Core.(*bridge.Rules[ //nolint:forcetypeassert // core sets it
	*core.Limiter, core.Option, core.Key, core.Limit, core.Failure, core.Decision,
])

// preparer makes the rules of a document ready for a limiter.
type preparer struct {
	*reader

	doc   *document
	rules []toAsk
	of    []leaf
}

// leaf is what has limits: a rule or a descriptor.
type leaf struct {
	limits   []limit
	at       place
	prepared *prepared
}

// prepare makes the rules of a document ready for a limiter.
func (k *reader) prepare(doc *document, l *core.Limiter) {
	p := &preparer{reader: k, doc: doc}
	for _, r := range doc.rules {
		names := make(map[string]string)
		if len(r.limits) > 0 {
			p.add(r, leaf{r.limits, r.at, &r.prepared}, r.key, "", names, r.shadow)
		}
		for _, d := range descriptors(r.tree) {
			if len(d.limits) > 0 {
				p.add(r, leaf{d.limits, d.at, &d.prepared}, p.joined(d.above), d.label(), names, d.shadow)
			}
		}
	}
	prepared, faults := engine.Prepare(l, p.rules)
	for i, of := range p.of {
		if *of.prepared = prepared[i]; faults[i] != nil {
			of.at.get("limits").asName().fault(reason(faults[i]))
		}
	}
}

const longestLabel = 40

// label names the keys of a descriptor and of those above it.
func (d *descriptor) label() string {
	label := "d"
	for _, of := range d.above {
		label += "." + of.label
	}
	if len(label) > longestLabel {
		return "d-" + hash(label)
	}
	return label
}

// add adds the limits of a rule or a descriptor. names has which label has a limit of a default name: two that may hold
// at once need different ones.
func (p *preparer) add(r *rule, of leaf, own *key, label string, names map[string]string, shadow bool) {
	one := toAsk{
		Policy: r.name, Name: p.doc.domain + "." + r.name, Label: label, Prefix: r.name + "-",
		Shadow: shadow, Failure: r.failure, Detail: r.message,
	}
	if own != nil {
		one.Key = own.Key
	}
	for _, l := range of.limits {
		one.Limits = append(one.Limits, l.Limit)
		if l.Name != "" {
			continue
		}
		form := l.String()
		if other, taken := names[form]; taken && other != label {
			one.Prefix = r.name + "-" + strings.TrimPrefix(label, "d.") + "-"
		} else {
			names[form] = label
		}
		if len(one.Prefix)+len(form)+8 > 64 && len(r.name)+len(form) > 40 {
			l.at.fault(fmt.Sprintf("the default name of the limit %q is too long", cut(l.text)),
				"give it one: {limit: "+l.text+", name: NAME}")
		}
	}
	p.rules, p.of = append(p.rules, one), append(p.of, of)
}
