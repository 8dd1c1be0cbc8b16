package rules

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sashlimit/sash/core/internal/clientip"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// rule is a rule of the file.
type rule struct {
	part

	name        string
	match       match
	cost        int
	costs       []unitCost
	countDenied bool // denials are recorded
	message     string
	key         *key
	allow       *keys.List // or nil
	deny        *keys.List // or nil
}

// part is what may have limits: a rule, or one of its descriptors.
type part struct {
	at        place
	unlimited bool
	shadow    bool
	above     []*key // keys of the descriptors above, and of this one
	limits    []limit
	below     []*group // descriptors

	prepared *engine.Rule // of limits
}

// group is the descriptors of one key.
type group struct {
	key    *key
	values map[string]*part
	every  *part // for values that have no descriptor of their own, or nil
}

// document is a file that has been read.
type document struct {
	domain string
	all    bool // every rule that matches applies, and not only the first
	rules  []*rule

	failure string // a word of failures
}

// reader reads a file. Equal keys are one core.Key, so that a request reads each once.
type reader struct {
	*options

	prefix string // of the default names of limits: of the rule that is read
	route  string // its path
	known  map[string]*key
}

// failures are the words for failure policies.
var failures = map[string]guard.Failure{usualFailure: guard.Local, "open": guard.Open, "closed": guard.Closed}

const usualFailure = "local"

const longestName = 48

// document reads the rules of a file.
func (k *reader) document(p place) *document {
	domain := p.get("domain")
	domain.checkName()
	doc := &document{
		domain: cmp.Or(domain.text(), "default"), all: p.get("apply").text() == "all",
		failure: cmp.Or(p.get("failure").text(), usualFailure),
	}
	lines := make(map[string]int) // of the names
	for _, one := range p.get("rules").items() {
		r := k.rule(one)
		doc.rules = append(doc.rules, r)
		at := one.get("name")
		if r.name == "" {
			continue
		}
		if line, twice := lines[r.name]; twice {
			at.fault(fmt.Sprintf("the name %q is used twice", cut(r.name)),
				fmt.Sprintf("choose another name: line %d has it too", line))
		} else {
			lines[r.name] = at.Line
		}
		if len(doc.domain)+1+len(r.name) > longestName && len(r.name) <= longestName {
			at.fault(fmt.Sprintf("domain and name together are longer than %d characters", longestName-1),
				"shorten one: they name the logs, as "+cut(doc.domain+"."+r.name))
		}
	}
	return doc
}

// checkName reports a text that cannot name a policy.
func (p place) checkName() {
	name := p.text()
	valid := limittext.ValidName(name) && len(name) <= longestName && name == strings.ToLower(name)
	if p.exists() && !valid {
		p.fault(fmt.Sprintf("%q is not a name", cut(name)),
			fmt.Sprintf("use 1 to %d lower-case letters, digits, '.', '_' or '-'", longestName))
	}
}

func (k *reader) rule(p place) *rule {
	r := &rule{
		part: part{at: p, unlimited: p.get("unlimited").isTrue(), shadow: p.get("shadow").isTrue()},
		name: p.get("name").text(), cost: 1, countDenied: p.get("count_denied").isTrue(),
		message: p.get("message").text(), match: k.match(p.get("match")),
	}
	k.prefix, k.route = r.name+"-", r.match.route
	p.get("name").checkName()
	if cost := p.get("cost"); cost.exists() {
		r.cost, _ = integer(cost.Node)
	}
	p.exactlyOne("limits", "descriptors", "unlimited")
	if at := p.get("key"); at.exists() {
		if r.key = k.key(at); r.key != nil && p.get("descriptors").exists() {
			at.asName().fault("a rule with descriptors takes no key", "remove it, and set key on each descriptor")
		}
	}
	r.limits = k.limits(p.get("limits"), p.get("algorithm").text())
	noKey := func(l limit) bool { return l.key == nil }
	if i := slices.IndexFunc(r.limits, noKey); i >= 0 && !p.get("key").exists() {
		p.asFirst().fault(fmt.Sprintf("the limit %q has no key", cut(r.limits[i].text)),
			"add key: to the rule, such as key: ip, or to each of its limits")
	}
	r.below = k.groups(p.get("descriptors"), r, nil)
	r.allow, r.deny = k.list(r, p.get("allow")), k.list(r, p.get("deny"))
	r.checkCounters()
	r.costs = k.costs(p.get("costs"), r)
	return r
}

// exactlyOne reports if not exactly one of some fields is there. A field that is false counts as missing.
func (p place) exactlyOne(names ...string) {
	var found []place
	for _, name := range names {
		if f := p.get(name); f.exists() && (name != "unlimited" || f.isTrue()) {
			found = append(found, f)
		}
	}
	all := strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
	switch unlimited := p.get("unlimited"); {
	case len(found) == 0 && unlimited.exists():
		unlimited.fault("this is false, but there are no limits", "write "+all)
	case len(found) == 0:
		p.asFirst().fault("this rule has no limits", "add "+all)
	case len(found) > 1:
		found[1].asName().fault("this cannot be combined with "+found[0].name.Value, "keep one of "+all)
	}
}

