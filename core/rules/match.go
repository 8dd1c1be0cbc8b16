package rules

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/clientip"
)

// match is the conditions of a rule.
type match struct {
	path       *pattern
	faulty     bool        // there is a mistake in it
	conditions []condition // those that need a key, which may have to be verified, are last
}

// condition is that the method, the host, a header, a claim or a value is one of some texts.
type condition struct {
	field  string // of match, such as "headers.X-Plan"
	values []string
	header string // its name, or empty
	value  string // its name, or empty
	key    *key   // of a claim or a value, or nil
}

// holds reports whether a request has one of the values.
func (c *condition) holds(r adapter.Request, t *adapter.Target, ch *choice) (bool, error) {
	has := func(text string) bool { return slices.Contains(c.values, text) }
	switch {
	case c.field == "methods":
		return has(t.Method), nil
	case c.field == "host":
		return has(lower(hostOf(t.Host))), nil
	case c.header != "":
		hasLine := func(line string) bool { return has(strings.Trim(line, " \t")) }
		return slices.ContainsFunc(r.Header(c.header), hasLine), nil
	}
	if c.value != "" {
		if is, ok := r.Value(c.value).(bool); ok { // which is no key
			return has(strconv.FormatBool(is)), nil
		}
	}
	text, ok, err := textOfKey(ch, c.key)
	return ok && has(text), err
}

// fails returns the field of a condition that does not hold, whichever of the readings is that of the path, or "".
func (m *match) fails(r adapter.Request, t *adapter.Target, readings []reading, ch *choice) (string, error) {
	if !slices.ContainsFunc(readings, func(one reading) bool { return m.path.matches(one, t) }) {
		return "path", nil
	}
	for i := range m.conditions {
		if holds, err := m.conditions[i].holds(r, t, ch); !holds || err != nil {
			return m.conditions[i].field, err
		}
	}
	return "", nil
}

// match reads the conditions of a rule.
func (k *reader) match(p place) (m match) {
	var methods []string
	for _, one := range p.get("methods").items() {
		if methods = append(methods, one.Value); one.Value == "GET" {
			methods = append(methods, "HEAD")
		}
	}
	if methods != nil {
		m.conditions = append(m.conditions, condition{field: "methods", values: methods})
	}
	if at := p.get("host"); !at.isEmpty() {
		name := lower(at.Value)
		host := hostOf(name)
		m.conditions = append(m.conditions, condition{field: "host", values: []string{host}})
		if host == "" || strings.ContainsAny(name, "/*: ") && net.ParseIP(strings.Trim(name, "[]")) == nil {
			at.fault(fmt.Sprintf("%.60q is not a host", at.Value),
				"write a name without port, path and wildcards, such as api.example.com")
		}
	}
	m.path = anyPath
	if at := p.get("path"); !at.isEmpty() {
		made, problem := parsePattern(at.Value)
		if made == nil {
			at.fault(fmt.Sprintf("%.60q: %s", at.Value, problem), remedyPath)
		}
		m.path = cmp.Or(made, anyPath)
	}
	for _, kind := range []string{"headers", "claims", "values"} {
		for _, f := range p.get(kind).fields() {
			m.conditions = append(m.conditions, k.condition(kind, f, &m))
		}
	}
	m.faulty = p.faults.hasFault(p.field)
	return m
}

// condition reads a condition on a header, a claim or a value.
func (k *reader) condition(kind string, p place, m *match) (c condition) {
	name := p.asName()
	if c.field = kind + "." + name.Value; kind != "headers" {
		c.key = k.make(strings.TrimSuffix(kind, "s"), name, place{})
		if kind == "values" {
			c.value = name.Value
		}
	} else {
		c.header = http.CanonicalHeaderKey(name.Value)
		if c.field = kind + "." + c.header; m.condition(c.field) != nil {
			name.fault("this header is listed twice", "write one list with its values: case makes no difference")
		}
		if !clientip.IsToken(name.Value) || c.header == "Host" {
			name.fault(fmt.Sprintf("%.60q is not a header's name", name.Value),
				"a name is letters, digits and '-'; for Host use the field host")
		}
	}
	values := p.items()
	if p.Kind == yaml.ScalarNode {
		values = []place{p}
	}
	for _, one := range values {
		if one.Value == "" && kind != "headers" {
			one.fault("the value is empty, but no key has an empty value", "write a value")
		}
		c.values = append(c.values, one.Value)
	}
	return c
}

// hostOf returns the host without a port, and without the dot at its end. To nginx, all behind the first colon is the
// port.
func hostOf(host string) string {
	if rest, ok := strings.CutPrefix(host, "["); ok {
		host, _, _ = strings.Cut(rest, "]")
	} else if i := strings.IndexByte(host, ':'); i >= 0 &&
		(i == strings.LastIndexByte(host, ':') || net.ParseIP(host) == nil) {
		host = host[:i]
	}
	return strings.TrimSuffix(host, ".")
}

// condition returns the condition on a field, or nil.
func (m *match) condition(field string) *condition {
	i := slices.IndexFunc(m.conditions, func(c condition) bool { return c.field == field })
	if i < 0 {
		return nil
	}
	return &m.conditions[i]
}

// covers reports whether every request that o matches is matched by m.
func (m *match) covers(o *match) bool {
	return m.path.covers(o.path) && !slices.ContainsFunc(m.conditions, func(c condition) bool {
		other := o.condition(c.field)
		missing := func(s string) bool { return !slices.Contains(c.values, s) }
		return other == nil || slices.ContainsFunc(other.values, missing)
	})
}
