package rules

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
)

// preparer makes the rules of a document ready for a limiter.
type preparer struct {
	*keys

	doc   *document
	rules []toAsk
	of    []leaf
}

// leaf is what has limits: a rule or a descriptor.
type leaf struct {
	limits   []limit
	node     *yaml.Node
	field    string
	prepared *prepared
}

// prepare makes the rules of a document ready for a limiter.
func (k *keys) prepare(doc *document, l *core.Limiter) {
	p := &preparer{keys: k, doc: doc}
	for _, r := range doc.rules {
		names := make(map[string]string)
		if len(r.limits) > 0 {
			p.add(r, leaf{r.limits, r.node, r.field, &r.prepared}, r.key, "", names, r.shadow)
		}
		p.addAll(r, r.tree, names)
	}
	prepared, faults := engine.Prepare(l, p.rules)
	for i, of := range p.of {
		if *of.prepared = prepared[i]; faults[i] != nil {
			problem, remedy := reason(faults[i])
			at, field := nameNode(of.node, "limits"), join(of.field, "limits")
			k.add(at, field, problem, remedy)
		}
	}
}

func (p *preparer) addAll(r *rule, groups []*group, names map[string]string) {
	for _, g := range groups {
		for _, d := range g.all() {
			if len(d.limits) > 0 {
				labels := []string{"d"}
				for _, of := range d.above {
					labels = append(labels, of.label)
				}
				label := strings.Join(labels, ".")
				if len(label) > longestLabel {
					label = "d-" + hash(label)
				}
				p.add(r, leaf{d.limits, d.node, d.field, &d.prepared}, p.joined(d.above), label, names, d.shadow)
			}
			p.addAll(r, d.below, names)
		}
	}
}

const longestLabel = 40

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
	for i, l := range of.limits {
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
			p.tooLong(l, item(join(of.field, "limits"), i))
		}
	}
	p.rules, p.of = append(p.rules, one), append(p.of, of)
}

// tooLong reports a limit whose default name would be too long.
func (p *preparer) tooLong(l limit, field string) {
	p.faults.add(l.node, field, fmt.Sprintf("the name of the limit %q would be too long", cut(l.text)),
		"give it one: {limit: "+l.text+", name: NAME}")
}
