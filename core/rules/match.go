package rules

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/clientip"
)

// match is the conditions of a rule.
type match struct {
	methods []string // sorted, with HEAD if there is GET; nil for any
	host    string   // in lower case, or empty for any
	path    *pattern // or nil for any
	route   string   // the path as it is written
	faulty  bool     // there is a mistake in it
	of      []condition
}

// condition is that a header, a claim or a value is one of some texts.
type condition struct {
	kind   string // headers, claims or values
	name   string
	values []string // sorted
	key    *key     // of a claim or a value
}

func (c *condition) String() string { return c.kind + " " + c.name }

// match reads the conditions of a rule.
func (k *keys) match(n *yaml.Node, field string) (m match) {
	for i, one := range items(get(n, "methods")) {
		name := strings.ToUpper(one.Value)
		if !clientip.IsToken(one.Value) {
			k.add(one, item(join(field, "methods"), i), fmt.Sprintf("%q is not a method", cut(one.Value)),
				"write methods such as GET")
			continue
		}
		if name != one.Value {
			k.add(one, item(join(field, "methods"), i), fmt.Sprintf("no request has the method %q", cut(one.Value)),
				fmt.Sprintf("write %s: methods are compared exactly", name))
			continue
		}
		if m.methods = append(m.methods, name); name == "GET" {
			m.methods = append(m.methods, "HEAD")
		}
	}
	slices.Sort(m.methods)
	m.methods = slices.Compact(m.methods)
	k.emptyList(get(n, "methods"), join(field, "methods"))
	if host := get(n, "host"); host != nil {
		name := lower(host.Value)
		m.host = hostOf(name)
		if m.host == "" || strings.ContainsAny(name, "/*: ") && net.ParseIP(strings.Trim(name, "[]")) == nil {
			k.add(host, join(field, "host"), fmt.Sprintf("%q is not a host", cut(host.Value)),
				"write a name without port, path and wildcards, such as api.example.com")
		}
	}
	if p := get(n, "path"); p != nil {
		m.path, m.route = k.parsePattern(p, join(field, "path")), p.Value
	}
	for _, kind := range []string{"headers", "claims", "values"} {
		k.conditions(&m, get(n, kind), kind, join(field, kind))
	}
	return m
}

func (k *keys) emptyList(n *yaml.Node, field string) {
	if n != nil && len(n.Content) == 0 && n.Kind != yaml.ScalarNode {
		k.add(n, field, "this is empty, so nothing can match", "name at least one, or leave the field out")
	}
}

func (k *keys) conditions(m *match, n *yaml.Node, kind, field string) {
	k.emptyList(n, field)
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], resolve(n.Content[i+1])
		c := condition{kind: kind, name: name.Value}
		at := join(field, name.Value)
		if kind == "headers" {
			c.name = http.CanonicalHeaderKey(c.name)
			if !clientip.IsToken(name.Value) || c.name == "Host" {
				k.add(name, at, fmt.Sprintf("%q is not a header's name", cut(name.Value)),
					"a name is letters, digits and '-'; for Host use the field host")
				continue
			}
			if m.condition(kind, c.name) != nil {
				k.add(name, at, "this header is there twice", "write one list with its values: case makes no difference")
				continue
			}
		} else if c.key = k.conditionKey(name, at, kind); c.key == nil {
			continue
		}
		c.values = k.alternatives(value, at, kind)
		m.of = append(m.of, c)
	}
	slices.SortStableFunc(m.of, func(a, b condition) int { return strings.Compare(a.String(), b.String()) })
}

// alternatives returns the values that fulfil a condition, sorted.
func (k *keys) alternatives(n *yaml.Node, field, kind string) (values []string) {
	k.emptyList(n, field)
	add := func(one *yaml.Node, field string) {
		if one.Value == "" && one.Kind == yaml.ScalarNode && kind != "headers" {
			k.add(one, field, "no key has an empty value", "write a value")
		}
		values = append(values, one.Value)
	}
	if n.Kind == yaml.ScalarNode {
		add(n, field)
	}
	for i, one := range items(n) {
		add(one, item(field, i))
	}
	slices.Sort(values)
	return slices.Compact(values)
}

func (k *keys) conditionKey(name *yaml.Node, field, kind string) *key {
	if kind == "claims" {
		return k.claim(name, field)
	}
	if name.Value == "" {
		k.add(name, field, "the name is empty", "write the name under which earlier middleware stores the value")
		return nil
	}
	return k.word2("value", name.Value)
}

// hostOf returns the host without a port, and without the dot at its end.
func hostOf(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host, ']') < i &&
		(host[0] == '[' || strings.IndexByte(host, ':') == i) {
		host = host[:i]
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
}

// condition returns the condition on a header, a claim or a value, or nil.
func (m *match) condition(kind, name string) *condition {
	for i := range m.of {
		if m.of[i].kind == kind && m.of[i].name == name {
			return &m.of[i]
		}
	}
	return nil
}

// covers reports whether every request that o matches is matched by m.
func (m *match) covers(o *match) bool {
	if m.methods != nil && (o.methods == nil || !contains(m.methods, o.methods)) ||
		m.host != "" && m.host != o.host ||
		m.path != nil && (o.path == nil && !m.path.all() || o.path != nil && !m.path.covers(o.path)) {
		return false
	}
	for i := range m.of {
		c := &m.of[i]
		if other := o.condition(c.kind, c.name); other == nil || !contains(c.values, other.values) {
			return false
		}
	}
	return true
}

// all reports whether the pattern matches every path.
func (p *pattern) all() bool { return p.multi && len(p.segments) == 0 }

// contains reports whether all of few are in many.
func contains(many, few []string) bool {
	for _, s := range few {
		if !slices.Contains(many, s) {
			return false
		}
	}
	return true
}

