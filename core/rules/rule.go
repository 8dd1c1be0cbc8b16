package rules

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
)

// rule is a rule of the file.
type rule struct {
	name      string
	field     string // rules[3]
	node      *yaml.Node
	match     match
	unlimited bool
	shadow    bool
	cost      int
	failure   core.Failure
	message   string
	key       *key
	limits    []limit
	tree      []*group // of descriptors
	allow     names
	deny      names

	prepared prepared // of limits
}

// group is the descriptors of one key.
type group struct {
	key    *key
	values map[string]*descriptor
	every  *descriptor // for values that have no descriptor of their own, or nil
}

type descriptor struct {
	node      *yaml.Node
	field     string
	unlimited bool
	shadow    bool
	above     []*key // keys of the descriptors above, and of this one
	limits    []limit
	below     []*group

	prepared prepared // of limits
}

// document is a file that has been read.
type document struct {
	domain string
	all    bool // every rule that matches applies, and not only the first
	rules  []*rule
}

const longestName = 48

// read reads the rules of a file.
func (k *keys) read(n *yaml.Node) *document {
	doc := &document{domain: "default", all: textAt(n, "apply") == "all"}
	if d := get(n, "domain"); d != nil {
		doc.domain = d.Value
		k.policyName(d, "domain", d.Value)
	}
	list := get(n, "rules")
	if list != nil && list.Kind == yaml.SequenceNode && len(list.Content) == 0 {
		k.add(list, "rules", "there are no rules", "write at least one")
	}
	names := make(map[string]*yaml.Node)
	for i, one := range items(list) {
		if one.Kind != yaml.MappingNode {
			continue
		}
		r := k.rule(one, item("rules", i))
		doc.rules = append(doc.rules, r)
		at := get(one, "name")
		if at == nil || r.name == "" {
			continue
		}
		if earlier := names[r.name]; earlier != nil {
			k.add(at, join(r.field, "name"), fmt.Sprintf("the name %q is there twice", cut(r.name)),
				fmt.Sprintf("choose another one: line %d has it too", earlier.Line))
		} else {
			names[r.name] = at
		}
		if len(doc.domain)+1+len(r.name) > longestName && len(r.name) <= longestName {
			k.add(at, join(r.field, "name"), fmt.Sprintf("domain and name are longer than %d together", longestName-1),
				"shorten one: they name the logs, as "+cut(doc.domain+"."+r.name))
		}
	}
	return doc
}

func (k *keys) policyName(at *yaml.Node, field, name string) {
	if name == "" || len(name) > longestName || strings.Trim(name, nameLetters) != "" {
		k.add(at, field, fmt.Sprintf("%q is not a name", cut(name)),
			fmt.Sprintf("use 1 to %d lower-case letters, digits, '.', '_' or '-'", longestName))
	}
}

func (k *keys) rule(n *yaml.Node, field string) *rule {
	r := &rule{name: textAt(n, "name"), field: field, node: n, cost: 1, message: textAt(n, "message")}
	if at := get(n, "name"); at != nil && at.Kind == yaml.ScalarNode {
		k.policyName(at, join(field, "name"), r.name)
	}
	before := len(k.all)
	r.match = k.match(get(n, "match"), join(field, "match"))
	r.match.faulty = len(k.all) > before || k.hasFault(join(field, "match"))
	k.prefix, k.route = r.name+"-", r.match.route
	r.unlimited, r.shadow = isTrue(n, "unlimited"), isTrue(n, "shadow")
	if cost := get(n, "cost"); cost != nil {
		r.cost, _ = integer(cost)
		if r.cost > core.MaxQuota {
			k.add(cost, join(field, "cost"), cut(cost.Value)+" is more than any quota",
				fmt.Sprintf("write 1 to %d", core.MaxQuota))
		}
	}
	switch textAt(n, "failure") {
	case "open":
		r.failure = core.FailOpen
	case "closed":
		r.failure = core.FailClosed
	}
	k.one(n, field, "limits", "descriptors", "unlimited")
	k.ruleKey(r)
	r.limits = k.limits(get(n, "limits"), join(field, "limits"), textAt(n, "algorithm"))
	k.keysOfLimits(r)
	r.tree = k.groups(get(n, "descriptors"), join(field, "descriptors"), r, nil)
	r.allow, r.deny = k.list(r, "allow"), k.list(r, "deny")
	k.local(r)
	return r
}

