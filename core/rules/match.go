package rules

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

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
				k.add(name, at, "this header is there twice", "write one list with its values: case makes no "+
					"difference")
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
