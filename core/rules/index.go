package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

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

// find adds the rules that match a request to found, which is empty. A path that may be read in several ways, because
// of encoded slashes or dots, is read in each, since a framework may route by any: the cleaned path decides about
// found, and each of the other readings about one of others. ends says that these are what later middleware may leave
// of it.
func (x *index) find(r adapter.Request, c *choice, found set) (others []set, ends bool, err error) {
	t, ok := r.(adapter.Targeter)
	if !ok {
		return nil, false, errNoTarget
	}
	target := t.Target()
	others, ends = x.paths.match(&target, found)
	found.addSet(x.noPath)
	if others == nil {
		return nil, ends, x.keep(r, c, &target, found)
	}
	possible := slices.Clone(found)
	for _, other := range others {
		other.addSet(x.noPath)
		possible.addSet(other)
	}
	if err := x.keep(r, c, &target, possible); err != nil {
		return nil, ends, err
	}
	found.keep(possible)
	for _, other := range others {
		other.keep(possible)
	}
	return others, ends, nil
}

// keep removes the rules of which a condition other than the path does not hold.
func (x *index) keep(r adapter.Request, c *choice, target *adapter.Target, found set) error {
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
func (d *dimension) keep(r adapter.Request, c *choice, found set) error {
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
func textOfKey(c *choice, k *key) (text string, ok bool, err error) {
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