// one reports if not exactly one of some fields is there. A field that says false is not.
func (k *keys) one(n *yaml.Node, field string, names ...string) {
	var there []string
	for _, name := range names {
		if v := get(n, name); v != nil && (name != "unlimited" || isTrue(n, name)) {
			there = append(there, name)
		}
	}
	all := strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
	switch {
	case len(there) == 0 && get(n, "unlimited") != nil:
		k.add(get(n, "unlimited"), join(field, "unlimited"), "this is false, and nothing else says how much is allowed",
			"write "+all)
	case len(there) == 0:
		k.add(first(n), field, "this says not how much is allowed", "add "+all)
	case len(there) > 1:
		k.add(nameNode(n, there[1]), join(field, there[1]), "this stands beside "+there[0],
			"keep one of "+all)
	}
}

func (k *keys) ruleKey(r *rule) {
	at, field := get(r.node, "key"), join(r.field, "key")
	if at == nil {
		return
	}
	if r.key = k.of(at, field, keyWords); r.key != nil && get(r.node, "descriptors") != nil {
		k.add(nameNode(r.node, "key"), field, "the keys of descriptors stand in these", "remove it")
	}
}

// keysOfLimits reports limits without a key.
func (k *keys) keysOfLimits(r *rule) {
	if r.key != nil || get(r.node, "key") != nil {
		return
	}
	for i := range r.limits {
		if r.limits[i].key == nil {
			k.add(first(r.node), r.field, fmt.Sprintf("it is not said whose quota %q is", cut(r.limits[i].text)),
				"add key: to the rule, such as key: ip, or to each of its limits")
			return
		}
	}
}

// local reports failure: local for limits that cannot be added to the store after an outage.
func (k *keys) local(r *rule) {
	if textAt(r.node, "failure") != "local" {
		return
	}
	counts := func(l limit) bool { return l.counts }
	if slices.ContainsFunc(r.limits, counts) || r.leaves(func(d *descriptor) bool {
		return slices.ContainsFunc(d.limits, counts)
	}) {
		k.add(get(r.node, "failure"), join(r.field, "failure"),
			"only limits of the algorithm "+slidingLog+" can be enforced in the process and be added to the store "+
				"afterwards", "choose open or closed, or leave the field out to enforce them without adding them")
	}
}

// leaves reports whether f returns true for one of the rule's descriptors.
func (r *rule) leaves(f func(*descriptor) bool) bool {
	var within func([]*group) bool
	within = func(groups []*group) bool {
		return slices.ContainsFunc(groups, func(g *group) bool {
			return slices.ContainsFunc(g.all(), func(d *descriptor) bool { return f(d) || within(d.below) })
		})
	}
	return within(r.tree)
}

// limitTexts returns the limits of a rule and its descriptors, as the file says them.
func (r *rule) limitTexts() (texts []string) {
	for _, l := range r.limits {
		texts = append(texts, l.text)
	}
	r.leaves(func(d *descriptor) bool {
		for _, l := range d.limits {
			texts = append(texts, l.text)
		}
		return false
	})
	return texts
}

// all returns the descriptors of a group, in the order of their values.
func (g *group) all() []*descriptor {
	names := make([]string, 0, len(g.values))
	for v := range g.values {
		names = append(names, v)
	}
	slices.Sort(names)
	all := make([]*descriptor, 0, len(names)+1)
	for _, v := range names {
		all = append(all, g.values[v])
	}
	if g.every != nil {
		all = append(all, g.every)
	}
	return all
}

