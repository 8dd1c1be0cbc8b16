package rules

import (
	"math/bits"
	"slices"

	"github.com/sashlimit/sash/core/adapter"
)

// index finds the rules that match a request.
type index struct {
	paths      paths
	dimensions []dimension
}

// dimension is what rules have conditions on: the method, the host, a header, a claim or a value.
type dimension struct {
	condition

	any    set            // rules without a condition
	byText map[string]set // the rules that accept a text, with the others
}

func newIndex(all []match) *index {
	x := &index{paths: newPaths(all)}
	for i := range all {
		for _, c := range all[i].conditions {
			at, found := slices.BinarySearchFunc(x.dimensions, &c, func(d dimension, c *condition) int {
				return d.compare(c)
			})
			if !found {
				x.dimensions = slices.Insert(x.dimensions, at, newDimension(c, all))
			}
		}
	}
	return x
}

func newDimension(cond condition, all []match) dimension {
	d := dimension{cond, newBits(len(all)), make(map[string]set)}
	for i := range all {
		c := all[i].condition(d.kind, d.name)
		if c == nil {
			d.any.add(i)
			continue
		}
		for _, v := range c.values {
			if d.byText[v] == nil {
				d.byText[v] = newBits(len(all))
			}
			d.byText[v].add(i)
		}
	}
	for _, s := range d.byText {
		s.addSet(d.any)
	}
	return d
}

// accepting returns the rules that accept a text.
func (d *dimension) accepting(text string) set {
	if s := d.byText[text]; s != nil {
		return s
	}
	return d.any
}

// find sets found to the rules that match a request. A path that may be read in several ways, because of encoded
// slashes or dots, is read in each, since a framework may route by any: the cleaned path decides about found, and each
// of the other readings about one of others. ends says that these are what later middleware may leave of it.
func (x *index) find(r adapter.Request, c *choice, found set) (others []set, ends bool, err error) {
	t, ok := r.(adapter.Targeter)
	if !ok {
		return nil, false, errNoTarget
	}
	target := t.Target()
	others, ends = x.paths.match(&target, found)
	if others == nil {
		return nil, ends, x.keep(r, c, &target, found)
	}
	possible := slices.Clone(found)
	for _, other := range others {
		possible.addSet(other)
	}
	err = x.keep(r, c, &target, possible)
	found.keep(possible)
	for _, other := range others {
		other.keep(possible)
	}
	return others, ends, err
}

// keep removes the rules of which a condition other than the path does not hold.
func (x *index) keep(r adapter.Request, c *choice, target *adapter.Target, found set) error {
	for i := range x.dimensions {
		d := &x.dimensions[i]
		if found.isWithin(d.any) {
			continue
		}
		var few [4]string
		texts, err := d.texts(r, target, c, few[:0])
		if err != nil {
			return err
		}
		switch len(texts) {
		case 0:
			found.keep(d.any)
		case 1:
			found.keep(d.accepting(texts[0]))
		default: // any of a header's lines may fulfil it
			accepted := make(set, len(found))
			for _, text := range texts {
				accepted.addSet(d.accepting(text))
			}
			found.keep(accepted)
		}
	}
	return nil
}

// manyRules is how many rules are looked for without an allocation.
const manyRules = 2048

// set is a set of rules, by their place in the file.
type set []uint64

func newBits(rules int) set { return make(set, (rules+63)/64) }

func (s set) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s set) addAll(rules []int) {
	for _, i := range rules {
		s.add(i)
	}
}

func (s set) addSet(o set) {
	for i := range s {
		s[i] |= o[i]
	}
}

func (s set) keep(o set) {
	for i := range s {
		s[i] &= o[i]
	}
}

// isWithin reports whether all rules of s are in o.
func (s set) isWithin(o set) bool {
	for i := range s {
		if s[i]&^o[i] != 0 {
			return false
		}
	}
	return true
}

// next returns the first rule from i on, or -1.
func (s set) next(i int) int {
	for w := i / 64; w < len(s); w++ {
		word := s[w]
		if w == i/64 {
			word &^= 1<<(i%64) - 1
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

func (s set) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// setOnly removes all rules but i. A negative i is that of no rule.
func (s set) setOnly(i int) {
	clear(s)
	if i >= 0 {
		s.add(i)
	}
}