// meets reports whether a request may match both.
func (m *match) meets(o *match) bool {
	if m.methods != nil && o.methods != nil && !intersect(m.methods, o.methods) ||
		m.host != "" && o.host != "" && m.host != o.host ||
		m.path != nil && o.path != nil && !m.path.meets(o.path) {
		return false
	}
	for i := range m.of {
		c := &m.of[i] // a header that is sent twice may have both values
		if other := o.condition(c.kind, c.name); other != nil && c.kind != "headers" &&
			!intersect(c.values, other.values) {
			return false
		}
	}
	return true
}

func intersect(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// index finds the rules that match a request.
type index struct {
	rules   int
	paths   paths
	noPath  set
	methods choices
	hosts   choices
	of      []dimension
}

// choices are the rules that accept each text. Rules that accept any are in all of these.
type choices struct {
	asked bool // there is a rule with a condition
	any   set
	of    map[string]set
}

// dimension is a header, a claim or a value that rules have conditions on.
type dimension struct {
	condition

	asking  set // rules with a condition
	choices choices
}

func newIndex(all []match) *index {
	x := &index{rules: len(all), noPath: newBits(len(all)), paths: newPaths(all)}
	for i := range all {
		if all[i].path == nil {
			x.noPath.add(i)
		}
	}
	x.methods = newChoices(all, func(m *match) []string { return m.methods })
	x.hosts = newChoices(all, func(m *match) []string {
		if m.host == "" {
			return nil
		}
		return []string{m.host}
	})
	for i := range all {
		for _, c := range all[i].of {
			known := slices.ContainsFunc(x.of, func(d dimension) bool { return d.kind == c.kind && d.name == c.name })
			if !known {
				x.of = append(x.of, dimension{condition: c, asking: newBits(len(all))})
			}
		}
	}
	for n := range x.of {
		d := &x.of[n]
		d.choices = newChoices(all, func(m *match) []string {
			if c := m.condition(d.kind, d.name); c != nil {
				return c.values
			}
			return nil
		})
		for i := range all {
			if all[i].condition(d.kind, d.name) != nil {
				d.asking.add(i)
			}
		}
	}
	return x
}

func newChoices(all []match, of func(*match) []string) choices {
	c := choices{any: newBits(len(all)), of: make(map[string]set)}
	for i := range all {
		values := of(&all[i])
		if values == nil {
			c.any.add(i)
			continue
		}
		c.asked = true
		for _, v := range values {
			if c.of[v] == nil {
				c.of[v] = newBits(len(all))
			}
			c.of[v].add(i)
		}
	}
	for _, s := range c.of {
		s.addSet(c.any)
	}
	return c
}

// accept returns the rules that accept a text.
func (c *choices) accept(text string) set {
	if s := c.of[text]; s != nil {
		return s
	}
	return c.any
}

// find adds the rules that match a request to found, which is empty. A path that may be read in several ways, because of
// encoded slashes or dots, is read in each: the cleaned path decides about found, and each of the other readings about
// one of others. A framework may route by any.
func (x *index) find(r adapter.Request, c *core.Choice, found set) (others []set, err error) {
	t, ok := r.(adapter.Targeter)
	if !ok {
		return nil, errNoTarget
	}
	target := t.Target()
	x.paths.match(&target, found)
	found.addSet(x.noPath)
	possible := found
	for _, segments := range readings(&target) {
		other := newBits(x.rules)
		x.paths.matchSegments(segments, &target, other)
		other.addSet(x.noPath)
		others = append(others, other)
	}
	if others != nil {
		possible = slices.Clone(found)
		for _, other := range others {
			possible.addSet(other)
		}
	}
	if err := x.keep(r, c, &target, possible); err != nil {
		return nil, err
	}
	if others != nil {
		found.keep(possible)
		for _, other := range others {
			other.keep(possible)
		}
	}
	return others, nil
}

// keep removes the rules of which a condition other than the path does not hold.
func (x *index) keep(r adapter.Request, c *core.Choice, target *adapter.Target, found set) error {
	if x.methods.asked {
		found.keep(x.methods.accept(target.Method))
	}
	if x.hosts.asked {
		found.keep(x.hosts.accept(lower(hostOf(target.Host))))
	}
	for i := range x.of {
		if d := &x.of[i]; d.asking.meets(found) {
			if err := d.keep(r, c, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep removes the rules whose condition does not hold.
func (d *dimension) keep(r adapter.Request, c *core.Choice, found set) error {
	if d.kind != "headers" {
		text, ok, err := textOfKey(c, d.key)
		switch {
		case err != nil:
			return err
		case ok:
			found.keep(d.choices.accept(text))
		default:
			found.keep(d.choices.any)
		}
		return nil
	}
	lines := r.Header(d.name)
	switch len(lines) {
	case 0:
		found.keep(d.choices.any)
	case 1:
		found.keep(d.choices.accept(strings.Trim(lines[0], " \t")))
	default: // any of the lines may fulfil it
		accepted := make(set, len(found))
		for _, line := range lines {
			accepted.addSet(d.choices.accept(strings.Trim(line, " \t")))
		}
		found.keep(accepted)
	}
	return nil
}

// textOfKey returns what a key finds in a request, and whether it finds something.
func textOfKey(c *core.Choice, k *key) (text string, ok bool, err error) {
	id, err := c.Identity(k.Key)
	switch {
	case errors.Is(err, core.ErrNoKey):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("sash: a rule asks for %s: %w", k.text, err)
	case id.Addr.IsValid():
		return id.Addr.String(), true, nil
	}
	return id.Text, true, nil
}

// lower returns s with the letters A to Z in lower case, without an allocation if there are none.
func lower(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}