// groups reads a list of descriptors.
func (k *keys) groups(n *yaml.Node, field string, r *rule, above []*key) (groups []*group) {
	list := items(n)
	if n != nil && n.Kind == yaml.SequenceNode && len(list) == 0 {
		k.add(n, field, "the list is empty", "write at least one descriptor")
	}
	for i, one := range list {
		at := item(field, i)
		named := get(one, "key")
		if named == nil {
			continue
		}
		of := k.of(named, join(at, "key"), nil)
		if of == nil {
			continue
		}
		if slices.Contains(above, of) {
			k.add(named, join(at, "key"), "a descriptor above has this key", "remove one")
			continue
		}
		g := (*group)(nil)
		for _, known := range groups {
			if known.key == of {
				g = known
			}
		}
		if g == nil {
			g = &group{key: of, values: make(map[string]*descriptor)}
			groups = append(groups, g)
		}
		k.descriptor(one, at, r, g, above)
	}
	return groups
}

func (k *keys) descriptor(n *yaml.Node, field string, r *rule, g *group, above []*key) {
	d := &descriptor{
		node: n, field: field, unlimited: isTrue(n, "unlimited"), shadow: r.shadow || isTrue(n, "shadow"),
		above: append(slices.Clone(above), g.key),
	}
	there := g.every
	if v := get(n, "value"); v == nil {
		if there == nil {
			g.every = d
		}
	} else {
		k.value(v, join(field, "value"), g.key)
		if there = g.values[v.Value]; there == nil {
			g.values[v.Value] = d
		}
	}
	if there != nil {
		k.add(nameNode(n, "key"), join(field, "key"), "this key and value are there twice",
			fmt.Sprintf("merge it with the descriptor of line %d", there.node.Line))
	}
	limits, below := get(n, "limits"), get(n, "descriptors")
	switch {
	case d.unlimited && limits != nil:
		k.add(nameNode(n, "limits"), join(field, "limits"), "this stands beside unlimited", "keep one of them")
	case !d.unlimited && limits == nil && below == nil:
		k.add(first(n), field, "this says not how much is allowed", "add limits, unlimited or descriptors")
	}
	algorithm := textAt(n, "algorithm")
	if algorithm == "" {
		algorithm = textAt(r.node, "algorithm")
	}
	d.limits = k.limits(limits, join(field, "limits"), algorithm)
	d.below = k.groups(below, join(field, "descriptors"), r, d.above)
}

// value reports a descriptor's value that can never be.
func (k *keys) value(v *yaml.Node, field string, of *key) {
	switch {
	case v.Kind != yaml.ScalarNode:
	case v.Value == "":
		k.add(v, field, "no key has an empty value", "write a value, or leave the field out for each value")
	case strings.Contains(v.Value, "*"):
		k.add(v, field, fmt.Sprintf("%q has a wildcard, and values are compared exactly", cut(v.Value)),
			"leave the field out for each value")
	case of.tuple:
		k.add(v, field, "a joined key has several values", "use descriptors within descriptors")
	}
}

// list reads allow or deny.
func (k *keys) list(r *rule, name string) names {
	n, field, of := get(r.node, name), join(r.field, name), r.key
	if n == nil {
		return nil
	}
	values := n
	if n.Kind == yaml.MappingNode {
		at := get(n, "key")
		if values = get(n, "values"); at == nil || values == nil {
			return nil
		}
		if of = k.of(at, join(field, "key"), keyWords); of == nil {
			return nil
		}
		field = join(field, "values")
	} else if get(r.node, "key") == nil {
		k.add(n, field, "the rule has no key that these could be values of", "write {key: ip, values: [...]}")
		return nil
	}
	if of == nil {
		return nil
	}
	var entries []string
	if values.Kind == yaml.SequenceNode && len(values.Content) == 0 {
		k.add(values, field, "the list is empty", "name somebody, or leave the field out")
		return nil
	}
	ok := true
	for i, one := range items(values) {
		if _, err := engine.NewList(of.Key, []string{one.Value}); err != nil {
			problem, remedy := reason(err)
			k.add(one, item(field, i), problem, remedy)
			ok = false
			continue
		}
		if slices.Contains(entries, one.Value) {
			k.add(one, item(field, i), fmt.Sprintf("%q is there twice", cut(one.Value)), "remove one")
		}
		entries = append(entries, one.Value)
	}
	if !ok || len(entries) == 0 {
		return nil
	}
	made, err := engine.NewList(of.Key, entries)
	if err != nil {
		problem, remedy := reason(err)
		k.add(values, field, problem, remedy)
	}
	return made
}