// checkCounters reports what limits of other algorithms than the sliding log cannot do.
func (r *rule) checkCounters() {
	if !slices.ContainsFunc(r.parts(), func(p *part) bool {
		return slices.ContainsFunc(p.limits, func(l limit) bool {
			g := l.Given()
			return g.Algorithm != store.SlidingLog || g.Calendar.IsSet()
		})
	}) {
		return
	}
	if at := r.at.get("count_denied"); r.countDenied {
		at.fault("only limits of the algorithm "+slidingLog+" can count denials", "remove it, or choose that algorithm")
	}
}

// parts returns p and all descriptors below it, each before those below it.
func (p *part) parts() []*part {
	all := []*part{p}
	for _, g := range p.below {
		for _, d := range g.all() {
			all = append(all, d.parts()...)
		}
	}
	return all
}

// all returns the descriptors of a group, in the order of their values.
func (g *group) all() (all []*part) {
	for _, v := range slices.Sorted(maps.Keys(g.values)) {
		all = append(all, g.values[v])
	}
	if g.every != nil {
		all = append(all, g.every)
	}
	return all
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
			i, groups = len(groups), append(groups, &group{key: own, values: make(map[string]*part)})
		}
		k.descriptor(one, r, groups[i], above)
	}
	return groups
}

func (k *reader) descriptor(p place, r *rule, g *group, above []*key) {
	limits, below := p.get("limits"), p.get("descriptors")
	d := &part{
		at: p, unlimited: p.get("unlimited").isTrue(), shadow: r.shadow || p.get("shadow").isTrue(),
		above: append(slices.Clone(above), g.key),
	}
	same := g.every
	if v := p.get("value"); !v.exists() {
		g.every = cmp.Or(same, d)
	} else {
		v.checkValue(g.key)
		same = g.values[v.Value]
		g.values[v.Value] = cmp.Or(same, d)
	}
	if same != nil {
		p.get("key").asName().fault("this key and value are used twice",
			fmt.Sprintf("merge this with the descriptor on line %d", same.at.Line))
	}
	switch {
	case d.unlimited && limits.exists():
		limits.asName().fault("this cannot be combined with unlimited", "keep one of them")
	case !d.unlimited && !limits.exists() && !below.exists():
		p.asFirst().fault("this descriptor has no limits", "add limits, unlimited or descriptors")
	}
	d.limits = k.limits(limits, cmp.Or(p.get("algorithm").text(), r.at.get("algorithm").text()))
	d.below = k.groups(below, r, d.above)
}

// checkValue reports a descriptor's value that no request can have.
func (p place) checkValue(key *key) {
	switch {
	case p.isWrong():
	case p.Value == "":
		p.fault(emptyValue, "write a value, or leave the field out to match each value")
	case strings.Contains(p.Value, "*"):
		p.fault(fmt.Sprintf("%q has a wildcard, but values are compared exactly", cut(p.Value)),
			"leave the field out to match each value")
	case key.tuple:
		p.fault("a joined key has several values", "use descriptors within descriptors")
	case key.label == "ip" || key.label == "forwarded":
		a, _ := netip.ParseAddr(p.Value) // the zero Addr if it fails
		switch a = clientip.Canonical(a); {
		case !a.IsValid() && p.Value != clientip.UnixSocket:
			p.fault(fmt.Sprintf("%q is not an address, which the key finds", cut(p.Value)),
				"write one address, such as 192.0.2.1; allow and deny take networks")
		case a.IsValid() && a.String() != p.Value:
			p.fault(fmt.Sprintf("no request has the address in the form %q", cut(p.Value)), "write "+a.String())
		}
	}
}

const emptyValue = "the value is empty, but no key has an empty value"

// list reads allow or deny.
func (k *reader) list(r *rule, p place) *keys.List {
	values, own := p, r.key
	if at := p.get("key"); at.exists() {
		values, own = p.get("values"), k.key(at)
	} else if p.exists() && !p.isWrong() && !r.at.get("key").exists() {
		p.fault("the rule has no key that these could be values of", "write {key: ip, values: [...]}")
	}
	if own == nil {
		return nil
	}
	var entries []string
	for _, one := range values.items() {
		switch _, err := keys.NewList("list", own.Spec(), []string{one.Value}, true); {
		case err != nil:
			one.fault(reason(err))
		case slices.Contains(entries, one.Value):
			one.fault(fmt.Sprintf("%q is listed twice", cut(one.Value)), "remove one")
		default:
			entries = append(entries, one.Value)
		}
	}
	made, _ := keys.NewList("list", own.Spec(), entries, true) // of entries that are right, if there are any
	return made
}
