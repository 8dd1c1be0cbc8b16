package rules

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core/internal/clientip"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/keys"
)

// document is a file that has been read.
type document struct {
	hash   string
	loaded time.Time
	domain string
	all    bool // every rule that matches applies, and not only the first
	rules  []*rule
	asks   []*engine.Rule // of all parts that have limits
}

// rule is a rule of the file.
type rule struct {
	part

	name        string
	match       match
	cost        int
	costs       []unitCost
	countDenied bool // denials are recorded
	message     string
	allow       *keys.List // or nil
	deny        *keys.List // or nil
	parts       []*part    // itself and its descriptors, in the order of the file
}

// part is what may have limits: a rule, or one of its descriptors.
type part struct {
	at        place
	unlimited bool
	shadow    bool
	key       *key // whose quota it is; of a descriptor, together with the keys of those above. Or nil
	limits    []limit
	below     []*group // descriptors

	asks *engine.Rule // limits as the engine has them, or nil if there are none
}

// group is the descriptors of one key.
type group struct {
	key    *key
	values map[string]*part // that of the empty text is for values that have none of their own
}

// reader reads a file. Equal keys are one core.Key, so that a request reads each once.
type reader struct {
	*options

	doc    *document
	engine *engine.Engine
	known  map[string]*key
	labels map[string]string // of a rule's limits, by default names: two that may hold at once need different ones
}

// failures are the words for failure policies.
var failures = map[string]guard.Failure{
	"": guard.Local, "local": guard.Local, "open": guard.Open, "closed": guard.Closed,
}

const longestName = 48

// read reads the rules of a file, and makes them ready for the limiter.
func (s *Set) read(content []byte, top place) (doc *document) {
	doc = &document{
		hash: hashOf(content), loaded: time.Now(), domain: cmp.Or(top.get("domain").Value, "default"),
		all: top.get("apply").Value == "all",
	}
	defer top.faults.recover()
	if failure := top.get("failure"); failures[failure.Value] != s.failure {
		failure.fault("the failure policy cannot change while the program runs",
			"restart the program, or keep the one that it has begun with")
	}
	k := &reader{
		options: &s.options, doc: doc, engine: s.limiter.Inside().Engine(), known: make(map[string]*key),
	}
	for _, one := range top.get("rules").items() {
		r, at := k.rule(one), one.get("name")
		isNamed := func(earlier *rule) bool { return earlier.name == r.name && r.name != "" }
		if i := slices.IndexFunc(doc.rules, isNamed); i >= 0 {
			at.fault(fmt.Sprintf("the name %q is used twice", r.name),
				fmt.Sprintf("choose another name: line %d has it too", doc.rules[i].at.get("name").Line))
		}
		if len(doc.domain)+1+len(r.name) > longestName {
			at.fault(fmt.Sprintf("domain and name together are longer than %d characters", longestName-1),
				"shorten one: they name the logs, as "+doc.domain+"."+r.name)
		}
		doc.rules = append(doc.rules, r)
	}
	doc.unreachable()
	doc.tooMany(k.engine.Joins())
	return doc
}

