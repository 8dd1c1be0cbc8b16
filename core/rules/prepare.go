package rules

import (
	"fmt"
	"strings"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
)

// prepare makes the rules of a document ready for a limiter.
func (k *reader) prepare(doc *document, e *engine.Engine) {
	for _, r := range doc.rules {
		names := make(map[string]string)
		for _, part := range r.parts() {
			if len(part.limits) == 0 {
				continue
			}
			part.prepared = k.toAsk(doc.domain, r, part, names)
			if err := e.Prepare(part.prepared); err != nil {
				part.at.get("limits").asName().fault(reason(err))
			}
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
func (k *reader) toAsk(domain string, r *rule, part *part, names map[string]string) *engine.Rule {
	own, label := r.key, part.label()
	switch len(part.above) {
	case 0:
	case 1:
		own = part.above[0]
	default:
		own = k.combined("join", part.above)
	}
	one := &engine.Rule{
		Policy: r.name, Name: domain + "." + r.name, Label: label, Prefix: r.name + "-",
		Shadow: part.shadow, Detail: r.message, Key: keys.Global(),
	}
	if own != nil {
		one.Key = own.Spec()
	}
	for _, l := range part.limits {
		given := l.Given()
		if l.key != nil {
			given.Key, given.Label = l.key.Spec(), l.key.label
		}
		one.Limits = append(one.Limits, given)
		if l.Name == "" {
			name := given.DefaultName()
			if other, taken := names[name]; taken && other != label {
				one.Prefix = r.name + "-" + strings.TrimPrefix(label, "d.") + "-"
			} else {
				names[name] = label
			}
		}
	}
	for _, l := range part.limits {
		if l.Name == "" && !limittext.ValidName(one.Prefix+l.Given().DefaultName()) {
			l.at.fault(fmt.Sprintf("the default name of the limit %q is too long", cut(l.text)),
				"give it one: {limit: "+l.text+", name: NAME}")
		}
	}
	return one
}

type choice = gate.Choice
