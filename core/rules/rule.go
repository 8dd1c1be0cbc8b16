package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core/internal/clientip"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// document is a file that has been read.
type document struct {
	hash   string
	loaded time.Time

	domain  string
	all     bool // every rule that matches applies, and not only the first
	failure place
	rules   []*rule

	prepared []*engine.Rule // of all parts that have limits
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
	key       *key   // whose quota it is; of a descriptor, together with the keys of those above. Or nil
	above     []*key // keys of the descriptors above, and of this one
	limits    []limit
	below     []*group // descriptors

	prepared *engine.Rule // of limits
}

// group is the descriptors of one key.
type group struct {
	key    *key
	values map[string]*part // that of the empty text is for values that have none of their own
}

// reader reads a file. Equal keys are one core.Key, so that a request reads each once.
type reader struct {
	*options

	prefix string // of the default names of limits: of the rule that is read
	route  string // its path
	known  map[string]*key
}

// failures are the words for failure policies.
var failures = map[string]guard.Failure{
	"": guard.Local, "local": guard.Local, "open": guard.Open, "closed": guard.Closed,
}

const longestName = 48

// document reads the rules of a file.
func (k *reader) document(p place, doc *document) {
	domain := p.get("domain")
	domain.checkName()
	doc.domain, doc.all, doc.failure = cmp.Or(domain.Value, "default"), p.get("apply").Value == "all", p.get("failure")
	lines := make(map[string]int) // of the names
	for _, one := range p.get("rules").items() {
		r := k.rule(one)
		doc.rules = append(doc.rules, r)
		at := one.get("name")
		if line, twice := lines[r.name]; twice && r.name != "" {
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
}

// checkName reports a text that cannot name a policy.
func (p place) checkName() {
	name := p.Value
	valid := limittext.ValidName(name) && len(name) <= longestName && name == strings.ToLower(name)
	if !p.isEmpty() && !valid {
		p.fault(fmt.Sprintf("%q is not a name", cut(name)),
			fmt.Sprintf("use 1 to %d lower-case letters, digits, '.', '_' or '-'", longestName))
	}
}

func (k *reader) rule(p place) *rule {
	r := &rule{
		part: part{at: p, unlimited: p.get("unlimited").isTrue(), shadow: p.get("shadow").isTrue()},
		name: p.get("name").Value, cost: 1, countDenied: p.get("count_denied").isTrue(),
		message: p.get("message").Value, match: k.match(p.get("match")),
	}
	r.parts = []*part{&r.part}
	k.prefix, k.route = r.name+"-", r.match.route
	p.get("name").checkName()
	if cost := p.get("cost"); !cost.isEmpty() {
		r.cost, _ = integer(cost.Node)
	}
	p.checkLimits("rule", [2]string{"limits", "unlimited"}, [2]string{"limits", "descriptors"},
		[2]string{"descriptors", "unlimited"})
	at := p.get("key")
	if r.key = k.key(at); r.key != nil && p.get("descriptors").exists() {
		at.asName().fault("a rule with descriptors takes no key", "remove it, and set key on each descriptor")
	}
	r.limits = k.limits(p.get("limits"), p.get("algorithm").Value)
	noKey := func(l limit) bool { return l.key == nil }
	if i := slices.IndexFunc(r.limits, noKey); i >= 0 && !at.exists() {
		p.asFirst().fault(fmt.Sprintf("the limit %q has no key", cut(r.limits[i].at.Value)),
			"add key: to the rule, such as key: ip, or to each of its limits")
	}
	r.below = k.groups(p.get("descriptors"), r, nil)
	r.allow, r.deny = k.list(r, p.get("allow")), k.list(r, p.get("deny"))
	if r.countDenied && slices.ContainsFunc(r.parts, (*part).hasCounters) {
		p.get("count_denied").fault("only limits of the algorithm "+slidingLog+" can count denials",
			"remove it, or choose that algorithm")
	}
	r.costs = k.costs(p.get("costs"), r)
	return r
}

// checkLimits reports a rule or a descriptor that has no limits, or pairs of fields that exclude each other.
func (p place) checkLimits(what string, pairs ...[2]string) {
	has := func(name string) bool {
		f := p.get(name)
		return f.exists() && (name != "unlimited" || f.isTrue() || f.isEmpty())
	}
	for _, pair := range pairs {
		if has(pair[0]) && has(pair[1]) {
			p.get(pair[1]).asName().fault("this cannot be combined with "+pair[0], "keep one of them")
		}
	}
	if !has("limits") && !has("descriptors") && !has("unlimited") {
		p.asFirst().fault("this "+what+" has no limits", "add limits, descriptors or unlimited: true")
	}
}

// hasCounters reports whether a limit is of another algorithm than the sliding log.
func (p *part) hasCounters() bool {
	return slices.ContainsFunc(p.limits, func(l limit) bool {
		g := l.Given()
		return g.Algorithm != store.SlidingLog || g.Calendar.IsSet()
	})
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
	d := &part{
		at: p, unlimited: p.get("unlimited").isTrue(), shadow: r.shadow || p.get("shadow").isTrue(), key: g.key,
		above: above,
	}
	if len(above) > 1 {
		d.key = k.combined("join", above)
	}
	r.parts = append(r.parts, d)
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
	p.checkLimits("descriptor", [2]string{"limits", "unlimited"})
	d.limits = k.limits(p.get("limits"), cmp.Or(p.get("algorithm").Value, r.at.get("algorithm").Value))
	d.below = k.groups(p.get("descriptors"), r, above)
}

// checkValue reports a descriptor's value that no request can have.
func (p place) checkValue(key *key) {
	a, _ := netip.ParseAddr(p.Value) // the zero Addr if it fails
	a = clientip.Canonical(a)
	addresses := key.label == "ip" || key.label == "forwarded"
	switch {
	case p.Value == "":
		p.fault(emptyValue, "write a value, or leave the field out to match each value")
	case strings.Contains(p.Value, "*"):
		p.fault(fmt.Sprintf("%q has a wildcard, but values are compared exactly", cut(p.Value)),
			"leave the field out to match each value")
	case key.Spec().Finds("join"):
		p.fault("a joined key has several values", "use descriptors within descriptors")
	case addresses && !a.IsValid() && p.Value != clientip.UnixSocket:
		p.fault(fmt.Sprintf("%q is not an address, which the key finds", cut(p.Value)),
			"write one address, such as 192.0.2.1; allow and deny take networks")
	case addresses && a.IsValid() && a.String() != p.Value:
		p.fault(fmt.Sprintf("no request has the address in the form %q", cut(p.Value)), "write "+a.String())
	}
}

const emptyValue = "the value is empty, but no key has an empty value"

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