func hashOf(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

func (k *reader) rule(p place) *rule {
	r := &rule{
		name: p.get("name").Value, countDenied: p.get("count_denied").isTrue(),
		message: p.get("message").Value, match: k.match(p.get("match")),
	}
	k.labels = make(map[string]string)
	p.checkLimits("limits", "descriptors", "unlimited")
	at := p.get("key")
	if r.key = k.key(at); r.key != nil && p.get("descriptors").exists() {
		at.asName().fault("a rule with descriptors takes no key", "remove it, and set key on each descriptor")
	}
	k.part(&r.part, p, r, nil)
	noKey := func(l limit) bool { return l.Key == nil }
	if i := slices.IndexFunc(r.limits, noKey); i >= 0 && !at.exists() {
		p.asFirst().fault(fmt.Sprintf("the limit %.60q has no key", r.limits[i].at.Value),
			"add key: to the rule, such as key: ip, or to each of its limits")
	}
	r.allow, r.deny = k.list(r, p.get("allow")), k.list(r, p.get("deny"))
	k.costs(p, r)
	return r
}

// part reads what rules and descriptors have in common. above are the keys of the descriptors above, and of this one.
func (k *reader) part(one *part, p place, r *rule, above []*key) {
	one.at, one.unlimited, one.shadow = p, p.get("unlimited").isTrue(), r.shadow || p.get("shadow").isTrue()
	r.parts = append(r.parts, one)
	list := p.get("limits")
	one.limits = k.limits(list, cmp.Or(p.get("algorithm").Value, r.at.get("algorithm").Value))
	if len(one.limits) > 0 {
		one.asks = k.asks(one, r)
		k.doc.asks = append(k.doc.asks, one.asks)
		if !p.faults.hasFault(p.field) { // else limits or keys may be missing
			if err := k.engine.Prepare(one.asks); err != nil {
				list.asName().fault(reason(err))
			}
		}
	}
	one.below = k.groups(p.get("descriptors"), r, above)
}

// asks returns the limits of a part as the engine has them.
func (k *reader) asks(p *part, r *rule) *engine.Rule {
	label := "" // of a descriptor, whose logs and overrides are not those of the rule's own key
	if p != &r.part {
		label = p.key.label
	}
	one := &engine.Rule{
		Policy: r.name, Name: k.doc.domain + "." + r.name, Label: label, Prefix: r.name + "-",
		Shadow: p.shadow, Detail: r.message, Key: keys.Global(),
	}
	if p.key != nil {
		one.Key = p.key.Spec()
	}
	for _, l := range p.limits {
		one.Limits = append(one.Limits, l.Given)
		if l.Name != "" {
			continue
		}
		name := l.DefaultName()
		if other, taken := k.labels[name]; taken && other != label {
			one.Prefix = r.name + "-" + label + "-"
		} else {
			k.labels[name] = label
		}
	}
	return one
}

// checkLimits reports a rule or a descriptor that has no limits, or more than one of some fields.
func (p place) checkLimits(exclusive ...string) {
	var given []place
	for _, name := range exclusive {
		if f := p.get(name); f.exists() && (name != "unlimited" || f.isTrue() || f.isEmpty()) {
			given = append(given, f)
		}
	}
	switch {
	case len(given) > 1:
		given[1].asName().fault("this cannot be combined with "+given[0].name.Value, "keep one of them")
	case len(given) == 0 && !p.get("descriptors").exists():
		p.asFirst().fault("there are no limits here", "add limits, descriptors or unlimited: true")
	}
}

// groups reads a list of descriptors.
func (k *reader) groups(list place, r *rule, above []*key) (groups []*group) {
	for _, one := range list.items() {
		at := one.get("key")
		own := k.key(at)
		if own == nil {
			continue
		}
		if slices.Contains(above, own) {
			at.fault("a descriptor above has this key", "remove one")
			continue
		}
		i := slices.IndexFunc(groups, func(g *group) bool { return g.key == own })
		if i < 0 {
			i, groups = len(groups), append(groups, &group{own, make(map[string]*part)})
		}
		k.descriptor(one, r, groups[i], append(slices.Clone(above), own))
	}
	return groups
}

// descriptor reads a descriptor of a group. above are the keys of those above it, and its own.
func (k *reader) descriptor(p place, r *rule, g *group, above []*key) {
	d := &part{key: g.key}
	if len(above) > 1 {
		d.key = k.combined("join", above)
	}
	v := p.get("value")
	if !v.isEmpty() {
		v.checkValue(g.key)
	}
	if same := g.values[v.Value]; same != nil {
		p.get("key").asName().fault("this key and value are used twice",
			fmt.Sprintf("merge this with the descriptor on line %d", same.at.Line))
	} else {
		g.values[v.Value] = d
	}
	p.checkLimits("limits", "unlimited")
	k.part(d, p, r, above)
}

// checkValue reports a descriptor's value that no request can have.
func (p place) checkValue(key *key) {
	a, _ := netip.ParseAddr(p.Value) // the zero Addr if it fails
	a = clientip.Canonical(a)
	addresses := key.label == "ip" || key.label == "forwarded"
	switch {
	case key.Spec().Finds("join"):
		p.fault("a joined key has several values", "use descriptors within descriptors")
	case addresses && !a.IsValid() && p.Value != clientip.UnixSocket:
		p.fault(fmt.Sprintf("%.60q is not an address, which the key finds", p.Value),
			"write one address, such as 192.0.2.1; allow and deny take networks")
	case addresses && a.IsValid() && a.String() != p.Value:
		p.fault(fmt.Sprintf("no request has the address in the form %q", p.Value), "write "+a.String())
	}
}

// list reads allow or deny.
func (k *reader) list(r *rule, p place) *keys.List {
	values, own := p, r.key
	if p.Kind == yaml.MappingNode {
		values, own = p.get("values"), k.key(p.get("key"))
	} else if !p.isEmpty() && !r.at.get("key").exists() {
		p.fault("the rule has no key that these could be values of", "write {key: ip, values: [...]}")
	}
	if own == nil {
		return nil
	}
	var entries []string
	for _, one := range values.items() {
		if _, err := keys.NewList("list", own.Spec(), []string{one.Value}, true); err != nil {
			one.fault(reason(err))
		}
		entries = append(entries, one.Value)
	}
	made, _ := keys.NewList("list", own.Spec(), entries, true) // their mistakes are reported
	return made
}
